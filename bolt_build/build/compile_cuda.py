"""Compiles one CUDA source so that equal sources give equal objects: `compile_cuda.py NVCC SOURCE OBJECT FLAG...`

nvcc writes the path of its source into names that it makes up (those of anonymous namespaces, and of its intermediate
files, with its own process number), and no flag takes it out again. So a source is compiled under a path that follows
from its contents alone. The folder behind that path is this process's own, made for it and removed: it is reached
through a descriptor, as /proc/self/fd/N, which every process reads as its own. nvcc also resolves links in the path, so
the source is a link to memory, which has no path to resolve to. Nothing is shared, and nobody can stand in the way.

Imports nothing of the package: it is a task's command, started once a source.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

MACHINE_FAILED = 75
"""The exit status where the compiler could not be given its source, or not be started: it has said nothing of it."""

_FOLDER, _SOURCE = 200, 201
"""Numbers of the two descriptors: part of the path, and so of the object."""


def main(arguments: list[str]) -> int:
    """nvcc's exit status, or `MACHINE_FAILED`."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return _compile(*arguments[:3], flags=arguments[3:])
    except OSError as error:
        sys.stderr.write(f"the compiler could not be run on {arguments[1]}: {error}\n")
        return MACHINE_FAILED


def _compile(nvcc: str, source: str, made: str, *, flags: list[str]) -> int:
    text = Path(source).read_bytes()
    name = f"k{hashlib.sha256(text).hexdigest()[:16]}"
    with _given(text, f"{name}.cu") as folder:
        # Relative include folders are the caller's: the compiler keeps its working directory.
        path = f"/proc/self/fd/{_FOLDER}"
        command = [
            nvcc, "-c", f"{path}/{name}.cu", "-o", f"{path}/k.o", *flags, "--keep", "--keep-dir", f"{path}/keep",
        ]  # fmt: skip
        done = subprocess.run(
            command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=(_FOLDER, _SOURCE)
        )
        sys.stdout.buffer.write(done.stdout.replace(f"{path}/{name}.cu".encode(), source.encode()))
        if done.returncode == 0:
            shutil.copyfile(folder / "k.o", made)
        return done.returncode


@contextlib.contextmanager
def _given(text: bytes, name: str) -> Iterator[Path]:
    """A folder of this process's own, in which the source is called `name`, under the two descriptors."""
    with tempfile.TemporaryDirectory(prefix="bolt-build-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        (folder / "keep").mkdir()
        (folder / name).symlink_to(f"/proc/self/fd/{_SOURCE}")
        _put(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), _FOLDER)
        memory = os.memfd_create("source")
        with open(memory, "wb", closefd=False) as writing:
            writing.write(text)
        _put(memory, _SOURCE)
        yield folder


def _put(descriptor: int, number: int) -> None:
    if descriptor != number:
        os.dup2(descriptor, number, inheritable=False)
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
