"""A CUDA toolkit and a driver for a machine without a GPU, made of the real compiler and the emulator: what bolt-build
builds for the H200 with them runs here, and so does what it builds for earlier GPUs, whose engines include PTX.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path

from bolt_build.digest import digest
from bolt_build.emulator.library import library
from bolt_build.toolchain import probe

# Machine code of the H200 becomes PTX, and PTX is not compressed. What the host does in files of kernels is not
# optimised: it takes as long to compile as the kernels, and how long engines take is not asked here. bolt-build also
# asks the compiler for its place. The runtime's name is there for the compiler's digest: what was built with another
# runtime is built again.
_NVCC = """\
#!/bin/sh
# {runtime}
for word do
  shift
  case "$word" in
    --dryrun) echo '#$ TOP={home}'; exit;;
    *code=sm_90a) set -- "$@" "${{word%code=sm_90a}}code=compute_90a" --no-compress;;
    -O3) set -- "$@" -O0;;
    *,code=*) set -- "$@" "$word" --no-compress;;
    *) set -- "$@" "$word";;
  esac
done
exec {nvcc} "$@"
"""
_MARK = "BOLT_EMULATED"


def environment(folder: Path) -> dict[str, str]:
    """The variables that take both into use, for a process that begins with them. Both are made in `folder`.

    Raises what `library` raises.
    """
    if in_use():
        return {name: os.environ[name] for name in (_MARK, "CUDACXX", "LD_LIBRARY_PATH")}
    runtime = library(folder)
    tool = probe(("nvcc",)).tool("nvcc")
    home = runtime.parent / f"toolkit-{digest([_NVCC, tool.path, tool.include_dirs[0]])[:8]}"
    if not home.exists():
        with tempfile.TemporaryDirectory(dir=runtime.parent) as scratch:
            made = Path(scratch) / "toolkit"
            for name in ("bin", "lib"):
                (made / name).mkdir(parents=True)
            (made / "include").symlink_to(tool.include_dirs[0])
            script = _NVCC.format(runtime=runtime, home=home, nvcc=shlex.quote(str(tool.path)))
            (made / "bin" / "nvcc").write_text(script, encoding="utf-8")
            (made / "bin" / "nvcc").chmod(0o755)
            # A linker takes a text of this kind where it looks for the archive.
            (made / "lib" / "libcudart_static.a").write_text(f"INPUT({runtime})\n", encoding="utf-8")
            (made / "lib" / "libcuda.so.1").symlink_to(runtime)
            try:
                made.rename(home)
            except OSError:
                if not home.exists():  # else another process was first
                    raise
    found = [str(home / "lib"), str(runtime.parent), *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)]
    folders = os.pathsep.join(part for part in found if part)
    return {_MARK: "1", "CUDACXX": str(home / "bin" / "nvcc"), "LD_LIBRARY_PATH": folders}


def in_use() -> bool:
    """Whether this process began with what `environment` gave."""
    return _MARK in os.environ
