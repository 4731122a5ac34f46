"""The ONNX file of a recipe: where it is, and what it held when last looked at."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.files import FileStamp, stamp, untouched
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.planning.written_model import known_base, written_model
from bolt_build.digest import digest
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


def model_file(
    recipe: Recipe,
    directory: RecipeDirectory,
    known: tuple[FileStamp, ...],
    say: Callable[[str], None],
    begin: Callable[[str, float | None], None] | None = None,
) -> ModelFile:
    """The model of `recipe`, written first where it comes from the zoo, is a variant or has inputs that are fixed, and
    is not there yet or not the right one.

    `known` are stamps of an earlier build: files that they match are not read again. `begin` hears that one is being
    written, and how many seconds that took last; `say` does where there is none. Raises BoltError, also with what
    of a variant, or of inputs and outputs, does not fit the model.
    """
    if recipe.writes_model:
        base = () if recipe.model.zoo is not None else _own_files(recipe, known_base(directory))
        return ModelFile((written_model(recipe, base, directory, say, begin),))
    return ModelFile(_own_files(recipe, known))


def _own_files(recipe: Recipe, known: tuple[FileStamp, ...]) -> tuple[FileStamp, ...]:
    """The ONNX file that the recipe names, and its external data."""
    assert recipe.model.onnx is not None
    path = Path(recipe.model.onnx)
    if known and known[0].path == str(path) and all(untouched(file) for file in known):
        return known
    try:
        first = stamp(path)
        same = known and (known[0].path, known[0].digest) == (str(path), first.digest)
        # The same ONNX file names the same external data: it need not be parsed to know them.
        others = tuple(Path(file.path) for file in known[1:]) if same else _external_files(path)
        return (first, *(stamp(file) for file in others))
    except OSError as error:
        mark = recipe.mark("model.onnx")
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise BoltError(
            [Diagnostic("model-unreadable", f"cannot read {error.filename or path}: {reason}", mark, subject=str(path))]
        ) from error


def _external_files(path: Path) -> tuple[Path, ...]:
    """Files of external data that an ONNX file names, that lie in its folder and that exist; none where it cannot be
    read as ONNX.

    What is wrong with the file is the importer's to say.
    """
    # Loads onnx and NumPy: a build that finds nothing changed needs neither.
    from bolt_build.graph.onnx_model.onnx_tensor import external_files

    return external_files(path)
