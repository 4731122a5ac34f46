"""The tiny engine for CUDA: its plans are `tiny_engine`'s, its kernels run on a GPU. Compiling it needs none."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from tiny_engine import DATA, FACTS, TinyFamily, compiled_once

from bolt_build import emulator, runtime, targets
from bolt_build.emit.engine import emit, emit_runner
from bolt_build.emit.weights import write_weights
from bolt_build.families.base import Candidate, KernelProblem, StepCode, StepExpressions
from bolt_build.graph.ir import Array
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.runtime import names
from bolt_build.targets import Target, target_named
from bolt_build.toolchain import Tool, probe

_CXX = ("-std=c++17", "-O0", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
_NVCC = ("-std=c++17", "-Xcompiler", "-fPIC,-fvisibility=hidden")


class CudaTinyFamily(TinyFamily):
    """Kernels of `data/emit/plain_cuda/kernels.h`."""

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        code = super().emit(problem, candidate, target, at)
        call = code.call.replace("plain::add(", "plain::add(r, ").replace("plain::relu(", "plain::relu(r, ")
        return StepCode(("plain_cuda/kernels.h",), code.member_type, code.member_arguments, call)


def soon_compiled(flags: Sequence[str]) -> tuple[str, ...]:
    """nvcc's flags, of which -O3 is for the host alone: compiling what it does takes as long as kernels."""
    return tuple("-O0" if flag == "-O3" else flag for flag in flags)


def for_symbols(target: Target) -> tuple[str, ...]:
    """nvcc's flags for tests that only ask what objects define and need: device code stays PTX, as it comes first."""
    return (*soon_compiled(emulator.compile_flags(target)), "-Ofc=max")


@contextmanager
def built_for_symbols(name: str) -> Iterator[None]:
    """The row of this GPU has these flags, for builds and tunings in this process of which no kernel runs: two thirds
    of the time. `test_attention_products.py` and `test_runtime_cuda.py` compile device code to the end."""
    rows = [replace(row, compile_flags=for_symbols(row)) if row.name == name else row for row in targets._BUILT_IN]
    with mock.patch.object(targets, "_BUILT_IN", tuple(rows)):
        yield


def nvcc() -> Tool:
    """The CUDA compiler; a test that asks for it is skipped where there is none."""
    tool = probe(("nvcc",)).tool("nvcc")
    if tool.problem is not None:
        pytest.skip(f"needs nvcc: {tool.problem}")
    return tool


def build_cuda_engine(directory: Path, plan: EnginePlan, constants: Sequence[Array]) -> Path:
    """Emits, compiles and links `plan` with the runner beside it in `directory`, and writes its weights."""
    directory.mkdir(parents=True, exist_ok=True)
    files = (*emit(plan, target_named(plan.target), (CudaTinyFamily(),), FACTS), emit_runner(plan))
    for file in files:
        (directory / file.path).write_text(file.text)
    for file in files[:-1]:
        if Path(file.path).suffix in (".cpp", ".cu"):
            _compile(directory / file.path, directory, plan)
    for source in runtime.sources("cuda"):
        # What engines of the CPU have too knows nothing of CUDA.
        if source in runtime.sources("cpu"):
            shutil.copy(compiled_once(source), directory / f"{source.stem}.o")
        else:
            _compile(source, directory, plan)
    library = _link(directory, plan)
    runner = [
        _compile(directory / "runner.cpp", directory / "run", plan),
        *map(compiled_once, runtime.runner_sources()),
    ]
    _run("g++", *runner, library, "-Wl,-rpath,$ORIGIN", "-o", directory / names.runner(plan.name))
    write_weights(directory / names.weights(plan.name), plan, constants)
    return library


def build_changed(library: Path, plan: EnginePlan, directory: Path, old: str, new: str) -> Path:
    """The engine of `library` with another text in its tables, and the same weights, in `directory`."""
    beside = (names.EXPORTS, names.weights(plan.name), names.header(plan.name))
    for file in (*library.parent.glob("*.o"), *(library.with_name(name) for name in beside)):
        shutil.copy(file, directory)
    text = library.with_name("engine.cpp").read_text()
    assert old in text
    (directory / "engine.cpp").write_text(text.replace(old, new))
    _compile(directory / "engine.cpp", directory, plan)
    return _link(directory, plan)


def _compile(source: Path, directory: Path, plan: EnginePlan) -> Path:
    tool = nvcc()
    directory.mkdir(exist_ok=True)
    made = directory / f"{source.stem}.o"
    includes = [f"-I{path}" for path in (runtime.include_dir(), runtime.runner_include_dir(), DATA, source.parent)]
    if source.suffix == ".cu":
        flags = soon_compiled(target_named(plan.target).compile_flags)
        _run(tool.path, *_NVCC, *flags, *includes, "-c", source, "-o", made)
    else:
        gpu = target_named(plan.target).gpu
        facts = f"-DBOLT_OVERLAPS={int(gpu is not None and gpu.overlaps)}"
        system = [f"-isystem{path}" for path in tool.include_dirs]
        _run("g++", *_CXX, facts, *includes, *system, "-c", source, "-o", made)
    return made


def _link(directory: Path, plan: EnginePlan) -> Path:
    library = directory / names.library(plan.name)
    folders = [f"-L{path}" for path in nvcc().library_dirs]
    _run(
        "g++", "-shared", "-Wl,--no-undefined", f"-Wl,--version-script={directory / names.EXPORTS}", "-o", library,
        *sorted(directory.glob("*.o")), *folders, *target_named(plan.target).link_flags,
    )  # fmt: skip
    return library


def _run(*argv: object) -> None:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, argv))}\n{done.stdout}{done.stderr}"
