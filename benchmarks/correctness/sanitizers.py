"""compute-sanitizer over a built engine, for `gpu_checks.py`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bolt_build.planner.engine_plan import BatchPlan

UNSEEN = (
    "initcheck does not see what TMA stores, and takes every reader of it for one of "
    "uninitialised memory: see an engine without such kernels"
)


def sanitize(directory: Path, plans: Iterable[BatchPlan], tools: Sequence[str]) -> dict[str, Any]:
    """compute-sanitizer's tools over the runner program of an engine with these plans, at the smallest batch."""
    unseen = any("warpgroups" in dict(step.candidate.parameters) for plan in plans for step in plan.steps)
    return {
        tool: {"ok": None, "reason": UNSEEN} if tool == "initcheck" and unseen else sanitize_with(directory, tool)
        for tool in tools
    }


def sanitize_with(directory: Path, tool: str) -> dict[str, Any]:
    """`ok` is None where the tool could not be run."""
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    (runner,) = directory.glob("*-run")
    command = [program, "--tool", tool, "--error-exitcode", "9", str(runner), "--bench", "--runs", "1"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"ok": None, "reason": str(error)}
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    ran = any("SUMMARY" in line for line in lines) and done.returncode in (0, 9)
    return {"ok": done.returncode == 0 if ran else None, "exit": done.returncode, "tail": lines[-2:]}
