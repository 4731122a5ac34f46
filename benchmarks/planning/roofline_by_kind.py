"""How far the kernels in the locks are from what the hardware allows, by kind of step: no GPU is needed.

    python benchmarks/planning/roofline_by_kind.py [--target h200] [--batch 32] [--recipe NAME]

Each recipe with a lock is planned as a build plans it. A step's time is its kernel's in the lock, alone, in
microseconds; where the lock has none it is predicted, and counted as such. Its bound is what its bytes take at
4.3 TB/s, its operations at 790 TFLOP/s (fp16, fp32 sums: what the fastest large products of the vendor's reach) or 2 us
for a launch, whichever is longest. Kinds over 3% of an engine and under a quarter of their bound are named, and of
encoders each step over 3% of the time and under half of its bound. Writes `results/kinds.json`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from benchmarks.planning.step_kinds import kind_of
from bolt_build.build.builder import BuildOptions
from bolt_build.families.base import KernelProblem
from bolt_build.report.explained.explainer import explain
from bolt_build.schema.load import load_recipe
from bolt_build.workflows.evidence import gather

BANDWIDTH, RATE, LAUNCH = 4.3e12, 790e12, 2e-6
"""Bytes a second, operations a second, seconds of a launch."""
PART, REACHED = 0.03, 0.25
"""Of an engine's time and of the bound: a kind that takes more and reaches less is named."""
HALF = 0.5
"""Of its bound: what a step of an encoder that takes over PART of the time should reach."""


@dataclass(frozen=True)
class Timed:
    """One step: microseconds of its kernel, and of its bound."""

    name: str
    kind: str
    kernel: str
    us: float
    bound_us: float
    measured: bool

    @property
    def share(self) -> float:
        """Of the bound."""
        return self.bound_us / self.us


def bound_us(problem: KernelProblem) -> float:
    return 1e6 * max(problem.nbytes / BANDWIDTH, problem.flops / RATE, LAUNCH)


def timed_steps(recipe: Path, target: str, batch: int, folder: Path) -> list[Timed] | None:
    """The steps of a batch that compute anything; None where the recipe has no such batch or target, or no lock."""
    read = load_recipe(recipe)
    specs = [spec for spec in read.targets if spec.name == target]
    if not specs or not recipe.with_suffix(".lock").is_file():
        return None
    evidence = gather(read, specs[0], BuildOptions(output=folder), lambda text: None)
    found = []
    for plan, explained in zip(evidence.engine.plan.plans, explain(evidence).batches, strict=True):
        for step, layer in zip(plan.steps, explained.layers, strict=True):
            if plan.batch == batch and not step.view:
                kind, known = kind_of(step.problem), layer.measured is not None
                found.append(Timed(step.name, kind, layer.kernel, layer.time, bound_us(step.problem), known))
    return found or None


def by_kind(steps: Sequence[Timed]) -> list[dict[str, Any]]:
    """Of each kind: steps, microseconds, their part of all, and the share of the bound; what takes longest first."""
    kinds: dict[str, list[Timed]] = defaultdict(list)
    for step in steps:
        kinds[step.kind].append(step)
    total = sum(step.us for step in steps)
    rows = []
    for kind, each in kinds.items():
        us, bound = sum(step.us for step in each), sum(step.bound_us for step in each)
        rows.append(
            {"kind": kind, "steps": len(each), "us": us, "part": us / total, "share": bound / us,
             "measured": sum(step.measured for step in each)}
        )  # fmt: skip
    return sorted(rows, key=lambda row: -row["us"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--recipe", nargs="+", help="only these, shown and not written")
    parser.add_argument("--out", type=Path, help="write here instead of results/kinds.json")
    arguments = parser.parse_args()
    engines, together = {}, []
    with tempfile.TemporaryDirectory() as folder:
        for recipe in sorted((ROOT / "recipes").glob("*.yaml")):
            if arguments.recipe and recipe.stem not in arguments.recipe:
                continue
            steps = timed_steps(recipe, arguments.target, arguments.batch, Path(folder))
            if steps is None:
                continue
            rows = by_kind(steps)
            total = sum(step.us for step in steps)
            slow = [row["kind"] for row in rows if row["part"] > PART and row["share"] < REACHED]
            encoder = any("attention" in row["kind"] for row in rows)
            engines[recipe.stem] = {
                "us": total, "bound_us": sum(step.bound_us for step in steps), "steps": len(steps),
                "measured": sum(step.measured for step in steps), "encoder": encoder, "slow_kinds": slow, "kinds": rows,
                "under_half": [
                    {"step": step.name, "kind": step.kind, "kernel": step.kernel, "us": step.us, "share": step.share}
                    for step in steps
                    if encoder and step.us > PART * total and step.share < HALF
                ],
            }  # fmt: skip
            together += steps
            print(f"{recipe.stem}: {total:.0f} us, {engines[recipe.stem]['bound_us'] / total:.0%}, {slow}", flush=True)
    result = record.environment() | {
        "target": arguments.target, "batch": arguments.batch, "bandwidth": BANDWIDTH, "rate": RATE, "launch": LAUNCH,
        "part": PART, "reached": REACHED, "half": HALF,
        "kinds": by_kind(together), "engines": engines,
    }  # fmt: skip
    if arguments.recipe and arguments.out is None:
        for name, engine in engines.items():
            for row in engine["kinds"]:
                print(f"{name}: {row['kind']}: {row['steps']} steps, {row['us']:.1f} us, {row['part']:.1%}, "
                      f"{row['share']:.0%} of the bound")  # fmt: skip
        return 0
    print(record.write("kinds", result, arguments.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
