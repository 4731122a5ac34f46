"""Engines built the real way, from a recipe and an ONNX file to the verification's report, in this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import onnx
from soon_compiled import emitted_soon_compiled

from bolt_build.build.builder import BuildOptions, build
from bolt_build.build.events import TaskEvent
from bolt_build.build.planning.engine_file import read_engine
from bolt_build.build.result import BuildResult
from bolt_build.build.staleness.estimate import Outlook
from bolt_build.digest import decode
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.report.progress import failure_text
from bolt_build.runtime import names
from bolt_build.schema.load import load_recipe
from bolt_build.verify import VerifyReport


class Silence:
    """A `Listener` that shows nothing."""

    def say(self, text: str) -> None: ...

    def stage(self, text: str, expected: float | None) -> None: ...

    def start(self, outlook: Outlook) -> None: ...

    def event(self, event: TaskEvent) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Built:
    """A finished build of the host target."""

    name: str
    result: BuildResult

    @property
    def directory(self) -> Path:
        return self.result.targets[0].directory.path

    @property
    def library(self) -> Path:
        return self.directory / names.library(self.name)

    @property
    def weights(self) -> Path:
        return self.directory / names.weights(self.name)

    @cached_property
    def plan(self) -> EnginePlan:
        return read_engine((self.directory / "engine.json").read_text(encoding="utf-8"))

    @cached_property
    def report(self) -> VerifyReport:
        return decode(VerifyReport, json.loads((self.directory / "verify.json").read_text(encoding="utf-8")))

    @property
    def complaints(self) -> list[str]:
        """Everything that went wrong, in words; nothing where the engine is built and agrees."""
        failed = [failure_text(self.result)] if self.result.failed else []
        found = [d.message for d in self.result.diagnostics]
        return [*failed, *found] or [p.message for p in self.report.problems if p.severity == "error"]

    @property
    def first_departures(self) -> list[str | None]:
        """For each batch the name of the first layer that departs, None where all agree."""
        departures = [batch.first_departure for batch in self.report.batches]
        return [None if layer is None else layer.name for layer in departures]


def build_engine(
    folder: Path,
    name: str,
    model: onnx.ModelProto | Path,
    cache: Path,
    *,
    batch: Sequence[int] = (1,),
    precision: str = "fp32",
    samples: int = 1,
    dims: Mapping[str, Sequence[int]] = MappingProxyType({}),
    shipped: bool = False,
) -> Built:
    """Writes model and recipe to `folder` and builds the recipe's host engine in `folder`/generated.

    A path is taken as the model's own file and not copied. Without a `batch` the recipe leaves it to the model. What is
    emitted is compiled with -O0, half the time; where engines are to be as they are `shipped`, with their flags.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = model if isinstance(model, Path) else folder / f"{name}.onnx"
    if not isinstance(model, Path):
        onnx.save(model, str(path))
    recipe = folder / f"{name}.yaml"
    batches = f", batch: {list(batch)}" if batch else ""
    extents = f", dims: {{{', '.join(f'{dim}: {list(each)}' for dim, each in dims.items())}}}" if dims else ""
    recipe.write_text(
        f"bolt: 1\nname: {name}\nmodel: {{onnx: {path}{batches}{extents}}}\n"
        f"targets: {{host: {{precision: {precision}}}}}\nverify: {{samples: {samples}}}\n",
        encoding="utf-8",
    )
    options = BuildOptions(output=folder / "generated", cache=cache)
    with nullcontext() if shipped else emitted_soon_compiled():
        return Built(name, build(load_recipe(recipe), options, Silence()))


@contextmanager
def passing_engine(
    folder: Path,
    name: str,
    model: onnx.ModelProto | Path,
    cache: Path,
    *,
    batch: Sequence[int] = (1,),
    samples: int = 1,
    dims: Mapping[str, Sequence[int]] = MappingProxyType({}),
    shipped: bool = False,
) -> Iterator[Built]:
    """The same, for an engine that must agree. What was built is removed afterwards: it ships a library of 55 MB."""
    built = build_engine(folder, name, model, cache, batch=batch, samples=samples, dims=dims, shipped=shipped)
    assert built.complaints == []
    assert built.result.exit_code == 0
    assert built.report.ok
    yield built
    shutil.rmtree(folder)


def edited(source: Path, into: Path, *changes: tuple[str, str, str]) -> Path:
    """A copy of the folder `source` in which (file, old text, new text) are replaced, each once."""
    shutil.copytree(source, into)
    for name, old, new in changes:
        text = (into / name).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{name} has no longer one '{old}'"
        (into / name).write_text(text.replace(old, new), encoding="utf-8")
    return into
