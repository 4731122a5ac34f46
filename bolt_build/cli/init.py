"""`bolt-build init`: a first recipe for a model, with what editors and git want beside it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bolt_build.build.builder import BuildOptions
from bolt_build.build.files import told, write_named, write_text
from bolt_build.cli.common_arguments import count, file_name
from bolt_build.cli.recipe_file import checked_recipe
from bolt_build.cli.schema import schema_text
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.graph import zoo
from bolt_build.graph.onnx_model.binding import batch_symbols, free_symbols
from bolt_build.graph.onnx_model.onnx_file import read_onnx
from bolt_build.schema.editor_schema import SCHEMA_ID
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import Target, all_targets
from bolt_build.toolchain import probe
from bolt_build.toolchain.machine import found_gpus
from bolt_build.user_files import is_utf8, kind_of, shell_word
from bolt_build.wording import many, suggest
from bolt_build.workflows.model_check import ModelCheck, check_model
from bolt_build.workflows.new_recipe import NewRecipe
from bolt_build.workflows.shipped_locks import shipped_lock
from bolt_build.workflows.torch_export import export_function, is_function

_SCHEMA = "recipe.schema.json"
_IGNORED = "generated/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL",
        help="an ONNX file, the name of a zoo model, or package.module:function that returns a torch.nn.Module",
    )  # fmt: skip
    parser.add_argument(
        "--recipe", type=file_name, metavar="FILE.yaml", help="the recipe to write (default: the model's name, here)"
    )
    parser.add_argument(
        "--target", action="append", default=[], metavar="NAME",
        help="build for this target (repeatable; default: the host, and the GPU that is here)",
    )  # fmt: skip
    parser.add_argument(
        "--dim", type=_dim, action="append", default=[], metavar="NAME=SIZE",
        help="the size of a symbolic dimension other than the batch (repeatable)",
    )  # fmt: skip
    parser.add_argument(
        "--input", type=_input, action="append", default=[], metavar="NAME=1x3x224x224",
        help="the shape of a PyTorch module's input, where its function returns no example (repeatable)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Exit code 3 where the model would not build as it is, 7 where a tool is missing. Raises BoltError where nothing
    could be written."""
    targets = _targets(args.target)
    new = _new_recipe(args, targets)
    if os.path.lexists(new.path):
        hint = "go on with it, or name another file with --recipe"
        raise BoltError([Diagnostic("exists", f"{new.path} is there already", hint=hint)], ExitCode.USAGE)
    for path in _write(new):
        sys.stdout.write(f"wrote {path}\n")
    sys.stdout.flush()
    recipe = checked_recipe(new.path)
    # Models of the zoo are known to build.
    check = ModelCheck(recipe, (), ()) if new.onnx is None else check_model(recipe, BuildOptions(), lambda text: None)
    _show(check, new.path)
    lacking = probe(tuple(dict.fromkeys(tool for target in targets for tool in target.tools))).diagnostics()
    if check.wrong or lacking:
        raise BoltError([*check.wrong, *lacking], ExitCode.INVALID if check.wrong else ExitCode.TOOL_MISSING)
    sys.stdout.write(f"build it with: bolt-build {shell_word(new.path)}\n")
    return int(ExitCode.OK)


def _new_recipe(args: argparse.Namespace, targets: Sequence[Target]) -> NewRecipe:
    """Raises BoltError where there is no such model, or what is there is none."""
    specs = tuple(TargetSpec(target.name, target.precisions[0]) for target in targets)
    known = [spec.name for spec in specs]
    others = tuple(TargetSpec(each.name, each.precisions[0]) for each in all_targets() if each.name not in known)
    dims = _dims(args.dim)
    if args.input and not is_function(args.model):
        hint = "leave it out; --dim gives a symbolic dimension its size"
        message = f"--input gives the inputs of a PyTorch module, and '{args.model}' is none"
        raise BoltError([Diagnostic("unused-option", message, hint=hint)], ExitCode.USAGE)
    if args.model in zoo.names() and not os.path.exists(args.model):
        path = args.recipe or Path(f"{args.model}.yaml")
        lock = shipped_lock(args.model, known)
        return NewRecipe(path, None, args.model, "batch", dims, (), specs, others, lock)
    onnx = _exported(args) if is_function(args.model) else Path(args.model)
    if os.path.lexists(onnx) and not os.path.isfile(onnx):
        what = kind_of(onnx) or "a link that leads nowhere"
        raise BoltError([Diagnostic("no-such-model", f"'{onnx}' is {what}, no ONNX file")])
    if not os.path.isfile(onnx):
        near = suggest(
            args.model, [*zoo.names(), *(path.name for path in sorted(Path().glob("*.onnx")) if path.is_file())]
        )
        hint = near or f"an ONNX file, package.module:function, or a model of the zoo: {', '.join(zoo.names())}"
        raise BoltError([Diagnostic("no-such-model", f"there is no model '{args.model}'", hint=hint)])

    if not is_utf8(str(onnx)):
        hint = "rename it: a recipe is UTF-8 text"
        raise BoltError([Diagnostic("no-such-model", f"no recipe can name '{onnx}': its name is not UTF-8", hint=hint)])

    inputs = read_onnx(onnx).inputs
    left = free_symbols(inputs, dict(dims))
    path = args.recipe or Path(f"{onnx.stem}.yaml")
    return NewRecipe(path, onnx, None, next(iter(batch_symbols(inputs, dict(dims))), None), dims, left, specs, others)


def _exported(args: argparse.Namespace) -> Path:
    """The ONNX file of a PyTorch module, written beside the recipe. Raises BoltError where either is there already."""
    name = args.model.rpartition(":")[2].rpartition(".")[2]
    recipe = args.recipe or Path(f"{name}.yaml")
    path = recipe.with_name(f"{recipe.stem}.onnx")
    there = [each for each in (recipe, path) if os.path.lexists(each)]
    if there:
        hint = "go on with it, or name another recipe with --recipe"
        found = [Diagnostic("exists", f"{each} is there already", hint=hint) for each in there]
        raise BoltError(found, ExitCode.USAGE)
    with told(path, "write it to a folder of your own with --recipe FILE.yaml"):
        path.parent.mkdir(parents=True, exist_ok=True)
        export_function(args.model, dict(args.input), path)
    sys.stdout.write(f"wrote {path}\n")
    return path


def _targets(names: Sequence[str]) -> tuple[Target, ...]:
    """The targets of these names; without any, what this machine can run. Raises BoltError ("unknown-target")."""
    targets = all_targets()
    if not names:
        gpus = [gpu.name for gpu in found_gpus()]
        return tuple(each for each in targets if each.gpu is None or any(each.is_device(name) for name in gpus))
    known = [target.name for target in targets]
    there_are = f"there are: {', '.join(known)}"
    wrong = [
        Diagnostic("unknown-target", f"there is no target '{name}'", hint=suggest(name, known) or there_are)
        for name in dict.fromkeys(names)
        if name not in known
    ]
    if wrong:
        raise BoltError(wrong, ExitCode.USAGE)
    return tuple(target for target in targets if target.name in names)


def _write(new: NewRecipe) -> list[Path]:
    """The recipe, its schema, a lock that bolt-build has for it, and a line for git, each whole or not at all; the
    files that were written."""
    folder = new.path.parent
    schema, ignore = folder / _SCHEMA, folder / ".gitignore"
    written = [new.path]
    with told(new.path, "write it to a folder of your own with --recipe FILE.yaml"):
        folder.mkdir(parents=True, exist_ok=True)
        if _is_ours(schema) and _text(schema) != schema_text():
            write_named(schema, schema_text())
            written.append(schema)
        lines = _text(ignore).splitlines()
        if not {_IGNORED, f"/{_IGNORED}", _IGNORED.rstrip("/")} & set(lines):
            write_named(ignore, "".join(f"{line}\n" for line in [*lines, _IGNORED]))
            written.append(ignore)
        if new.lock is not None:
            if os.path.lexists(new.lock_path):
                hint = "move it away, or name another recipe with --recipe"
                message = f"{new.lock_path} is there already"
                raise BoltError([Diagnostic("exists", message, hint=hint)], ExitCode.USAGE)
            write_text(new.lock_path, new.lock.read_text(encoding="utf-8"))
            written.append(new.lock_path)
        write_text(new.path, new.text(_SCHEMA))
    return written


def _is_ours(schema: Path) -> bool:
    """True where the schema is not there, or is one that bolt-build wrote."""
    if not os.path.lexists(schema):
        return True
    try:
        return bool(json.loads(_text(schema)).get("$id") == SCHEMA_ID)
    except (ValueError, AttributeError):
        return False


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape") if path.is_file() else ""


def _show(check: ModelCheck, path: Path) -> None:
    for size in check.sizes:
        sys.stdout.write(f"{path}: {size.target}: can be planned, {many(size.steps, 'step')}\n")
    sys.stdout.flush()


def _dims(given: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Raises BoltError where one has two sizes."""
    sizes = dict(given)
    for name, size in given:
        if size != sizes[name]:
            message = f"--dim gives '{name}' two sizes, {size} and {sizes[name]}"
            hint = f"give it one; the recipe may list several: dims: {{{name}: [{size}, {sizes[name]}]}}"
            raise BoltError([Diagnostic("two-sizes", message, hint=hint)], ExitCode.USAGE)
    return tuple(sizes.items())


def _dim(text: str) -> tuple[str, int]:
    name, equals, size = text.rpartition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"'{text[:40]}' is no NAME=SIZE")
    return name, count(size)


def _input(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, shape = text.rpartition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"'{text[:40]}' is no NAME=SHAPE, such as x=1x3x224x224")
    return name, tuple(count(extent) for extent in shape.split("x"))
