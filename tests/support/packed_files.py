"""Reads what `bolt-build package` wrote, and runs the programs of those who use it."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from recipe_projects import PATIENCE_SECONDS


def wheel_in(folder: Path) -> Path:
    (found,) = folder.glob("*.whl")
    return found


def command(*words: str, cwd: Path) -> str:
    plain = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        words, cwd=cwd, env=plain, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def blob(layout: Path, descriptor: dict[str, Any]) -> bytes:
    """What a descriptor names, which is what its digest and its size say."""
    kind, digest = descriptor["digest"].split(":")
    data = (layout / "blobs" / kind / digest).read_bytes()
    assert (hashlib.sha256(data).hexdigest(), len(data)) == (digest, descriptor["size"])
    return data


def files_in(archive: bytes) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as found:
        return {each.name for each in found if each.isfile()}
