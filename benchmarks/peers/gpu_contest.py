"""Measures built CUDA engines in turns with their peers on a GPU where nothing can be built; leaves one JSON file.

ENGINES is a folder of target directories, as for `gpu_checks.py`: the model and the weights are made again where they
are not there. What is measured, and how, is `bolt-build bench --against`.

    python benchmarks/peers/gpu_contest.py generated/resnet50 out.json --against torch,torch-compile --batch 32
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.correctness.gpu_checks import PreparedEngine


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--against", default="torch,torch-graph,torch-compile,onnxruntime")
    parser.add_argument("--batch", type=int, action="append", help="only this batch (repeatable)")
    parser.add_argument("--seconds", type=float, default=3.0, help="timed runs of a contestant and batch, at most")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()

    from bolt_build.bench.comparison import worst_exit_code
    from bolt_build.bench.contest import Contest, compete
    from bolt_build.bench.contestant import Effort
    from bolt_build.digest import encode
    from bolt_build.report.bench import render

    effort = Effort(rounds=arguments.rounds, seconds=arguments.seconds / arguments.rounds)
    peers = tuple(arguments.against.split(","))
    result = {**record.environment("torch", "onnxruntime", "numpy"), "comparisons": []}
    comparisons = []
    for directory in sorted(path.parent for path in arguments.engines.resolve().glob("**/engine.json")):
        engine = PreparedEngine(directory)
        batches = tuple(batch for batch in engine.batches if arguments.batch is None or batch in arguments.batch)
        if not batches:
            print(f"{directory}: none of these batches; it has {engine.batches}", flush=True)
            continue
        contest = Contest(
            plan=engine.plan, library=engine.library, weights=engine.weights, model=engine.model,
            dims=engine.recipe.model.dims, seed=engine.recipe.verify.seed, peers=peers, batches=batches, effort=effort,
        )  # fmt: skip
        comparisons.append(compete(contest, lambda text: print(text, flush=True)))
        print(render(comparisons[-1], color=False), flush=True)
        result["comparisons"].append(encode(comparisons[-1]))
        # After each: what was measured stays where the next one fails.
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    return int(worst_exit_code(comparisons))


if __name__ == "__main__":
    sys.exit(main())
