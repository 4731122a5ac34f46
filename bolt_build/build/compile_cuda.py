"""Compiles one CUDA source so that equal sources give equal objects: `compile_cuda.py NVCC SOURCE OBJECT FLAG...`

nvcc writes the path of its source into names that it makes up (those of anonymous namespaces, and of its intermediate
files, with its own process number), and no flag takes it out again. So a source is compiled under a name that follows
from its contents alone, in a folder that is the same for every checkout and user of a machine. Imports nothing of
the package: it is a task's command, started once a source.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CANONICAL = Path("/tmp/bolt-build")


def main(arguments: list[str]) -> int:
    """nvcc's exit status."""
    nvcc, source, made, *flags = arguments
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    text = Path(source).read_bytes()
    with _folder(hashlib.sha256(text).hexdigest()[:32]) as folder:
        copy = folder / "k.cu"
        copy.write_bytes(text)
        # Relative include folders are the caller's: the compiler keeps its working directory.
        command = [
            nvcc,
            "-c",
            str(copy),
            "-o",
            str(folder / "k.o"),
            *flags,
            "--keep",
            "--keep-dir",
            str(folder / "keep"),
        ]
        (folder / "keep").mkdir()
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        sys.stdout.buffer.write(done.stdout.replace(str(copy).encode(), source.encode()))
        if done.returncode == 0:
            shutil.copyfile(folder / "k.o", made)
        return done.returncode


@contextlib.contextmanager
def _folder(name: str) -> Iterator[Path]:
    """The folder for a source, empty, and nobody else's until the block ends."""
    CANONICAL.mkdir(exist_ok=True)
    with contextlib.suppress(PermissionError):
        CANONICAL.chmod(0o1777)
    lock = CANONICAL / f"{name}.{os.getuid()}.lock"
    with os.fdopen(os.open(lock, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        folder = CANONICAL / name
        if folder.exists():
            shutil.rmtree(folder)  # of a build that was killed
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
