"""Many small graphs as one engine: planned, emitted, compiled and run once instead of many times."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bolt_build import emulator, runtime
from bolt_build.emit.engine import emit
from bolt_build.emit.weights import write_weights
from bolt_build.families import load
from bolt_build.families.base import Family
from bolt_build.graph.ir import Graph, graph_of
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.runtime import names
from bolt_build.runtime.loader import Engine
from bolt_build.schema.load import load_recipe
from bolt_build.targets import HOST, Target
from bolt_build.toolchain import Tool, probe

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

NAME = "merged"
_RECIPE = "bolt: 1\nname: {name}\nmodel: {{onnx: merged.onnx}}\ntargets: {{{target}: {{precision: fp32}}}}\n"
_CXX_FLAGS = ("-std=c++17", "-Wno-c++20-extensions", "-fPIC", "-fvisibility=hidden")
_NVCC_FLAGS = ("-std=c++17", "-Xcompiler", "-fPIC,-fvisibility=hidden")
_ONCE = "-O0"
"""The C++ compiler optimises nothing, unlike for engines: these run once."""


def merged(graphs: Sequence[Graph]) -> Graph:
    """All of `graphs` side by side. What is called `x` in the third is called `2/x` here."""

    def all_of(index: int, items: Sequence[str]) -> tuple[str, ...]:
        return tuple(f"{index}/{item}" for item in items)

    inputs, outputs, values, nodes = [], [], [], []
    for index, graph in enumerate(graphs):
        inputs += all_of(index, graph.inputs)
        outputs += all_of(index, graph.outputs)
        values += [replace(value, name=f"{index}/{value.name}") for value in graph.values]
        nodes += [
            replace(
                node, name=f"{index}/{node.name}", inputs=all_of(index, node.inputs),
                outputs=all_of(index, node.outputs), covers=all_of(index, node.covers),
            )
            for node in graph.nodes
        ]  # fmt: skip
    return graph_of(NAME, 1, inputs, outputs, values, nodes)


class Workshop:
    """A folder in which engines are made; what all of them share is compiled once."""

    def __init__(
        self, folder: Path, families: Sequence[Family] | None = None, target: Target = HOST, *, emulated: bool = False
    ) -> None:
        """`families`: those of `target` where None. `emulated`: for the emulated GPU instead of the target's.

        Raises BoltError where a tool is missing or the recipe cannot be read."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "merged.onnx").touch()
        (folder / "merged.yaml").write_text(_RECIPE.format(name=NAME, target=target.name))
        self.folder, self._target, self._emulated = folder, target, emulated
        self.families = load(target) if families is None else families
        self._recipe = load_recipe(folder / "merged.yaml")
        self._shared: tuple[Path, ...] | None = None

    def planned(self, graph: Graph) -> PlannedEngine:
        """Raises BoltError with every node that no family has a kernel for."""
        return plan_engine([graph], self._recipe, self._recipe.targets[0], self._target, self.families)

    def built(self, graph: Graph, name: str) -> Path:
        """The folder of an engine for `graph`. Raises BoltError, and RuntimeError with what the compiler says."""
        return self.linked(self.written(graph, name))

    def written(self, graph: Graph, name: str) -> Path:
        """A new folder with the sources and weights of an engine for `graph`. Raises BoltError."""
        planned = self.planned(graph)
        folder = self.folder / name
        folder.mkdir()
        for file in emit(planned.plan, self._target, self.families):
            (folder / file.path).write_text(file.text)
        write_weights(folder / names.weights(NAME), planned.plan, planned.constants)
        return folder

    def linked(self, folder: Path) -> Path:
        """`folder`, with the engine of the sources in it. Raises RuntimeError with what the compiler says."""
        sources = [path for path in sorted(folder.iterdir()) if path.suffix in (".cpp", ".cu")]
        objects = [self._compiled(path, path.with_suffix(".o"), folder) for path in sources]
        exports = f"version-script={folder / names.EXPORTS}"
        library = folder / names.library(NAME)
        if self._emulated:
            words = [self._nvcc, "-shared", "-Xlinker", f"--{exports}", *emulator.link_flags(self._runtime)]
        else:
            libraries = (part for tool in self._tools for place in tool.library_dirs for part in _library(place))
            words = [self._cxx, "-shared", f"-Wl,--{exports}", *libraries]
        ends = () if self._emulated else self._target.link_flags
        _run(*words, "-o", library, *objects, *self.shared(), *ends)
        return folder

    def shared(self) -> tuple[Path, ...]:
        """Objects of what is in every engine, compiled when they are first asked for."""
        if self._shared is None:
            sources = [
                *runtime.sources(self._target.where), *(path for family in self.families for path in family.sources)
            ]  # fmt: skip
            with ThreadPoolExecutor(2) as pool:
                objects = pool.map(
                    lambda path: self._compiled(path, self.folder / f"{path.parent.name}_{path.stem}.o"), sources
                )
                self._shared = tuple(objects)
        return self._shared

    def _compiled(self, source: Path, made: Path, *folders: Path) -> Path:
        places = [runtime.include_dir(), *(family.include_dir for family in self.families), *folders]
        places += [Path(place) for tool in self._tools for place in tool.include_dirs]
        if source.suffix == ".cu":
            flags = emulator.compile_flags(self._target) if self._emulated else self._target.compile_flags
            words = [self._nvcc, *_NVCC_FLAGS, "-ccbin", self._cxx, *flags]
        else:
            words = [self._cxx, *_CXX_FLAGS, *self._target.cxx_flags, _ONCE]
            if self._target.gpu is not None:
                words.append(f"-DBOLT_OVERLAPS={int(self._target.gpu.overlaps)}")
        _run(*words, *(f"-I{place}" for place in places), "-c", source, "-o", made)
        return made

    @functools.cached_property
    def _tools(self) -> list[Tool]:
        """The target's tools that these families need, but the C++ compiler."""
        light = all(family.name == "portable" for family in self.families)  # whose kernels are headers of its own
        needed = [name for name in self._target.tools if name != "cutlass" or not light]
        return [tool for tool in probe(tuple(needed)).tools if tool.name != "cxx"]

    @functools.cached_property
    def _cxx(self) -> str:
        return str(probe(("cxx",)).tool("cxx").path)

    @functools.cached_property
    def _nvcc(self) -> str:
        return next(str(tool.path) for tool in self._tools if tool.name == "nvcc")

    @functools.cached_property
    def _runtime(self) -> Path:
        return emulator.library(emulator.default_folder())


def outputs_of(folder: Path, inputs: Arrays, threads: int = 2) -> dict[str, Array]:
    """What the engine in `folder` computes, in a process of its own. Raises RuntimeError where that ends otherwise."""
    np.savez(folder / "inputs.npz", **_numbered(inputs))
    (folder / "inputs.txt").write_text("\n".join(inputs))
    _run(sys.executable, Path(__file__).resolve(), folder, str(threads))
    found = np.load(folder / "outputs.npz")
    return {name: found[f"arr_{index}"] for index, name in enumerate(_lines(folder / "outputs.txt"))}


def _serve(folder: Path, threads: int) -> None:
    """The other half of `outputs_of`."""
    given = np.load(folder / "inputs.npz")
    engine = Engine(folder / names.library(NAME))
    # NumPy's files know nothing of bfloat16: its bytes come back as what the engine says that they are.
    dtypes = {port.name: port.numpy_dtype for port in engine.inputs(1)}
    inputs = {
        name: given[f"arr_{index}"].view(dtypes[name]) for index, name in enumerate(_lines(folder / "inputs.txt"))
    }
    with engine.create(folder / names.weights(NAME), threads=threads) as model, model.context(1) as context:
        found = context.run(inputs)
    np.savez(folder / "outputs.npz", **_numbered({name: _plain(array) for name, array in found.items()}))
    (folder / "outputs.txt").write_text("\n".join(found))


def _numbered(arrays: Arrays) -> dict[str, Array]:
    """Names of an archive's members: those of tensors may be anything."""
    return {f"arr_{index}": array for index, array in enumerate(arrays.values())}


def _plain(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _lines(path: Path) -> list[str]:
    text = path.read_text()
    return text.split("\n") if text else []


def _library(place: str) -> tuple[str, str]:
    return f"-L{place}", f"-Wl,-rpath,{place}"


def _run(*argv: object) -> None:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]} ended with {done.returncode}: {done.stderr[-3000:]}")


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]))
