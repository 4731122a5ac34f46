"""How long the quick loop takes, and how many tests it runs: `pytest -m quick -n 2`.

    python benchmarks/repository/quick_loop.py

Writes `results/quick_loop.json`: the CPU's seconds, of the command and all that it starts, which say something on a
machine that does other things too, the clock's beside them, and how busy the machine was. Fails, and writes nothing,
where a test fails.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from benchmarks.repository.ci_run import counts

COMMAND = ("-m", "pytest", "-q", "-m", "quick", "-n", "2")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "tests.xml"
        load, begun = os.getloadavg()[0], time.perf_counter()
        done = subprocess.run([sys.executable, *COMMAND, f"--junitxml={report}"], cwd=ROOT, check=False)
        wall, used = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            return done.returncode
        result = {
            **record.environment("pytest", "pytest-xdist"), "load_average_before": round(load, 2),
            "wall_s": round(wall, 1), "cpu_s": round(used.ru_utime + used.ru_stime, 1), **counts(report),
        }  # fmt: skip
        print(record.write("quick_loop", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
