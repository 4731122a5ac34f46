"""Kernels of the tests for the emulated GPU: where its runtime is, and how they are compiled and linked."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from cuda_engine import soon_compiled
from gpu_harness import TARGET

from bolt_build import emulator

PROBES = Path(__file__).parent / "data" / "emulator"


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


def link_flags() -> tuple[str, ...]:
    return emulator.link_flags(emulator.library(FOLDER))
