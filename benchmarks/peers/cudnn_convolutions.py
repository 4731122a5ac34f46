"""Every convolution of built engines beside cuDNN's fastest for it, on one GPU.

    python benchmarks/peers/cudnn_convolutions.py FOLDER build  # engines from the locks, as `cnn_peers.py` builds them
    python benchmarks/peers/cudnn_convolutions.py FOLDER measure      # again until it says that nothing is left
    python benchmarks/peers/cudnn_convolutions.py FOLDER close        # anywhere: writes results/cudnn_convolutions.json

A row is a step that computes convolutions: our kernel with all that it does (bias, activation, residual, means,
poolings, products in front of it or behind) beside the sum of what cuDNN takes for the convolutions alone, without
bias, fp16 channels-last with fp32 sums. PyTorch's search (`cudnn.benchmark`) takes the fastest of the `--plans` that
cuDNN's heuristics rank first, 0 for all. Both are executions one after the other in a CUDA graph, on the same GPU in
the same process, inputs as the caches have them then. Equal problems are one row. Pads that differ at both sides are
made before the clock starts.

cuDNN's times do not change as kernels do: with `--known`, `measure` takes those that the result before has of the same
GPU and cuDNN, and times the others.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.peers import cnn_peers, peer_rows
from benchmarks.peers.against_peers import load
from benchmarks.peers.attention_peers import microseconds
from benchmarks.peers.peer_rows import PeerRow
from benchmarks.planning.step_kinds import kind_of, members
from bolt_build.bench.replays import step_times
from bolt_build.digest import decode
from bolt_build.graph.operators import operators
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.planner.engine_plan import EnginePlan

MODELS = (
    "mobilenet_v2", "efficientnet_b0", "resnext50_32x4d", "densenet121", "convnext_tiny", "mobilenet_v3_small",
    "resnet50",
)  # fmt: skip
ROWS = tuple(PeerRow(model, batch) for batch in (32, 1) for model in MODELS)


def convolution_text(op: Conv, x: tuple[int, ...], w: tuple[int, ...]) -> str:
    """What names a convolution: "32x56x56x64 64x3x3x64 strides 1,1 pads 1,1,1,1 dilations 1,1 groups 1"."""
    image, filters = (x[0], *x[2:], x[1]), (w[0], *w[2:], w[1])
    pads = ",".join(map(str, (*op.pads_begin, *op.pads_end)))
    strides, dilations = (",".join(map(str, each)) for each in (op.strides, op.dilations))
    shapes = ("x".join(map(str, shape)) for shape in (image, filters))
    return " ".join([*shapes, f"strides {strides} pads {pads} dilations {dilations} groups {op.groups}"])


def cudnn_us(op: Conv, x: tuple[int, ...], w: tuple[int, ...], plans: int) -> float:
    """Microseconds of cuDNN's fastest of so many `plans`, of random fp16 channels-last tensors."""
    import torch

    torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = True, plans
    last = torch.channels_last
    image = torch.randn(x, device="cuda", dtype=torch.half).to(memory_format=last)
    weights = (torch.randn(w, device="cuda", dtype=torch.half) / 8).to(memory_format=last)
    pads = op.pads_begin
    if op.pads_begin != op.pads_end:
        (top, left), (bottom, right) = op.pads_begin, op.pads_end
        image = torch.nn.functional.pad(image, (left, right, top, bottom)).to(memory_format=last)
        pads = (0, 0)
    with torch.no_grad():
        return microseconds(
            lambda: torch.nn.functional.conv2d(image, weights, None, op.strides, pads, op.dilations, op.groups)
        )


def measured(
    arguments: argparse.Namespace, row: PeerRow, until: float, known: dict[str, float]
) -> list[dict[str, Any]] | None:
    """The steps of an engine that have convolutions, equal ones once; None where the time is over. `known` has cuDNN's
    times so far, and gets the new ones."""
    folder: Path = arguments.folder
    directory = Path((load(folder / "engines.json") or {})[row.model]["directory"])
    directory = directory if directory.is_absolute() else folder / directory
    engine = decode(EnginePlan, json.loads((directory / "engine.json").read_text()))
    (plan,) = (each for each in engine.plans if each.batch == row.batch)
    alone = dict(step_times(directory, row.batch))
    rows: dict[str, dict[str, Any]] = {}
    for step in plan.steps:
        parts = [(op, types) for op, types in members(step.problem) if isinstance(op, Conv)]
        if step.view or not parts:
            continue
        if step.problem.digest in rows:
            rows[step.problem.digest]["steps"] += 1
            continue
        texts = []
        for op, (x, w, *_) in parts:
            texts.append(text := convolution_text(op, x.shape, w.shape))
            if text not in known:
                if time.monotonic() > until:
                    return None
                known[text] = cudnn_us(op, x.shape, w.shape, arguments.plans)
        rows[step.problem.digest] = {
            "step": step.name, "kind": kind_of(step.problem), "kernel": str(step.candidate), "convolutions": texts,
            "us": 1e3 * alone[step.name], "cudnn_us": [known[text] for text in texts], "steps": 1,
        }  # fmt: skip
    return list(rows.values())


def measure(arguments: argparse.Namespace) -> int:
    operators()  # a plan's are found by their classes' names once they are imported
    until = time.monotonic() + arguments.limit
    known = load(arguments.folder / "cudnn.json") or (earlier_times() if arguments.known else {})
    for row in rows_of(arguments):
        path = arguments.folder / f"convolutions_{row.name}.json"
        if path.is_file() or time.monotonic() > until:
            continue
        found = measured(arguments, row, until, known)
        record.save(arguments.folder / "cudnn.json", known)
        if found is None:
            continue
        import torch

        head = record.environment("torch") | {
            "gpu": torch.cuda.get_device_name(), "cudnn": torch.backends.cudnn.version(), "plans": arguments.plans,
        }  # fmt: skip
        record.save(path, {"environment": head, "steps": found})
        print(json.dumps({"row": row.name} | peer_rows.summary(ratios(row, found))), flush=True)
    paths = {row.name: arguments.folder / f"convolutions_{row.name}.json" for row in rows_of(arguments)}
    left = [name for name, path in paths.items() if not path.is_file()]
    print(f"rows left: {', '.join(left) or 'none'}", flush=True)
    return 0


def earlier_times() -> dict[str, float]:
    """cuDNN's microseconds for each convolution of the result before; none where GPU or cuDNN were others."""
    import torch

    before = load(record.RESULTS / "cudnn_convolutions.json") or {}
    here = (torch.cuda.get_device_name(), torch.backends.cudnn.version())
    if (before.get("gpu"), before.get("cudnn")) != here:
        print(f"cuDNN's times of before are of {before.get('gpu')}, cuDNN {before.get('cudnn')}", flush=True)
        return {}
    steps = (step for row in before["rows"].values() for step in row["steps"])
    return {text: us for step in steps for text, us in zip(step["convolutions"], step["cudnn_us"], strict=True)}


def ratios(row: PeerRow, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """cuDNN's time over the kernel's, step by step, as `peer_rows.summary` reads them."""
    return [
        {"model": f"{row.model} {each['step']}", "batch": row.batch, "speedup": sum(each["cudnn_us"]) / each["us"]}
        for each in steps
    ]


def batch_summary(rows: dict[PeerRow, list[dict[str, Any]]]) -> dict[str, Any]:
    """Of all steps of a batch, and of those with one convolution (`single`), and what both sides take in whole engines:
    each step as often as it is there."""
    steps = [step for each in rows.values() for step in each]
    single = {row: [step for step in each if len(step["cudnn_us"]) == 1] for row, each in rows.items()}
    return {
        "all": peer_rows.summary([one for row, each in rows.items() for one in ratios(row, each)]),
        "single": peer_rows.summary([one for row, each in single.items() for one in ratios(row, each)]),
        "us": sum(step["us"] * step["steps"] for step in steps),
        "cudnn_us": sum(sum(step["cudnn_us"]) * step["steps"] for step in steps),
    }


def close(arguments: argparse.Namespace) -> int:
    found = {row: load(arguments.folder / f"convolutions_{row.name}.json") for row in rows_of(arguments)}
    there = {row: each for row, each in found.items() if each is not None}
    batches = sorted({row.batch for row in there})
    summaries = {
        f"b{batch}": batch_summary({row: each["steps"] for row, each in there.items() if row.batch == batch})
        for batch in batches
    }
    result = next(iter(there.values()))["environment"] | {
        "command": "python benchmarks/peers/cudnn_convolutions.py FOLDER measure (then close)",
        "precision": "fp16", "accumulator": "fp32", "rows_missing": [row.name for row in found if row not in there],
        "summary": summaries,
        "rows": {row.name: {"summary": peer_rows.summary(ratios(row, each["steps"])), "steps": each["steps"]}
                 for row, each in there.items()},
    }  # fmt: skip
    print(json.dumps(result["summary"], indent=1))
    print(record.write("cudnn_convolutions", result, arguments.out))
    return 1 if result["rows_missing"] else 0


def rows_of(arguments: argparse.Namespace) -> list[PeerRow]:
    return [row for row in ROWS if arguments.rows is None or row.name in arguments.rows]


def main() -> int:
    parser = peer_rows.parser_of(__doc__, "build", "measure", "close")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="only these, resnet50_b32 say")
    parser.add_argument("--plans", type=int, default=10, help="of cuDNN that its search times, 0: all")
    parser.add_argument("--known", action="store_true", help="measure: cuDNN's times as the result before has them")
    arguments = peer_rows.parsed(parser)
    if arguments.stage == "build":
        return cnn_peers.build(arguments, rows_of(arguments))
    return {"measure": measure, "close": close}[arguments.stage](arguments)


if __name__ == "__main__":
    sys.exit(main())
