"""ONNX files that are written here: the zoo's models, variants of any model, and models with inputs that are fixed or
empty, or with other inputs and outputs.

A stamp beside the file says what it was written from, so that it is written again only when that has changed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bolt_build.build.files import FileStamp, read_text, stamp, told, untouched, write_text
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.own_code.own_sources import code_digest
from bolt_build.build.planning.model_mark import marked
from bolt_build.digest import UNSAID, canonical_json, decode, digest, encode
from bolt_build.errors import BoltError, Diagnostic
from bolt_build.plugins import Offer
from bolt_build.schema.recipe import Recipe
from bolt_build.user_files import utf8_folder
from bolt_build.wording import listed

if TYPE_CHECKING:
    from onnx import ModelProto

_MOST_BYTES = (1 << 31) - 1
"""Of one protobuf message."""


@dataclass(frozen=True)
class _Stamp:
    """What `model.onnx` of a recipe's directory was written from.

    `source` names the model and what is changed of it, `code` is the digest of what writes it. `base` are the files of
    the recipe's own model. Writing it took `seconds`. `recipe` is the path of the recipe that wanted it last.
    """

    source: str
    code: str
    file: FileStamp
    base: tuple[FileStamp, ...] = ()
    seconds: float | None = field(default=None, metadata=UNSAID)
    recipe: str | None = field(default=None, metadata=UNSAID)


def known_base(directory: RecipeDirectory) -> tuple[FileStamp, ...]:
    """Stamps of the files that the model in `directory` was made from, none where that is not known."""
    known = _load(directory)
    return () if known is None else known.base


def wanted_by(directory: RecipeDirectory) -> str | None:
    """Path of the recipe for which the model in `directory` was written, None where that is not known."""
    known = _load(directory)
    return None if known is None else known.recipe


def written_model(
    recipe: Recipe,
    base: tuple[FileStamp, ...],
    directory: RecipeDirectory,
    say: Callable[[str], None],
    begin: Callable[[str, float | None], None] | None = None,
) -> FileStamp:
    """The file of a recipe that writes its model, written where it is not there yet or not the right one.

    `base` are the files of the recipe's own model, none where it comes from the zoo. `begin`, or `say` where there is
    none, hears that it is being written, with the seconds that it took last. Raises BoltError, with what of a variant
    or of inputs and outputs does not fit the model, too.
    """
    path, source, code, known = directory.zoo_model, _source(recipe, base), _code(recipe), _load(directory)
    if known is not None and (known.source, known.code) == (source, code):
        if untouched(known.file) and known.recipe == recipe.path:
            return known.file
        found = stamp(path) if path.is_file() else None
        if found is not None and found.digest == known.file.digest:
            return _save(directory, replace(known, file=found, base=base, recipe=recipe.path))
    text, started = f"writing {_named(recipe)} to {path}", time.monotonic()
    if begin is None:
        say(text)
    else:
        begin(text, None if known is None else known.seconds)
    with told(path):
        directory.path.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(".model.tmp.onnx")
        try:
            for change in _write(recipe, temporary):
                say(f"{recipe.name}: {change}")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        seconds = round(time.monotonic() - started, 3)
        return _save(directory, _Stamp(source, code, stamp(path), base, seconds, recipe.path))


def _source(recipe: Recipe, base: tuple[FileStamp, ...]) -> str:
    if not recipe.model.changed and recipe.variant is None:
        return str(recipe.model.zoo)
    # What a variant is called does not matter to its file.
    spec = "" if recipe.variant is None else canonical_json(replace(recipe.variant, name=""))
    if recipe.model.fixed:
        spec = f"{canonical_json(list(map(list, recipe.model.fixed)))} {spec}"
    if recipe.model.empty:
        spec = f"{canonical_json(list(recipe.model.empty))} {spec}"
    if recipe.model.inputs or recipe.model.outputs:
        spec = f"{canonical_json([list(recipe.model.inputs), list(recipe.model.outputs)])} {spec}"
    if recipe.model.zoo is not None:
        return f"{recipe.model.zoo} {spec}"
    return f"{digest([file.digest for file in base])} {canonical_json(list(map(list, recipe.model.largest)))} {spec}"


def _code(recipe: Recipe) -> str:
    """Digest of all code that the bytes of the file follow from."""
    # The zoo loads onnx: models that are there already need it not.
    from bolt_build.graph import zoo

    own = None if recipe.model.zoo is None else zoo.module(recipe.model.zoo)
    writers = ["bolt_build.graph.zoo"] if recipe.model.zoo is not None else []
    if recipe.model.fixed:
        writers += ["bolt_build.graph.onnx_model.fixed_inputs"]
    if recipe.model.empty:
        writers += ["bolt_build.graph.onnx_model.empty_inputs"]
    if recipe.model.inputs or recipe.model.outputs:
        writers += ["bolt_build.graph.onnx_model.rewired"]
    if recipe.variant is not None:
        writers += ["bolt_build.graph.variants", "bolt_build.graph.onnx_import"]

    def counts(offer: Offer) -> bool:
        """The zoo's own models have operators of bolt-build alone."""
        if offer.group == "bolt_build.zoo":
            return offer.name == recipe.model.zoo
        return own is None and offer.group == "bolt_build.ops"

    return code_digest(*writers, chosen=() if own is None else (own,), counts=counts)


def _named(recipe: Recipe) -> str:
    model = f"the zoo's {recipe.model.zoo}" if recipe.model.zoo is not None else str(recipe.model.onnx)
    if recipe.model.fixed:
        model = f"{model} with {listed(name for name, _ in recipe.model.fixed)} fixed"
    if recipe.model.empty:
        model = f"{model} with {listed(recipe.model.empty)} of size 0"
    if recipe.model.inputs:
        model = f"{model} from {listed(recipe.model.inputs)} on"
    if recipe.model.outputs:
        model = f"{model} up to {listed(recipe.model.outputs)}"
    return model if recipe.variant is None else f"the variant '{recipe.variant.name}' of {model}"


def _write(recipe: Recipe, path: Path) -> tuple[str, ...]:
    """Writes the file; what was changed of the model, in sentences. Raises BoltError, OSError."""
    # The zoo loads onnx: models that are there already need it not.
    from bolt_build.graph import zoo

    variant = recipe.variant
    if variant is None:
        if recipe.model.zoo is not None:
            zoo.write(recipe.model.zoo, path)
        else:
            _save_model(_changed(_load_model(recipe), recipe), recipe, path)
        return ()
    # Variants load onnx: models that are there already need it not.
    from bolt_build.graph.variants import vary
    from bolt_build.graph.variants.mistake import VariantError

    told_of: list[str] = []

    def change(model: ModelProto, *, draw: bool) -> ModelProto:
        found = vary(model, variant, recipe.model.largest, draw=draw)
        told_of.extend(found.changes)
        return found.model

    try:
        if recipe.model.zoo is not None:
            zoo.write(recipe.model.zoo, path, lambda model: change(model, draw=False))
        else:
            _save_model(change(_changed(_load_model(recipe), recipe), draw=True), recipe, path)
    except VariantError as error:
        raise BoltError(
            Diagnostic(each.code, each.message, recipe.mark(f"variants.{variant.name}.{each.key}"), each.hint)
            for each in error.mistakes
        ) from error
    return tuple(told_of)


def _load_model(recipe: Recipe) -> ModelProto:
    """The recipe's own ONNX file, with its external data. Raises BoltError where the importer would not take it."""
    # It takes 0.2 s to import: models that are there already need it not.
    import onnx
    from onnx.external_data_helper import load_external_data_for_model

    from bolt_build.graph.onnx_import import load_model

    assert recipe.model.onnx is not None
    path = Path(recipe.model.onnx)
    with marked(recipe):
        load_model(path)  # says what is wrong with the file better than onnx does
    model = onnx.load(str(path), load_external_data=False)
    with utf8_folder(path.parent) as folder:
        load_external_data_for_model(model, folder)
    return model


def _changed(model: ModelProto, recipe: Recipe) -> ModelProto:
    """The model with the recipe's inputs and outputs. Raises BoltError where these do not fit it."""
    model = _without_empty(_fixed(model, recipe), recipe)
    if not recipe.model.inputs and not recipe.model.outputs:
        return model
    # As variants.
    from bolt_build.graph.onnx_model.rewired import EndError, rewired

    try:
        return rewired(model, recipe.model.inputs, recipe.model.outputs)
    except EndError as error:
        raise BoltError(
            Diagnostic(f"bad-{each.key.removesuffix('s')}", each.message, recipe.mark(f"model.{each.key}"), each.hint)
            for each in error.mistakes
        ) from error


def _fixed(model: ModelProto, recipe: Recipe) -> ModelProto:
    """The model with its fixed inputs as constants. Raises BoltError where the values do not fit it."""
    if not recipe.model.fixed:
        return model
    # As variants.
    from bolt_build.graph.onnx_model.fixed_inputs import FixedError, fix_inputs

    try:
        return fix_inputs(model, recipe.model.fixed, dict(recipe.model.largest) | dict.fromkeys(recipe.model.empty, 0))
    except FixedError as error:
        raise BoltError(
            Diagnostic("bad-fixed-input", each.message, recipe.mark(f"model.fixed.{each.name}"), each.hint)
            for each in error.mistakes
        ) from error


def _without_empty(model: ModelProto, recipe: Recipe) -> ModelProto:
    """The model without the inputs that have no elements. Raises BoltError where no input would be left."""
    if not recipe.model.empty:
        return model
    # As variants.
    from bolt_build.graph.onnx_model.empty_inputs import without_empty
    from bolt_build.graph.onnx_model.fixed_inputs import FixedError

    try:
        return without_empty(model, recipe.model.empty, dict(recipe.model.largest))
    except FixedError as error:
        raise BoltError(
            Diagnostic("bad-empty-input", each.message, recipe.mark(f"model.dims.{each.name}"), each.hint)
            for each in error.mistakes
        ) from error


def _save_model(model: ModelProto, recipe: Recipe, path: Path) -> None:
    size = model.ByteSize()
    if size > _MOST_BYTES:
        message = f"{_named(recipe)} has {size} bytes, more than one ONNX file can hold"
        raise BoltError([Diagnostic("model-too-large", message, recipe.mark("model.onnx"))])
    path.write_bytes(model.SerializeToString(deterministic=True))


def _load(directory: RecipeDirectory) -> _Stamp | None:
    try:
        return decode(_Stamp, json.loads(read_text(directory.zoo_stamp)))
    except (OSError, ValueError):
        return None


def _save(directory: RecipeDirectory, found: _Stamp) -> FileStamp:
    with told(directory.zoo_stamp):
        write_text(directory.zoo_stamp, json.dumps(encode(found), indent=1) + "\n")
    return found.file
