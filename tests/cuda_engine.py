"""The tiny engine for CUDA: its plans are `tiny_engine`'s, its kernels run on a GPU. Compiling it needs none."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tiny_engine import DATA, FACTS, PlainFamily

from bolt_build import runtime
from bolt_build.emit import names
from bolt_build.emit.engine import emit, emit_runner
from bolt_build.emit.weights import write_weights
from bolt_build.families.base import Candidate, KernelProblem, StepCode, StepExpressions
from bolt_build.graph.ir import Array
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.targets import target_named
from bolt_build.toolchain import Tool, probe

_CXX = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
_NVCC = ("-std=c++17", "-Xcompiler", "-fPIC,-fvisibility=hidden")


class CudaPlainFamily(PlainFamily):
    """Kernels of `data/emit/plain_cuda/kernels.h`."""

    def emit(self, problem: KernelProblem, candidate: Candidate, at: StepExpressions) -> StepCode:
        code = super().emit(problem, candidate, at)
        call = code.call.replace("plain::add(", "plain::add(r, ").replace("plain::relu(", "plain::relu(r, ")
        return StepCode(("plain_cuda/kernels.h",), code.member_type, code.member_arguments, call)


def nvcc() -> Tool:
    """The CUDA compiler; a test that asks for it is skipped where there is none."""
    tool = probe(("nvcc",)).tool("nvcc")
    if tool.problem is not None:
        pytest.skip(f"needs nvcc: {tool.problem}")
    return tool


def build_cuda_engine(directory: Path, plan: EnginePlan, constants: Sequence[Array]) -> Path:
    """Emits, compiles and links `plan` with the runner beside it in `directory`, and writes its weights."""
    tool, target = nvcc(), target_named(plan.target)
    directory.mkdir(parents=True, exist_ok=True)
    files = (*emit(plan, (CudaPlainFamily(),), FACTS), emit_runner(plan))
    for file in files:
        (directory / file.path).write_text(file.text)
    includes = [f"-I{path}" for path in (runtime.include_dir(), runtime.runner_include_dir(), DATA, directory)]
    includes += [f"-isystem{path}" for path in tool.include_dirs]

    def compiled(source: Path) -> Path:
        made = directory / f"{source.stem}.o"
        if source.suffix == ".cu":
            _run(tool.path, *_NVCC, *target.compile_flags, *includes[:4], "-c", source, "-o", made)
        else:
            _run("g++", *_CXX, *includes, "-c", source, "-o", made)
        return made

    objects = [compiled(directory / file.path) for file in files[:-1] if Path(file.path).suffix in (".cpp", ".cu")]
    objects += [compiled(source) for source in runtime.sources("cuda")]
    library = directory / names.library(plan.name)
    folders = [f"-L{path}" for path in tool.library_dirs]
    _run(
        "g++", "-shared", "-Wl,--no-undefined", f"-Wl,--version-script={directory / names.EXPORTS}", "-o", library,
        *objects, *folders, *target.link_flags,
    )  # fmt: skip
    runner = [compiled(source) for source in (directory / "runner.cpp", *runtime.runner_sources())]
    _run("g++", *runner, library, "-Wl,-rpath,$ORIGIN", "-o", directory / names.runner(plan.name))
    write_weights(directory / names.weights(plan.name), plan, constants)
    return library


def _run(*argv: object) -> None:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, argv))}\n{done.stdout}{done.stderr}"
