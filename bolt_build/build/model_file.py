"""The ONNX file of a recipe: where it is, what it held when last looked at, and writing it for a zoo recipe."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.files import FileStamp, stamp, told, write_text
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.own_sources import part_digest
from bolt_build.digest import decode, digest, encode
from bolt_build.errors import BoltError, Diagnostic
from bolt_build.schema.recipe import Recipe


@dataclass(frozen=True)
class ModelFile:
    """The ONNX file and the files of external data that it names; the ONNX file first. Paths are absolute."""

    files: tuple[FileStamp, ...]

    @property
    def path(self) -> Path:
        return Path(self.files[0].path)

    @property
    def digest(self) -> str:
        """Digest of all contents, wherever they lie."""
        return digest([file.digest for file in self.files])

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class _ZooStamp:
    """What `model.onnx` of a recipe's directory was written from."""

    zoo: str
    sources: str
    content: str
    file: FileStamp


def model_file(
    recipe: Recipe, directory: RecipeDirectory, known: tuple[FileStamp, ...], say: Callable[[str], None]
) -> ModelFile:
    """The model of `recipe`, written first where it comes from the zoo and is not there yet or not the right one.

    `known` are stamps of an earlier build: files that they match are not read again. Raises BoltError.
    """
    if recipe.model.zoo is not None:
        return ModelFile((_zoo_model(recipe.model.zoo, directory, say),))
    assert recipe.model.onnx is not None
    path = Path(recipe.model.onnx)
    if known and known[0].path == str(path) and all(_untouched(file) for file in known):
        return ModelFile(known)
    try:
        first = stamp(path)
        same = known and (known[0].path, known[0].digest) == (str(path), first.digest)
        # The same ONNX file names the same external data: it need not be parsed to know them.
        others = tuple(Path(file.path) for file in known[1:]) if same else _external_files(path)
        return ModelFile((first, *(stamp(file) for file in others)))
    except OSError as error:
        mark = recipe.mark("model.onnx")
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise BoltError(
            [Diagnostic("model-unreadable", f"cannot read {error.filename or path}: {reason}", mark, subject=str(path))]
        ) from error


def _untouched(file: FileStamp) -> bool:
    try:
        return file.matches(os.stat(file.path))
    except OSError:
        return False


def _external_files(path: Path) -> tuple[Path, ...]:
    """Files of external data that an ONNX file names and that exist; none where it cannot be read as ONNX.

    What is wrong with the file is the importer's to say.
    """
    import onnx
    from onnx.external_data_helper import _get_all_tensors, uses_external_data

    try:
        model = onnx.load(str(path), load_external_data=False)
        tensors = [tensor for tensor in _get_all_tensors(model) if uses_external_data(tensor)]
    except Exception:  # protobuf's errors have no common base that all versions export
        return ()
    names = {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}
    return tuple(path.parent / name for name in sorted(names) if (path.parent / name).is_file())


def _zoo_model(name: str, directory: RecipeDirectory, say: Callable[[str], None]) -> FileStamp:
    path = directory.zoo_model
    sources = part_digest("zoo")
    known = _zoo_stamp(directory)
    if known is not None and known.zoo == name and _untouched(known.file):
        if known.sources == sources:
            return known.file
        from bolt_build.graph import zoo

        if known.content == zoo.digest(name):
            return _write_zoo_stamp(directory, _ZooStamp(name, sources, known.content, known.file))
    from bolt_build.graph import zoo

    content = zoo.digest(name)
    if known is not None and known.zoo == name and known.content == content and path.is_file():
        found = stamp(path)
        if found.digest == known.file.digest:
            return _write_zoo_stamp(directory, _ZooStamp(name, sources, content, found))
    say(f"writing the zoo's {name} to {path}")
    with told(path):
        directory.path.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(".model.tmp.onnx")
        try:
            zoo.write(name, temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        return _write_zoo_stamp(directory, _ZooStamp(name, sources, content, stamp(path)))


def _zoo_stamp(directory: RecipeDirectory) -> _ZooStamp | None:
    try:
        return decode(_ZooStamp, json.loads(directory.zoo_stamp.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def _write_zoo_stamp(directory: RecipeDirectory, found: _ZooStamp) -> FileStamp:
    with told(directory.zoo_stamp):
        write_text(directory.zoo_stamp, json.dumps(encode(found), indent=1) + "\n")
    return found.file
