"""What more workers and more GPUs would give: recorded durations, list-scheduled on 1 to 64 of them.

    python benchmarks/tuning/simulated_scaling.py  # reads results, and writes results/simulated_scaling.json

Durations are those that real runs recorded: the compilations of a locked engine (`build_times_locked.json`), and, where
`scaling.py` ran, the compilations and problems of a tuning from nothing (`scaling.json`). A run is a sequence of
stages, each of which begins when the one before it has ended. Tasks of a stage need nothing of each other, and whoever
is free takes the next one in the recorded order. A worker compiles one source at a time.

What the simulation leaves out is stated beside it: the same stages on what they were recorded with, and how long that
took in truth. Sending takes no time in it, and a task as long as it took beside the others that ran with it.
"""

from __future__ import annotations

import argparse
import heapq
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record

WORKERS = (1, 2, 4, 8, 16, 32, 64)
GPUS = (1, 2, 4, 8)
SERIAL, COMPILERS, MEASURING = "one process", "compilers", "GPUs"
_ALL_OF_IT = 0.8
"""A longest task that takes this part of its stage is what the stage waits for."""


@dataclass(frozen=True)
class Stage:
    """`seconds` of its tasks in their order; `by` says who does them."""

    name: str
    by: str
    seconds: tuple[float, ...]

    def slots(self, workers: int, gpus: int) -> int:
        return {SERIAL: 1, COMPILERS: workers, MEASURING: gpus}[self.by]

    def span(self, slots: int) -> float:
        """Seconds from the first task's begin to the last one's end."""
        free = [0.0] * slots
        for seconds in self.seconds:
            heapq.heapreplace(free, free[0] + seconds)
        return max(free)


def simulated(stages: Sequence[Stage], workers: int, gpus: int) -> dict[str, Any]:
    """How long each stage takes, all together, and what the longest one waits for."""
    spans = {stage.name: stage.span(stage.slots(workers, gpus)) for stage in stages}
    worst = max(stages, key=lambda stage: spans[stage.name])
    return {
        "workers": workers, "gpus": gpus, "seconds": round(sum(spans.values()), 2),
        "stages": {name: round(span, 2) for name, span in spans.items()},
        "longest_stage": worst.name, "limit": _limit(worst, spans[worst.name]),
    }  # fmt: skip


def _limit(stage: Stage, span: float) -> str:
    if stage.by == SERIAL:
        return "one process"
    if max(stage.seconds) >= _ALL_OF_IT * span:
        return "its longest task"
    return f"the number of {stage.by}"


def build_stages(built: dict[str, Any]) -> list[Stage]:
    """Of a build that prints `[3/66] compile k_80ed.cu 6.8 s`."""
    tasks = [re.fullmatch(r"\[\d+/\d+\] (\w+) (.*) ([\d.]+) s", line) for line in built["first_build"]["tasks"]]
    found = [(task[1], float(task[3])) for task in tasks if task is not None]
    compiled = tuple(seconds for verb, seconds in found if verb == "compile")
    rest = tuple(seconds for verb, seconds in found if verb != "compile")
    return [Stage("compile", COMPILERS, compiled), Stage("emit, link and copy", SERIAL, rest)]


def tuning_stages(recorded: dict[str, Any], cold: dict[str, Any], one: dict[str, Any]) -> list[Stage]:
    """Of a tuning that compiled as in `cold`, and measured as on the one GPU of `one`."""
    ran = [each for each in recorded["tasks"] if not each["cached"]]
    driver = [each for each in ran if each["task"].startswith("compile-tuning_")]
    linked = [each for each in ran if each["task"].startswith("link-") or each["task"] == "compile-candidates"]
    kernels = [each for each in ran if each not in driver and each not in linked]

    def seconds(tasks: Sequence[dict[str, Any]]) -> tuple[float, ...]:
        ordered = sorted(tasks, key=lambda each: each["ended"] - each["seconds"])
        return tuple(each["seconds"] for each in ordered)

    (lane,) = recorded["lanes"]
    return [
        Stage("plan", SERIAL, (cold["seconds"]["plan"],)), Stage("compile the driver", COMPILERS, seconds(driver)),
        Stage("compile the candidates", COMPILERS, seconds(kernels)), Stage("link", SERIAL, seconds(linked)),
        Stage("measure", MEASURING, tuple(ended - began for began, ended in lane)),
        Stage("whole engine", MEASURING, (one["seconds"]["engine"],)),
        Stage("choose", SERIAL, (cold["seconds"]["select"],)),
    ]  # fmt: skip


def critical_path(stages: Sequence[Stage]) -> dict[str, float]:
    """What no number of workers and GPUs makes shorter: of each stage its longest task, or all of them."""
    parts = {s.name: s.span(1) if s.by == SERIAL else max(s.seconds, default=0.0) for s in stages}
    return {"seconds": round(sum(parts.values()), 2), **{name: round(seconds, 2) for name, seconds in parts.items()}}


def _described(stages: Sequence[Stage]) -> list[dict[str, Any]]:
    return [
        {"name": stage.name, "by": stage.by, "tasks": len(stage.seconds), "work": round(sum(stage.seconds), 2),
         "longest": round(max(stage.seconds, default=0.0), 2)}
        for stage in stages
    ]  # fmt: skip


def tables(stages: Sequence[Stage], gpus: Sequence[int]) -> list[dict[str, Any]]:
    return [simulated(stages, workers, count) for count in gpus for workers in WORKERS]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=record.RESULTS, help="the folder of what was recorded")
    parser.add_argument("--out", type=Path, help="write here instead of results/simulated_scaling.json")
    arguments = parser.parse_args()
    built = json.loads((arguments.results / "build_times_locked.json").read_text())
    stages = build_stages(built)
    cores = int(built["device"].rpartition(", ")[2].split()[0])
    result: dict[str, Any] = {
        **record.environment(),
        "build": {
            "recorded_on": built["device"], "stages": _described(stages), "simulated": tables(stages, (1,)),
            "critical_path": critical_path(stages),
            "as_recorded": {"workers": cores, "simulated": simulated(stages, cores, 1)["seconds"],
                            "seconds": built["first_build"]["steps"]["build"]["wall_s"]},
        },
    }  # fmt: skip
    if (arguments.results / "scaling.json").exists():
        scaling = json.loads((arguments.results / "scaling.json").read_text())
        cold = scaling[scaling["cold"]]
        stages = tuning_stages(scaling["recorded"], cold, scaling["one_gpu"])
        cores, gpus = int(scaling["memory"]["cores"]), len(cold["measuring"]["seconds"])
        result["tuning"] = {
            "recorded_on": scaling["device"], "stages": _described(stages), "simulated": tables(stages, GPUS),
            "critical_path": critical_path(stages),
            "as_recorded": {"workers": cores, "gpus": gpus, "simulated": simulated(stages, cores, gpus)["seconds"],
                            "seconds": cold["seconds"]["total"]},
        }  # fmt: skip
    print(record.write("simulated_scaling", result, arguments.out))
    for name in ("build", "tuning"):
        for row in result.get(name, {}).get("simulated", ()):
            print(f"{name} {row['workers']:3} workers {row['gpus']} GPUs {row['seconds']:8.1f} s  "
                  f"{row['longest_stage']}: {row['limit']}")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
