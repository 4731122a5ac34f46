"""Kernels of the tests for the emulated GPU: where its runtime is, and how they are compiled and linked."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest import mock

import gpu_harness
import numpy as np
import pytest
from cuda_engine import soon_compiled
from families_harness import Layer
from gpu_harness import TARGET, Library, Outcome, Trial, compile_all, write
from shared_folders import SharedFolder

from bolt_build import emulator
from bolt_build.graph.ir import Array
from bolt_build.toolchain import probe

PROBES = Path(__file__).parents[1] / "data" / "emulator"


def _folder() -> Path:
    own = emulator.default_folder()
    if os.access(next(path for path in (own, *own.parents) if path.exists()), os.W_OK):
        return own
    return Path(tempfile.gettempdir()) / f"bolt-emulator-{os.getuid()}"


FOLDER = _folder()
"""The user's own, where it can be written: compiling the runtime takes half a minute."""


def cache_with_runtime(home: Path) -> Path:
    """The run's cache, with the runtime where `bolt-build emulate` looks: engines' objects are compiled once a run."""
    emulator.library(FOLDER)
    cache = home / "bolt-build"
    cache.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (cache / "emulator").symlink_to(FOLDER)
    return cache


def compile_flags() -> tuple[str, ...]:
    return soon_compiled(emulator.compile_flags(TARGET))


# Of kernels that are headers: half the time, and they run as fast. Others keep in registers what products still write.
SOON_COMPILED = ("-Ofc=mid",)


def link_flags() -> tuple[str, ...]:
    return emulator.link_flags(emulator.library(FOLDER))


def kernel_library(
    name: str, trials: Callable[[], list[Trial]], shared_folder: SharedFolder, calls: Sequence[str] = ()
) -> Library:
    """These trials for the emulated GPU, compiled once a run of the tests. `calls` are further flags of kernels
    that are headers alone."""
    chain = probe(("cxx", "nvcc", "cutlass"))
    nvcc, cutlass = chain.tool("nvcc").path, chain.tool("cutlass").path
    if nvcc is None or cutlass is None:
        pytest.skip(f"needs nvcc and CUTLASS: {[diagnostic.message for diagnostic in chain.diagnostics()]}")
    with shared_folder(name) as folder:
        if not (folder / "kernels.so").exists():
            write(trials(), folder, few=True)
            compile_all(folder, Path(nvcc), Path(cutlass).parent, compile_flags(), link_flags(), calls)
    return Library(folder)


def outcome_of(library: Library, index: int, values: Callable[[Layer], list[Array]]) -> Outcome:
    """A trial with inputs of its layer of one's own."""
    library.forget()
    with mock.patch.object(gpu_harness, "values_of", values), np.errstate(invalid="ignore"):
        outcome = library.run(index)
    library.forget()
    return outcome


def with_numbers_that_are_none(inputs: list[Array], seed: int, parts: Sequence[float]) -> list[Array]:
    """The first of the inputs with zeros of both signs, NaN and both infinities at random places: each of these and
    those behind it have one of `parts` of it."""
    first = inputs[0]
    chance = np.random.default_rng(seed).random(first.shape)
    for value, below in zip((0.0, -0.0, np.nan, np.inf, -np.inf), parts, strict=True):
        first = np.where(chance < below, value, first).astype(first.dtype)
    return [first, *inputs[1:]]


def probe_program(name: str, shared_folder: SharedFolder, *own: str) -> Path:
    """The program of `<name>_probe.cu`, linked with the emulator and compiled once a run of the tests, with the flags
    `own` too."""
    tool = probe(("nvcc",)).tool("nvcc")
    if tool.path is None:
        pytest.skip(f"needs nvcc: {tool.problem}")
    # What is compared with the host to the bit is not to be contracted on either side.
    flags = (*own, "-std=c++17", "-fmad=false", "-Xcompiler", "-ffp-contract=off", "-Wno-deprecated-gpu-targets")
    with shared_folder(f"emulator-{name}") as folder:
        made = folder / "probe"
        if not made.exists():
            words = [*flags, *compile_flags(), *link_flags(), str(PROBES / f"{name}_probe.cu"), "-o", str(made)]
            subprocess.run([str(tool.path), *words], check=True)
    return made
