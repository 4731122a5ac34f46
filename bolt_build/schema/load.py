"""From a recipe file to a `Recipe`."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bolt_build.errors import BoltError, Diagnostic, Mark
from bolt_build.schema.extend import merge, read_extended
from bolt_build.schema.keys import beside, read
from bolt_build.schema.names import engine_name
from bolt_build.schema.recipe import (
    EngineSpec,
    LayerSpec,
    ModelSpec,
    Policy,
    Recipe,
    TargetSpec,
    TuningSpec,
    VariantSpec,
    VerifySpec,
)
from bolt_build.schema.validate import Schema, fits, recipe_schema, resolved, validate
from bolt_build.schema.values import Items, Scalar, Table, Value, plain, shorten, text_at, value_at, walk
from bolt_build.targets import Target, all_targets, target_named
from bolt_build.user_files import kind_of, leads_nowhere
from bolt_build.wording import listed, suggest


def load_recipe(
    path: Path, settings: Table | None = None, further: Callable[[Table], Iterable[Diagnostic]] = lambda table: ()
) -> Recipe:
    """The recipe at `path`, with those it extends merged in and every default filled in. `settings` are put over it.

    Raises BoltError with everything that is wrong with it: form, keys, types, values, targets that do not exist or do
    not compute in the precision asked for, a model file that is not there, and what `further` finds. Names of zoo
    models and of passes are not checked here.
    """
    table, found = read_extended(path)
    if settings is not None:
        table = Table(merge(table, settings).entries, table.mark)
    diagnostics = [*found, *validate(table)]
    diagnostics += [*_check_name(table, path), *_check_targets(table), *_check_model(table), *_check_lock(table)]
    diagnostics += [*_check_fixed(table), *_check_variants(table, path), *_check_verify(table)]
    diagnostics += further(table)
    if diagnostics:
        raise BoltError(_in_order(diagnostics, path))
    data = fill_defaults(plain(table), recipe_schema())
    return _recipe(data, path, table)


def fill_defaults(data: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Valid `data` with the schema's defaults where it says nothing, all the way down."""
    filled = {}
    properties: dict[str, Schema] = schema.get("properties", {})
    for name, value in data.items():
        below = resolved(properties.get(name, schema.get("additionalProperties") or {}))
        if value is None and "object" in below["type"]:
            value = {}
        filled[name] = fill_defaults(value, below) if isinstance(value, dict) else value
    for name, sub in properties.items():
        if name not in data and "default" in sub:
            value = copy.deepcopy(sub["default"])
            filled[name] = fill_defaults(value, resolved(sub)) if isinstance(value, dict) else value
    return filled


def _recipe(data: dict[str, Any], path: Path, table: Table) -> Recipe:
    placed = tuple(
        (key, entry.mark if isinstance(entry.value, Table) else entry.value.mark) for key, entry in walk(table)
    )
    marks = dict(placed)
    return Recipe(
        path=str(path),
        name=data.get("name") or _name_of(path),
        model=read(ModelSpec, data["model"], marks, "model."),
        targets=tuple(
            read(TargetSpec, {"precision": _best(name), **spec}, marks, f"targets.{name}.", name=name)
            for name, spec in data["targets"].items()
        ),
        policy=_with_layers(read(Policy, data["policy"], marks, "policy."), data["layers"]),
        layers=tuple(
            read(LayerSpec, spec, marks, f"layers.{match}.", match=match) for match, spec in data["layers"].items()
        ),
        engine=read(EngineSpec, data["engine"], marks, "engine."),
        verify=read(VerifySpec, data["verify"], marks, "verify."),
        marks=placed,
        tuning=read(TuningSpec, data["tuning"], marks, "tuning."),
        variants=tuple(
            read(VariantSpec, spec, marks, f"variants.{name}.", name=name) for name, spec in data["variants"].items()
        ),
    )


def _best(target: str) -> str:
    """The precision that a target is best at."""
    return target_named(target).precisions[0]


def _with_layers(policy: Policy, layers: dict[str, dict[str, Any]]) -> Policy:
    """The policy with what layers say of padding."""
    by_layer = tuple((match, spec["padding"]) for match, spec in layers.items() if "padding" in spec)
    return replace(policy, padding=replace(policy.padding, layers=by_layer))


def _check_name(table: Table, path: Path) -> list[Diagnostic]:
    """The file's name must do where the recipe does not say another one."""
    rule = recipe_schema()["properties"]["name"]
    if table.get("name") is not None or fits(_name_of(path), rule):
        return []
    long = len(_name_of(path)) > rule["maxLength"]
    why = f"a name has at most {rule['maxLength']} characters" if long else rule["patternErrorMessage"]
    message = f"the file's name cannot name the engine: {why}"
    return [Diagnostic("bad-name", message, Mark(str(path), 1, 1), "add a name, such as 'name: model'")]


def _name_of(path: Path) -> str:
    """What the engine of a recipe without a name is called; empty where the file's name has nothing for that."""
    return engine_name(path.stem) or ""


def _check_targets(table: Table) -> list[Diagnostic]:
    """Targets exist, and compute in every precision that the recipe asks of them."""
    entry = table.get("targets")
    if entry is None or not isinstance(entry.value, Table):
        return []
    known = {target.name: target for target in all_targets()}
    found = []
    targets = []
    for named in entry.value.entries:
        target = known.get(named.key)
        if target is None:
            hint = suggest(named.key, known) or f"known targets: {', '.join(known)}"
            message = f"unknown target '{shorten(named.key)}'"
            found.append(Diagnostic("unknown-target", message, named.mark, hint))
            continue
        targets.append(target)
        if isinstance(named.value, Table):
            found += _check_precision(named.value, (target,))
    layers = table.get("layers")
    if layers is not None and isinstance(layers.value, Table):
        for layer in layers.value.entries:
            if isinstance(layer.value, Table):
                found += _check_precision(layer.value, tuple(targets))
    return found


def _check_precision(spec: Table, targets: tuple[Target, ...]) -> list[Diagnostic]:
    entry = spec.get("precision")
    if entry is None or not isinstance(entry.value, Scalar):
        return []
    if entry.value.value not in resolved(recipe_schema()["$defs"]["precision"])["enum"]:
        return []
    return [
        Diagnostic(
            "unsupported-precision",
            f"the target '{target.name}' does not compute in {entry.value.value}",
            entry.value.mark,
            f"it computes in {listed(target.precisions)}{_no_bf16(target, entry.value.value)}",
        )
        for target in targets
        if entry.value.value not in target.precisions
    ]


def _no_bf16(target: Target, precision: object) -> str:
    """Why a GPU does not compute in bf16, behind what it computes in."""
    if precision != "bf16" or target.gpu is None:
        return ""
    return f": tensor cores of compute capability {target.gpu.sm / 10} have no bf16, those from 8.0 on have"


def _check_lock(table: Table) -> list[Diagnostic]:
    """The lock's path can be one. The file may be missing: tuning writes it."""
    named = text_at(table, "tuning", "lock")
    if named is None:
        return []
    name, mark = named
    if "\0" in name:
        return [Diagnostic("bad-value", "'tuning.lock' holds a NUL", mark)]
    kind = kind_of(beside(name, mark))
    if kind is not None:  # also where no target has kernels to choose, and nobody reads it
        return [Diagnostic("bad-value", f"the lock '{name}' is {kind}", mark)]
    return []


def _check_variants(table: Table, path: Path) -> list[Diagnostic]:
    """The variant that is built is there, and every one gives a name that an engine can have."""
    entry, named = table.get("variants"), table.get("name")
    known = entry.value.entries if entry is not None and isinstance(entry.value, Table) else ()
    found = []
    own = named.value.value if named is not None and isinstance(named.value, Scalar) else _name_of(path)
    most = recipe_schema()["properties"]["name"]["maxLength"]
    for variant in known:
        engine = f"{own}_{variant.key}"
        if len(engine) > most:
            message = f"the engine of this variant would be called '{shorten(engine)}', {len(engine)} characters"
            found.append(Diagnostic("bad-name", message, variant.mark, f"at most {most} are allowed"))
    chosen = text_at(table, "model", "variant")
    names = [variant.key for variant in known]
    if chosen is not None and chosen[0] not in names:
        found.append(unknown_variant(chosen[0], names, chosen[1]))
    return found


def unknown_variant(name: str, known: Sequence[str], mark: Mark | None) -> Diagnostic:
    """What is said of a variant that a recipe does not have."""
    hint = suggest(name, known) or (f"its variants: {', '.join(known)}" if known else "it has no 'variants'")
    return Diagnostic("unknown-variant", f"the recipe has no variant '{shorten(name)}'", mark, hint)


def _check_model(table: Table) -> list[Diagnostic]:
    """The model's file is there."""
    named = text_at(table, "model", "onnx")
    if named is None:
        return []
    name, mark = named
    if "\0" in name:
        return [Diagnostic("bad-value", "'model.onnx' holds a NUL", mark)]
    path = beside(name, mark)
    if os.path.isfile(path):
        return []
    other = kind_of(path)
    kind = f"is {other}" if other is not None else "does not exist"
    near = None if other is not None else _what_helps(name, path, ".onnx")
    return [Diagnostic("no-such-model", f"the model file '{shorten(name)}' {kind}", mark, near)]


def _check_fixed(table: Table) -> list[Diagnostic]:
    """Inputs are fixed, and inputs and outputs chosen, of ONNX files alone."""
    model = table.get("model")
    if model is None or not isinstance(model.value, Table) or model.value.get("zoo") is None:
        return []
    found = []
    does_of = {"fixed": "gives values to inputs", "inputs": "chooses inputs", "outputs": "chooses outputs"}
    for key, does in does_of.items():
        entry = model.value.get(key)
        if entry is not None and _filled(entry.value):
            message = f"'model.{key}' {does} of an ONNX file, and the model is the zoo's"
            found.append(Diagnostic("bad-value", message, entry.mark, "leave it out"))
    return found


def _filled(value: Value) -> bool:
    """Whether a list or mapping has anything in it."""
    return bool(value.entries if isinstance(value, Table) else value.items if isinstance(value, Items) else ())


def _check_verify(table: Table) -> list[Diagnostic]:
    """The file of inputs is there, and no tolerance is NaN, which is neither too small nor too large."""
    layers = value_at(table, "layers")
    places = [("verify",), *(("layers", entry.key) for entry in (layers.entries if isinstance(layers, Table) else ()))]
    found = []
    for keys in places:
        tolerance = value_at(table, *keys, "tolerance")
        if isinstance(tolerance, Scalar) and tolerance.value != tolerance.value:
            message = f"'{'.'.join(keys)}.tolerance' must be a number, found NaN"
            found.append(Diagnostic("bad-value", message, tolerance.mark))
    named = text_at(table, "verify", "inputs")
    if named is None:
        return found
    name, mark = named
    if "\0" in name:
        return [*found, Diagnostic("bad-value", "'verify.inputs' holds a NUL", mark)]
    path = beside(name, mark)
    if os.path.isfile(path):
        return found
    other = kind_of(path)
    kind = f"is {other}" if other is not None else "does not exist"
    near = None if other is not None else _what_helps(name, path, ".npz")
    message = f"the file of inputs '{shorten(name)}' {kind}"
    return [*found, Diagnostic("no-such-inputs", message, mark, near)]


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_UNEXPANDED = re.compile(r"~|.*(\$|%\w+%)")


def _what_helps(name: str, path: str, suffix: str) -> str | None:
    """What helps where a recipe names a file that is not there."""
    if _URL.match(name):
        return "no URL is read: fetch the file, and name that; paths are relative to the recipe"
    target = leads_nowhere(path)
    if target is not None:
        return f"it is a link to '{shorten(target)}', which is not there"
    if near := suggest(os.path.basename(path), _siblings(path, suffix)):
        return near
    if _UNEXPANDED.match(name):
        return "'~' and variables stand for themselves here; paths are relative to the recipe"
    return None


def _siblings(path: str, suffix: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(os.path.dirname(path)) if name.endswith(suffix))
    except OSError:
        return []


def _in_order(diagnostics: list[Diagnostic], path: Path) -> list[Diagnostic]:
    """By place: the recipe's own first, then those of the recipes it extends; what has no place last."""

    def place(diagnostic: Diagnostic) -> tuple[bool, bool, str, int, int]:
        mark = diagnostic.mark
        if mark is None:
            return (True, True, "", 0, 0)
        return (False, mark.file != str(path), mark.file, mark.line, mark.column)

    return sorted(diagnostics, key=place)
