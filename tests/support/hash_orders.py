"""Text that must not depend on how sets are ordered, made again in processes that order them otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def printed_in_other_orders(code: str, folder: Path) -> set[str]:
    """What `code` prints in two processes whose hashes of text differ, in `folder`. It may import what tests import."""
    found = set()
    for seed in ("1", "2"):
        paths = os.pathsep.join(sys.path)
        env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": paths}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found.add(done.stdout.strip())
    return found
