"""What every benchmark writes beside its figures: the machine, the date, the command and the versions.

python benchmarks/record.py FILE...     # takes results that another machine wrote into results/
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parent
RESULTS = BENCHMARKS / "results"


def cpu_name() -> str:
    """The processor's name as the kernel gives it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def gpu_name() -> str | None:
    """What the driver calls the first GPU; None where there is none."""
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", "--id=0"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def environment(*packages: str) -> dict[str, Any]:
    """Device, date, command and versions of `packages`: the head of every result file."""
    versions = {}
    for package in packages:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "device": f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores",
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["python", script(), *elsewhere(sys.argv[1:])]),
        "python": platform.python_version(),
        "versions": versions,
    }


def script() -> str:
    """The running script by its path in the checkout."""
    path = Path(sys.argv[0]).resolve()
    inside = path.relative_to(BENCHMARKS) if path.is_relative_to(BENCHMARKS) else path.name
    return f"benchmarks/{inside}"


def elsewhere(words: list[str]) -> list[str]:
    """A command's words without `--out FILE`: where a result lay for a while says nothing of it."""
    if "--out" not in words:
        return words
    at = words.index("--out")
    return words[:at] + words[at + 2 :]


def save(path: Path, data: Any) -> None:
    """Writes JSON, whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(data, indent=1) + "\n")
    os.replace(temporary, path)


def write(name: str, result: dict[str, Any], out: Path | None = None) -> Path:
    """Writes `results/<name>.json`, or `out` instead, and returns its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json" if out is None else out
    save(path, result)
    return path


def main(files: list[str]) -> int:
    for name in files:
        result = json.loads(Path(name).read_text())
        result["command"] = " ".join(elsewhere(result["command"].split()))
        print(write(Path(name).stem, result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
