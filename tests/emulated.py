"""Kernels of the tests for the emulated GPU: where its runtime is, and how they are compiled and linked."""

from __future__ import annotations

from pathlib import Path

from gpu_harness import TARGET

from bolt_build import emulator

PROBES = Path(__file__).parent / "data" / "emulator"
FOLDER = emulator.default_folder()
"""The user's own: compiling the runtime takes half a minute."""


def compile_flags() -> tuple[str, ...]:
    return emulator.compile_flags(TARGET)


def link_flags() -> tuple[str, ...]:
    return emulator.link_flags(emulator.library(FOLDER))
