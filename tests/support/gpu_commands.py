"""bolt-build's commands in processes of their own, on a machine with a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bolt_build.targets import all_targets
from bolt_build.toolchain.machine import found_gpus

ROOT = Path(__file__).resolve().parents[2]


_PATIENCE_SECONDS = 600


def target_here() -> str:
    """The target of the first GPU of this machine."""
    gpus = found_gpus()
    if not gpus:
        pytest.skip("there is no GPU")
    rows = [t.name for t in all_targets() if t.gpu is not None and t.gpu.is_device(gpus[0].name)]
    if not rows:
        pytest.skip(f"no target is a {gpus[0].name}")
    return rows[0]


def bolt(folder: Path, *words: str, cache: Path = Path("cache")) -> dict[str, Any]:
    """The last line of what bolt-build says in JSON; it must end well. `cache` is seen from `folder`."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))}
    command = [sys.executable, "-m", "bolt_build", *words, "--cache", str(cache), "--format", "json"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
