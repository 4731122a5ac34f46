"""Random models of whatever operators (tests/support/mixed_models.py), in numbers: every stage from the file to the
plan against onnxruntime, and engines of the host and of the emulated GPU, each of many models side by side.

    python benchmarks/correctness/mixed_models.py FOLDER [--models 1000] [--engines 5] [--emulated 1]
        [--first 0] [--out FILE]

Models `first` and on. FOLDER keeps the latest engine of each kind. Exits with 1 where anything was wrong.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS, record
from benchmarks.correctness.merged_engine import Workshop, merged, outputs_of
from bolt_build.errors import BoltError
from bolt_build.graph.ir import Graph
from bolt_build.planner.pipeline import optimize
from bolt_build.targets import HOST, target_named

sys.path[:0] = map(str, TESTS)

from mixed_checks import every_stage_keeps_the_numbers, plans_for_a_gpu_keep_the_numbers, wrong
from mixed_models import Mixed, mixed_model
from planner_fakes import POLICY

GPUS = ("h200", "t4", "a100")
GRAPHS, NODES = {"host": 30, "h200": 12}, 14
"""Models of an engine, and nodes of such a model."""
ENGINE_CLOSE = 3e-4


def stages(first: int, count: int, folder: Path) -> dict[str, Any]:
    """Every stage of `count` models; what was refused is no error."""
    operators: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    outputs = known = 0
    failed = []
    for seed in range(first, first + count):
        mixed = mixed_model(seed)
        operators.update(node.op_type for node in mixed.proto.graph.node)
        outputs, known = outputs + len(mixed.outputs), known + len(mixed.known)
        try:
            every_stage_keeps_the_numbers(mixed, seed, folder)
            plans_for_a_gpu_keep_the_numbers(mixed, GPUS[seed % len(GPUS)], folder)
        except BoltError as error:
            refused[str(error).splitlines()[0]] += 1
        except Exception as error:  # one that fails says nothing of the others
            failed.append({"seed": seed, "error": f"{type(error).__name__}: {str(error)[:300]}"})
            print(f"model {seed}: {failed[-1]['error']}", flush=True)
    return {
        "models": count, "nodes": operators.total(), "operators": len(operators), "outputs": outputs,
        "compared_outputs": known, "refused": dict(refused.most_common()), "wrong": failed,
    }  # fmt: skip


def engine(name: str, first: int, folder: Path) -> dict[str, Any]:
    """One engine of many models, run on the inputs of all."""
    target = HOST if name == "host" else target_named(name)
    tried: list[tuple[int, Mixed, Graph]] = []
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(first, first + GRAPHS[name]):
        mixed = mixed_model(seed, NODES)
        try:
            tried.append((seed, mixed, optimize(mixed.graph(folder), POLICY, target, "fp32").graph))
        except BoltError as error:
            print(f"model {seed} of {NODES} nodes is refused: {error}", flush=True)
    shutil.rmtree(folder / name, ignore_errors=True)
    place = Workshop(folder / name, None, target, emulated=name != "host").built(
        merged([graph for _, _, graph in tried]), "engine"
    )
    given = {
        f"{index}/{key}": mixed.inputs[key] for index, (_, mixed, graph) in enumerate(tried) for key in graph.inputs
    }
    found = outputs_of(place, given)
    failed = []
    for index, (seed, mixed, _) in enumerate(tried):
        own = {key: found[f"{index}/{key}"] for key in mixed.outputs}
        if differing := wrong(mixed, own, ENGINE_CLOSE):
            failed.append({"seed": seed, "outputs": differing})
    return {"models": len(tried), "steps": sum(len(graph.nodes) for _, _, graph in tried), "wrong": failed}


def engines(name: str, first: int, count: int, folder: Path) -> dict[str, Any]:
    total: dict[str, Any] = {"engines": count, "models": 0, "nodes": 0, "wrong": []}
    for number in range(count):
        begun = time.monotonic()
        found = engine(name, first + number * GRAPHS[name], folder)
        total["models"] += found["models"]
        total["nodes"] += found["steps"]
        total["wrong"] += found["wrong"]
        print(f"{name} {number}: {found} in {time.monotonic() - begun:.0f} s", flush=True)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--engines", type=int, default=5, help="of the host")
    parser.add_argument("--emulated", type=int, default=1, help="engines of the emulated GPU")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write here instead of results/mixed_models.json")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    result = record.environment("bolt-build", "onnx", "onnxruntime", "numpy")
    result["stages"] = stages(args.first, args.models, args.folder)
    result["host"] = engines("host", args.first, args.engines, args.folder)
    result["emulated_h200"] = engines("h200", args.first, args.emulated, args.folder)
    print(record.write("mixed_models", result, args.out))
    sys.exit(1 if any(result[part]["wrong"] for part in ("stages", "host", "emulated_h200")) else 0)


if __name__ == "__main__":
    main()
