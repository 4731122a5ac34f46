"""What a build takes that has nothing to do: one recipe, many at once, and what starting SCons for it would add.

    python benchmarks/builds/null_builds.py RECIPE... [--target NAME] [--out FILE]    # where the recipes are built

The CPU's seconds, of the command and all that it starts, are the figure on a machine that does other things too.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record

RUNS = 9
SCONS = [sys.executable, "-c", "import SCons.Script"]


def timed(argv: list[str]) -> dict[str, Any]:
    """Medians and least of the seconds that `argv` takes. Exits with its words where it fails."""
    walls, cpus = [], []
    for _ in range(RUNS):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        walls.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if done.returncode != 0:
            sys.exit(f"{' '.join(argv)} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return {
        "median_wall_s": round(statistics.median(walls), 3), "least_wall_s": round(min(walls), 3),
        "median_cpu_s": round(statistics.median(cpus), 3), "least_cpu_s": round(min(cpus), 3),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="+", type=Path, metavar="RECIPE")
    parser.add_argument("--target", help="this target of the recipes alone")
    parser.add_argument("--out", type=Path, help="write here instead of benchmarks/results/null_builds.json")
    arguments = parser.parse_args()
    only = ["--target", arguments.target] if arguments.target else []
    command = [str(Path(sys.executable).with_name("bolt-build")), *only]
    recipes = [str(recipe) for recipe in arguments.recipes]
    said = subprocess.run([*command, *recipes], capture_output=True, text=True, check=True).stdout
    if said.count(": done, nothing to do, ") != len(recipes):
        sys.exit(f"not everything was built before:\n{said}")
    result: dict[str, Any] = {
        **record.environment("SCons", "jsonschema"), "runs": RUNS, "load_average_before": os.getloadavg()[0],
        "first_recipe": timed([*command, recipes[0]]), "recipes": len(recipes),
    }  # fmt: skip
    if len(recipes) > 1:
        result["all_recipes"] = timed([*command, *recipes])
    result |= {"importing_scons": timed(SCONS), "python": timed([sys.executable, "-c", "pass"])}
    print(f"wrote {record.write('null_builds', result, arguments.out)}")


if __name__ == "__main__":
    main()
