"""How much of what one model's tuning compiles serves the next model's. Needs no GPU and compiles nothing.

    python benchmarks/tuning/kernel_reuse.py [--first resnet50] [--then wide_resnet50_2 resnet18] [--batch 32]

A candidate is a kernel for a problem; it is reused where all kernels that it needs were compiled for the first model,
whatever problem they were for. Writes `results/kernel_reuse.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from bolt_build.build.builder import BuildOptions
from bolt_build.schema.load import load_recipe
from bolt_build.targets import target_named
from bolt_build.tuning.compile.kernels import TuningKernels, tuning_kernels
from bolt_build.workflows.evidence import gather


def kernels(folder: Path, model: str, batch: int, target: str) -> TuningKernels:
    """What a tuning of a zoo model would compile, without a lock and without records."""
    path = folder / f"{model}.yaml"
    path.write_text(
        f"bolt: 1\nname: {model}\nmodel: {{zoo: {model}, batch: {batch}}}\ntargets: {{{target}: {{precision: fp16}}}}\n"
        "tuning: {lock: null}\n"
    )
    recipe = load_recipe(path)
    (spec,) = recipe.targets
    options = BuildOptions(output=folder / "generated", cache=folder / "cache")
    evidence = gather(recipe, spec, options, lambda text: None)
    families = {family.name: family for family in evidence.families}
    return tuning_kernels(evidence.problems.problems, families, target_named(target))


def reuse(first: TuningKernels, then: TuningKernels) -> dict[str, Any]:
    """Counts of kernels and of candidates that need some, and how many of each are there already."""
    there = {unit.name for unit in first.units}
    units = {unit.name for unit in then.units}
    needs = {(problem, candidate.compiled): set(found) for problem, candidate, found in then.needs if found}
    reused = sum(found <= there for found in needs.values())
    known = {problem for problem, _, _ in first.needs}
    problems = {problem for problem, _ in needs}
    return {
        "problems": len(problems), "problems_of_first": len(problems & known),
        "kernels": len(units), "kernels_reused": len(units & there),
        "candidates": len(needs), "candidates_reused": reused, "part_of_candidates": round(reused / len(needs), 4),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", default="resnet50", help="a zoo model")
    parser.add_argument("--then", nargs="+", default=["wide_resnet50_2", "resnet18"], help="zoo models")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--target", default="h200")
    parser.add_argument("--out", type=Path, help="write here instead of results/kernel_reuse.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        first = kernels(folder, arguments.first, arguments.batch, arguments.target)
        found = {
            model: reuse(first, kernels(folder, model, arguments.batch, arguments.target)) for model in arguments.then
        }
    result = record.environment("nvidia-cutlass") | {
        "target": arguments.target, "batch": arguments.batch, "dtype": "fp16", "accumulator": "fp32",
        "first": arguments.first, "kernels_of_first": len(first.units), "then": found,
    }  # fmt: skip
    print(json.dumps(found, indent=1))
    print(record.write("kernel_reuse", result, arguments.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
