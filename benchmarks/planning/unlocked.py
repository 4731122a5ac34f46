"""What an engine loses that is built without its lock: of tuned recipes, the kernels that prediction chooses beside
those of the lock, both by the times that were measured.

    python benchmarks/planning/unlocked.py                    # writes results/unlocked.json; no GPU is needed
    python benchmarks/planning/unlocked.py --recipe resnet50  # one of them, shown step by step and not written

A kernel that nobody has timed for its problem counts by prediction, over what its kind's predictions are of measured
times in geometric mean; `known` says what part of the engine is measured. Regret is the sum over kernels without the
lock, over that with it; both are of kernels timed one by one, and no figure of a whole engine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.planning.kernel_times import FAMILIES, RECIPES, TARGET, with_cut
from benchmarks.planning.predictions import Point, by_kind, geometric_mean, kind_of, measured, points
from bolt_build.families.base import Candidate
from bolt_build.graph import zoo
from bolt_build.graph.onnx_import import load_model
from bolt_build.lockfile.reading import load_lock
from bolt_build.planner.engine_plan import BatchPlan
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.planner.problem_text import describe_problem
from bolt_build.planner.selection import PREDICTED
from bolt_build.schema.load import load_recipe

TUNED = tuple(sorted(path.stem for path in RECIPES.glob("*.lock")))
"""Recipes with a lock."""


@dataclass(frozen=True)
class Timed:
    """A step's kernel: seconds, and whether they were measured."""

    step: str
    what: str
    candidate: Candidate
    seconds: float
    measured: bool


class Times:
    """What kernels take, measured or predicted."""

    def __init__(self, found: list[Point]) -> None:
        self._measured = {(each.problem.digest, each.candidate): each.measured for each in found}
        self._bias = {kind: row["ratio"] for kind, row in by_kind(found).items()}

    def of(self, plan: BatchPlan) -> list[Timed]:
        rows = []
        for step in plan.steps:
            if step.view:
                continue
            problem, candidate = step.problem, with_cut(step.problem, step.candidate)
            seconds = self._measured.get((problem.digest, candidate))
            known = seconds is not None
            if seconds is None:
                seconds = FAMILIES[candidate.family].predict(problem, candidate, TARGET)
                seconds /= self._bias.get(kind_of(problem, candidate), 1.0)
            rows.append(Timed(step.name, describe_problem(problem), candidate, seconds, known))
        return rows


def compared(name: str, folder: Path, times: Times) -> dict[str, tuple[list[Timed], list[Timed]]]:
    """Of each batch the kernels with the lock, and those without."""
    recipe = load_recipe(RECIPES / f"{name}.yaml")
    assert recipe.model.zoo is not None, name
    (spec,) = [spec for spec in recipe.targets if spec.name == TARGET.name]
    part = load_lock(RECIPES / f"{name}.lock").target(TARGET.name)
    assert part is not None
    path = folder / f"{name}.onnx"
    onnx.save(zoo.blank(recipe.model.zoo), str(path))
    model = load_model(path)
    graphs = model.graphs(recipe.batches(spec), recipe.model.dims, recipe.model.lengths)
    both = [
        plan_engine(graphs, recipe, spec, TARGET, tuple(FAMILIES.values()), selection).plan.plans
        for selection in (part.selection("the lock"), PREDICTED)
    ]
    return {a.sizes.words: (times.of(a), times.of(b)) for a, b in zip(*both, strict=True)}


def show(locked: list[Timed], unlocked: list[Timed]) -> None:
    """Steps that differ, by name; those that one of both lacks have no other beside them."""
    a, b = ({each.step: each for each in rows} for rows in (locked, unlocked))
    for step in dict.fromkeys((*a, *b)):
        one, other = a.get(step), b.get(step)
        if one is not None and other is not None and (one.what, one.candidate) == (other.what, other.candidate):
            continue
        print(step)
        for label, each in (("lock", one), ("none", other)):
            if each is not None:
                mark = " " if each.measured else "~"
                print(f"  {label} {mark}{1e6 * each.seconds:8.2f} us {each.candidate} | {each.what[:200]}")


def row(locked: list[Timed], unlocked: list[Timed]) -> dict[str, Any]:
    sums = [sum(each.seconds for each in rows) for rows in (locked, unlocked)]
    known = sum(each.seconds for each in unlocked if each.measured) / sums[1]
    return {
        "locked_us": 1e6 * sums[0], "unlocked_us": 1e6 * sums[1], "regret": sums[1] / sums[0], "known": known,
        "kernels": [len(locked), len(unlocked)],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", action="append", choices=TUNED, default=[])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    times = Times(points(measured())[0])
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.recipe or TUNED:
            for batch, (locked, unlocked) in compared(name, Path(folder), times).items():
                if arguments.recipe:
                    show(locked, unlocked)
                found = rows[f"{name} {batch}"] = row(locked, unlocked)
                print(f"{name} {batch}: {found['regret']:.3f}, {found['known']:.0%} measured", flush=True)
    mean = geometric_mean([found["regret"] for found in rows.values()])
    print(f"{mean:.3f} in geometric mean")
    if arguments.out or not arguments.recipe:
        facts = record.environment()
        print(record.write("unlocked", {**facts, "gpu": "NVIDIA H200", "mean": mean, "rows": rows}, arguments.out))


if __name__ == "__main__":
    main()
