"""Headers of kernels that have nothing of a GPU in them, called from tests through a small library."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterable
from pathlib import Path

WARNINGS = ("-Wall", "-Wextra", "-Werror")


def library_of(
    folder: Path, program: str, includes: Iterable[Path], flags: Iterable[str] = ("-O1", *WARNINGS), cuda: str = ""
) -> ctypes.CDLL:
    """Compiles a program, C++17 unless flags say otherwise, as a library in the folder, and opens it. `cuda` is what it
    finds as CUDA's header. Raises CalledProcessError where it does not compile."""
    source, library = folder / "program.cpp", folder / "program.so"
    source.write_text(program)
    if cuda:
        (folder / "cuda_runtime.h").write_text(cuda)
    found = (f"-I{path}" for path in (folder, *includes))
    subprocess.run(["g++", "-std=c++17", "-shared", "-fPIC", *flags, *found, source, "-o", library], check=True)
    return ctypes.CDLL(str(library))
