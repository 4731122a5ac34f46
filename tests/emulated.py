"""Kernels without a GPU: compiled to PTX alone, and linked with a CUDA runtime that runs it on the CPU.

What they compute and where they write can be tested so; the time that they take cannot.

EMULATED_SEED=1 has warps, copies and products take turns at random, another number otherwise at random.
EMULATED_MULTIPROCESSORS says how many the device has.

python tests/emulated.py [FOLDER]   (builds the runtime and prints where it is)
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bolt_build.digest import digest, digest_file
from bolt_build.targets import target_named
from bolt_build.toolchain import probe

SOURCES = Path(__file__).parent / "emulator"
TARGET = target_named(os.environ.get("BOLT_GPU_TARGET", "h200"))
_NAME = "libcudart_emulated.so"
# A fused product and sum rounds once: the machine fuses them where PTX says so, and nowhere else.
_CXX_FLAGS = ("-std=c++20", "-O2", "-march=x86-64-v3", "-ffp-contract=off", "-fPIC", "-Wall", "-Wextra")


def compile_flags() -> tuple[str, ...]:
    """nvcc's, in the place of the target's `compile_flags`: device code stays PTX, as it is."""
    assert TARGET.gpu is not None
    real = TARGET.gpu.gencode
    flags = TARGET.compile_flags
    at = next(i for i in range(len(flags)) if flags[i : i + len(real)] == real)
    arch = real[1].partition(",")[0].removeprefix("arch=")
    return (*flags[:at], "-gencode", f"arch={arch},code={arch}", "--no-compress", *flags[at + len(real) :])


def link_flags(runtime: Path) -> tuple[str, ...]:
    """nvcc's, with what `library` gave, in the place of the CUDA runtime's."""
    return "-cudart", "none", str(runtime), "-Xlinker", f"-rpath={runtime.parent}"


def cxx_flags() -> tuple[str, ...]:
    """The compiler's, for sources of the emulator."""
    return (*_CXX_FLAGS, *(f"-I{path}" for path in probe(("nvcc",)).tool("nvcc").include_dirs))


def library(folder: Path | None = None) -> Path:
    """The emulator's CUDA runtime, compiled into `folder` unless what its sources say is there already.

    Whoever asks first compiles; others wait. Raises AssertionError with the compiler's words.
    """
    chain = probe(("cxx", "nvcc"))
    assert chain.diagnostics() == ()
    folder = folder or Path(tempfile.gettempdir()) / f"emulated-cuda-{os.getuid()}"
    folder.mkdir(parents=True, exist_ok=True)
    files = [path for path in sorted(SOURCES.iterdir()) if path.suffix in (".h", ".cpp", ".map")]
    contents = [[path.name, digest_file(path)] for path in files]
    tools = [chain.tool("cxx").digest, chain.tool("nvcc").digest]
    place = folder / digest([contents, tools, list(_CXX_FLAGS)])[:16]
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                made = Path(scratch) / "made"
                made.mkdir()
                sources = [path for path in files if path.suffix == ".cpp"]
                _build(str(chain.tool("cxx").path), sources, Path(scratch), made / _NAME)
                made.rename(place)
    return place / _NAME


def _build(cxx: str, sources: Sequence[Path], scratch: Path, target: Path) -> None:
    flags = cxx_flags()

    def compiled(source: Path) -> Path:
        made = scratch / f"{source.stem}.o"
        _run([cxx, *flags, "-c", str(source), "-o", str(made)])
        return made

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects = [str(path) for path in pool.map(compiled, sources)]
    options = [f"-soname,{_NAME}", f"--version-script={SOURCES / 'exports.map'}", "-z,defs"]
    linker = [f"-Wl,{option}" for option in options]
    _run([cxx, "-shared", *linker, "-o", str(target), *objects, "-lpthread"])


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


if __name__ == "__main__":
    print(library(Path(sys.argv[1]) if sys.argv[1:] else None))
