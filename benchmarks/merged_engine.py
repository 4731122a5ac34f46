"""Many small graphs as one engine of the host: planned, emitted, compiled and run once instead of many times."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bolt_build import runtime
from bolt_build.emit.engine import emit
from bolt_build.emit.weights import write_weights
from bolt_build.families import load
from bolt_build.families.base import Family
from bolt_build.graph.ir import Graph, graph_of
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.runtime import names
from bolt_build.runtime.loader import Engine
from bolt_build.schema import load_recipe
from bolt_build.targets import HOST
from bolt_build.toolchain import Tool, probe

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

NAME = "merged"
_RECIPE = f"bolt: 1\nname: {NAME}\nmodel: {{onnx: merged.onnx}}\ntargets: {{host: {{precision: fp32}}}}\n"
_FLAGS = ("-std=c++20", "-fPIC", "-fvisibility=hidden", *HOST.cxx_flags, "-O1")
"""Less than engines are optimised by: these run once."""


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

    def __init__(self, folder: Path, families: Sequence[Family] | None = None) -> None:
        """`families`: those of the host where None.

        Raises BoltError where a tool is missing or the recipe cannot be read."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "merged.onnx").touch()
        (folder / "merged.yaml").write_text(_RECIPE)
        self.folder = folder
        self.families = load(HOST) if families is None else families
        self._recipe = load_recipe(folder / "merged.yaml")
        self._tools = [tool for tool in probe(HOST.tools).tools if tool.name != "cxx"]
        self._cxx = str(probe(("cxx",)).tool("cxx").path)
        shared = [*runtime.sources(HOST.where), *(path for family in self.families for path in family.sources)]
        with ThreadPoolExecutor(2) as pool:
            objects = pool.map(lambda path: self._compiled(path, folder / f"{path.parent.name}_{path.stem}.o"), shared)
            self._shared = tuple(objects)

    def planned(self, graph: Graph) -> PlannedEngine:
        """Raises BoltError with every node that no family has a kernel for."""
        return plan_engine([graph], self._recipe, self._recipe.targets[0], HOST, self.families)

    def built(self, graph: Graph, name: str) -> Path:
        """The folder of an engine for `graph`. Raises BoltError, and RuntimeError with what the compiler says."""
        planned = self.planned(graph)
        folder = self.folder / name
        folder.mkdir()
        for file in emit(planned.plan, HOST, self.families):
            (folder / file.path).write_text(file.text)
        objects = [self._compiled(path, path.with_suffix(".o"), folder) for path in sorted(folder.glob("*.cpp"))]
        exports = f"-Wl,--version-script={folder / names.EXPORTS}"
        libraries = [part for tool in self._tools for place in tool.library_dirs for part in _library(tool, place)]
        library = folder / names.library(NAME)
        _run(self._cxx, "-shared", "-o", library, exports, *objects, *self._shared, *libraries, *HOST.link_flags)
        write_weights(folder / names.weights(NAME), planned.plan, planned.constants)
        return folder

    def _compiled(self, source: Path, made: Path, *folders: Path) -> Path:
        places = [runtime.include_dir(), *(family.include_dir for family in self.families), *folders]
        places += [Path(place) for tool in self._tools for place in tool.include_dirs]
        _run(self._cxx, *_FLAGS, *(f"-I{place}" for place in places), "-c", source, "-o", made)
        return made


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


def _library(tool: Tool, place: str) -> tuple[str, str]:
    return f"-L{place}", f"-Wl,-rpath,{place}"


def _run(*argv: object) -> None:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]} ended with {done.returncode}: {done.stderr[-3000:]}")


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]))
