"""A CUDA toolkit and a driver for a machine without a GPU, made of the real compiler and the emulator: what bolt-build
builds for the H200 with them runs here, and so does what it builds for earlier GPUs, whose engines include PTX.

python tests/emulated_toolkit.py COMMAND...   runs the command with them: pytest -m gpu, or bolt-build itself
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import emulated

from bolt_build.toolchain import probe

# Machine code of the H200 becomes PTX, and PTX is not compressed. bolt-build also asks the compiler for its place.
_NVCC = """\
#!/bin/sh
# {runtime}
for word do
  shift
  case "$word" in
    --dryrun) echo '#$ TOP={home}'; exit;;
    *code=sm_90a) set -- "$@" "${{word%code=sm_90a}}code=compute_90a" --no-compress;;
    *,code=*) set -- "$@" "$word" --no-compress;;
    *) set -- "$@" "$word";;
  esac
done
exec {nvcc} "$@"
"""


def environment(folder: Path | None = None) -> dict[str, str]:
    """The variables that take both into use. The toolkit lies beside the runtime that `emulated.library` compiles."""
    runtime = emulated.library(folder)
    home = runtime.parent / "toolkit"
    tool = probe(("nvcc",)).tool("nvcc")
    assert tool.problem is None, tool.problem
    if not home.exists():
        made = runtime.parent / f"toolkit.{os.getpid()}"
        for name in ("bin", "lib"):
            (made / name).mkdir(parents=True)
        (made / "include").symlink_to(tool.include_dirs[0])
        script = _NVCC.format(runtime=runtime, home=home, nvcc=shlex.quote(str(tool.path)))
        (made / "bin" / "nvcc").write_text(script)
        (made / "bin" / "nvcc").chmod(0o755)
        # A linker takes a text of this kind where it looks for the archive.
        (made / "lib" / "libcudart_static.a").write_text(f"INPUT({runtime})\n")
        (made / "lib" / "libcuda.so.1").symlink_to(runtime)
        try:
            made.rename(home)
        except OSError:  # another test's process was first
            assert home.exists()
    found = [str(home / "lib"), str(runtime.parent), *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)]
    return {"CUDACXX": str(home / "bin" / "nvcc"), "LD_LIBRARY_PATH": os.pathsep.join(part for part in found if part)}


if __name__ == "__main__":
    sys.exit(subprocess.run(sys.argv[1:], env={**os.environ, **environment()}, check=False).returncode)
