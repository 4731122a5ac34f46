"""bolt-build as other programs run it: in a folder, its last line of JSON as the result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import ROOT


class CommandFailed(Exception):
    """bolt-build ended with an exit code other than 0; the text has the command, the code and what it said last."""


def bolt(folder: Path, *words: str, root: Path = ROOT) -> dict[str, Any]:
    """What `bolt-build WORDS` says of its result, and how long its process took (`wall_seconds`).

    Runs the program of this checkout, or of that in `root`, in `folder`. Raises CommandFailed.
    """
    paths = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "bolt_build", *words, "--format", "json"]
    started = time.monotonic()
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True, check=False
    )
    seconds = time.monotonic() - started
    print(f"{' '.join(words)}: {seconds:.1f} s", flush=True)
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result | {"wall_seconds": round(seconds, 2)}


def build_one(folder: Path, recipe: str, *words: str, root: Path = ROOT) -> dict[str, Any]:
    """Of a recipe with one target, or one that the words name, `build`'s `directory`, `verified` and `kernels`; or why
    it `failed`."""
    try:
        (found,) = bolt(folder, "build", recipe, *words, root=root)["targets"]
    except CommandFailed as error:
        return {"failed": str(error)}
    return {key: found[key] for key in ("directory", "verified", "kernels")}
