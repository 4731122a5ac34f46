"""Every step of the engines that `untuned_networks.py` timed, beside what is predicted of its kernel and its bound.

    # no GPU: folders of `untuned_networks.py steps`, or of its `measure`
    python benchmarks/planning/untuned_steps.py FOLDER...

A folder has `steps_NETWORK_bBATCH.json`, or a row that was measured beside peers, whose steps were timed one by one,
and the engines' plans beside it. Predictions are those of the code as it is, so the script may run again when they have
changed. Equal steps of a network are one: those of the same kernel on the same shapes, with the mean of their times.
Writes `results/other_steps.json`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.planning.problem_texts import text_of
from benchmarks.planning.roofline_by_kind import bound_us
from benchmarks.planning.step_kinds import kind_of
from bolt_build.build.planning.engine_file import read_engine
from bolt_build.families import load
from bolt_build.planner.engine_plan import Step
from bolt_build.planner.problem_text import describe_problem
from bolt_build.targets import Target, target_named

_ROW = re.compile(r"(row|steps)_(?P<network>\w+)_b(?P<batch>\d+)\.json")


def rows_of(folders: Sequence[Path]) -> Iterator[tuple[str, int, Path]]:
    """Network, batch and file of each row in the folders, in the order of the networks' names."""
    found = ((_ROW.fullmatch(path.name), path) for folder in folders for path in folder.glob("*_b*.json"))
    yield from sorted((match["network"], int(match["batch"]), path) for match, path in found if match is not None)


def facts_of(step: Step, target: Target) -> dict[str, Any]:
    """What is known of a step without a GPU; equal steps have equal facts."""
    problem, candidate = step.problem, step.candidate
    (family,) = (each for each in load(target) if each.name == candidate.family)
    return {
        "kind": kind_of(problem), "kernel": text_of(candidate), "problem": problem.digest,
        "what": describe_problem(problem),
        "bound_us": round(bound_us(problem), 2),
        "predicted_us": round(1e6 * family.predict(problem, candidate, target), 2),
    }  # fmt: skip


def grouped(steps: Sequence[tuple[Mapping[str, Any], float]]) -> list[dict[str, Any]]:
    """Steps with their microseconds; those with equal facts are one, with their `count` and the mean `us`."""
    times: dict[str, list[float]] = defaultdict(list)
    for facts, us in steps:
        times[json.dumps(facts)].append(us)
    return [json.loads(facts) | {"count": len(each), "us": round(sum(each) / len(each), 2)}
            for facts, each in times.items()]  # fmt: skip


def network_of(path: Path, network: str, batch: int, target: Target) -> dict[str, Any]:
    """The steps of a row, where and when they were timed."""
    row = json.loads(path.read_text())
    engine = path.parent / "generated" / network / target.name / "engine.json"
    (plan,) = (each for each in read_engine(engine.read_text()).plans if each.batch == batch)
    us = {each["step"]: each["us"] for each in row["steps"]}
    steps = [(facts_of(step, target), us[step.name]) for step in plan.steps if not step.view]
    gpu = row["gpu"] if "gpu" in row else row["bench"]["device"]
    return {"batch": batch, "gpu": gpu, "date": row["environment"]["date"], "steps": grouped(steps)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--target", default="h200")
    parser.add_argument("--out", type=Path, help="write here instead of results/other_steps.json")
    arguments = parser.parse_args()
    target = target_named(arguments.target)
    networks = {name: network_of(path, name, batch, target) for name, batch, path in rows_of(arguments.folders)}
    command = {"command": "python benchmarks/planning/untuned_steps.py FOLDER..."}
    result = record.environment() | command | {"target": target.name, "networks": networks}
    print(record.write("other_steps", result, arguments.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
