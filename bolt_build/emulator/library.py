"""The emulator's CUDA runtime: compiled once, and what compiles and links kernels for it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bolt_build.digest import digest, digest_file
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.own_folders import cache_folder
from bolt_build.scratch import scratch_folder
from bolt_build.targets import Target
from bolt_build.toolchain import probe

SOURCES = Path(__file__).parent / "src"
NAME = "libcudart_emulated.so"
_KEPT = 8
_HALF = "half-made-"
"""How folders begin in which a runtime is made: there, so that it gets its name in one step."""
# A fused product and sum rounds once: the machine fuses them where PTX says so, and nowhere else. With -O3 kernels run
# no faster, and the compiler takes a third longer.
_CXX_FLAGS = ("-std=c++20", "-O2", "-march=x86-64-v3", "-ffp-contract=off", "-fPIC", "-Wall", "-Wextra")


def compile_flags(target: Target) -> tuple[str, ...]:
    """nvcc's, in the place of the target's `compile_flags`: device code stays PTX, as it is.

    Raises ValueError for a target without a GPU.
    """
    if target.gpu is None:
        raise ValueError(f"{target.name} has no GPU")
    real, flags = target.gpu.gencode, target.compile_flags
    at = next(i for i in range(len(flags)) if flags[i : i + len(real)] == real)
    arch = real[1].partition(",")[0].removeprefix("arch=")
    return (*flags[:at], "-gencode", f"arch={arch},code={arch}", "--no-compress", *flags[at + len(real) :])


def link_flags(runtime: Path) -> tuple[str, ...]:
    """nvcc's, with what `library` gave, in the place of the CUDA runtime's."""
    return "-cudart", "none", str(runtime), "-Xlinker", f"-rpath={runtime.parent}"


def cxx_flags() -> tuple[str, ...]:
    """The compiler's, for sources of the emulator. Raises BoltError where there is no CUDA compiler."""
    chain = probe(("nvcc",))
    _require(chain.diagnostics())
    return (*_CXX_FLAGS, *(f"-I{path}" for path in chain.tool("nvcc").include_dirs))


def default_folder() -> Path:
    """Where the user's runtimes and toolkits are kept. Raises BoltError where the user has no cache directory."""
    beside = cache_folder()
    if beside is None:
        raise BoltError(
            [Diagnostic("no-home", "there is no home directory for the cache", hint="set HOME")], ExitCode.USAGE
        )
    return beside / "emulator"


def library(folder: Path) -> Path:
    """The emulator's CUDA runtime, compiled into `folder` unless what its sources say is there already.

    Whoever asks first compiles; others wait. Raises BoltError where a compiler is missing or fails, OSError where the
    folder cannot be written.
    """
    chain = probe(("cxx", "nvcc"))
    _require(chain.diagnostics())
    folder.mkdir(parents=True, exist_ok=True)
    files = [path for path in sorted(SOURCES.iterdir()) if path.suffix in (".h", ".cpp", ".map")]
    contents = [[path.name, digest_file(path)] for path in files]
    tools = [chain.tool("cxx").digest, chain.tool("nvcc").digest]
    place = folder.resolve() / digest([contents, tools, list(_CXX_FLAGS)])[:16]
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            _sweep(folder)
            with tempfile.TemporaryDirectory(prefix=_HALF, dir=folder) as scratch:
                made = Path(scratch) / "made"
                made.mkdir()
                _build(
                    str(chain.tool("cxx").path), [f for f in files if f.suffix == ".cpp"], Path(scratch), made / NAME
                )
                made.rename(place)
            _forget(folder, place)
        os.utime(place)
    return place / NAME


def _sweep(folder: Path) -> None:
    """Removes what a killed process left half made: who has the lock is the only one that makes any."""
    for left in folder.glob(f"{_HALF}*"):
        shutil.rmtree(left, ignore_errors=True)


def _forget(folder: Path, newest: Path) -> None:
    """Removes runtimes but for the last few that were asked for: another checkout may use one."""
    others = [path for path in folder.iterdir() if path.is_dir() and path.name != newest.name]
    for old in sorted(others, key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _require(wrong: Sequence[Diagnostic]) -> None:
    if wrong:
        raise BoltError(list(wrong), ExitCode.TOOL_MISSING)


def _build(cxx: str, sources: Sequence[Path], scratch: Path, target: Path) -> None:
    # Most of the time goes into headers, so all sources are one unit: no two may give a name twice.
    unit = scratch / "unit.cpp"
    unit.write_text("".join(f'#include "{source}"\n' for source in sources), encoding="utf-8")
    options = [f"-soname,{NAME}", f"--version-script={SOURCES / 'exports.map'}", "-z,defs"]
    linker = [f"-Wl,{option}" for option in options]
    _run([cxx, *cxx_flags(), "-shared", *linker, "-o", str(target), str(unit), "-lpthread"])


def _run(command: Sequence[str]) -> None:
    with scratch_folder() as folder:
        own = os.environ | {"TMPDIR": str(folder)}
        done = subprocess.run(command, env=own, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        message = f"the emulator could not be compiled: {done.stderr[:4000]}"
        raise BoltError(
            [Diagnostic("emulator", message, hint="see what `bolt-build doctor` says")], ExitCode.TASK_FAILED
        )
