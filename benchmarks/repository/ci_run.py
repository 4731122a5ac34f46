"""How long the test command takes from a fresh clone, and how many tests it runs.

    python benchmarks/repository/ci_run.py

Clones the checkout's commit, runs `bash .ci/run` in the clone, and writes `results/ci_run.json`. Fails, and writes
nothing, where the command fails. Changes that are not committed take no part.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record


def counts(report: Path) -> dict[str, Any]:
    """Tests by what came of them, and seconds, of pytest's JUnit report."""
    suite = ElementTree.parse(report).getroot().find("testsuite")
    if suite is None:
        raise ValueError(f"{report} has no <testsuite>")
    number = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
    failed = number["failures"] + number["errors"]
    passed = number["tests"] - failed - number["skipped"]
    return {
        "passed": passed,
        "failed": failed,
        "skipped": number["skipped"],
        "pytest_wall_s": float(suite.get("time", "0")),
    }


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        clone, report = Path(folder) / "clone", Path(folder) / "tests.xml"
        begun = time.perf_counter()
        subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone)], check=True)
        done = subprocess.run(["bash", ".ci/run", f"--junitxml={report}"], cwd=clone, check=False)
        wall = time.perf_counter() - begun
        if done.returncode:
            return done.returncode
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=clone, check=True, capture_output=True, text=True)
        head = record.environment("pytest", "pytest-xdist") | {"commit": commit.stdout.strip()}
        print(record.write("ci_run", head | {"wall_s": round(wall, 1)} | counts(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
