"""Encoders' matrix products with the normalisation behind them, three ways: apart, in one kernel whose blocks exchange
the statistics of rows in clusters, and in one whose blocks exchange them through global memory. In fp16 with fp32
accumulation. Every kernel is compared with NumPy, then timed from a replayed graph over buffers that exceed L2.

    python benchmarks/kernels/norm_exchanges.py FOLDER --prepare  # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/norm_exchanges.py FOLDER --out FILE    # on an H200: runs them, compiled or not
    # the same: whether they end side by side
    timeout 120 python benchmarks/kernels/norm_exchanges.py FOLDER --streams 2
    python benchmarks/kernels/norm_exchanges.py --join FILE FILE  # anywhere: one result of the runs of several encoders

FOLDER keeps what was compiled. Times, measured and predicted, are us of one launch. `apart` is the time of the fastest
product and the normalisation. `gain` is the time of the fastest other way over that through memory, `expected` the same
by prediction. With `--streams` each kernel through memory is launched over and over on so many streams at once,
overlapping, as contexts that run at the same time do it: blocks of one might keep room from those that another waits
for.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS, record
from benchmarks.kernels import kernel_trials
from benchmarks.kernels.kernel_trials import best
from benchmarks.kernels.prenorm_kernels import PORTABLE, alone, predicted
from benchmarks.kernels.wave_tiles import ENCODERS, Encoder, is_new, locked, of_other_sizes
from bolt_build.families.base import Candidate, KernelProblem
from bolt_build.families.common.chains import parts

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Input
from gpu_norms import FAMILY, step_of

TARGET = gpu_harness.TARGET
WAYS = ("product", "norm", "cluster", "memory")
LAUNCHES = 1000
"""Of a kernel on each of several streams."""


def trials_of(encoder: Encoder, count: int) -> Iterator[kernel_trials.Planned]:
    """`count` kernels through memory and one in clusters, first by prediction; the normalisation; and of the product
    alone those of the lock, the first of a size that was timed before, and the first of another. BERT reads no sums
    that are not normalised."""
    for layer in (encoder.layers[1], encoder.layers[3]):
        both, step = step_of(layer, keeps=not encoder.name.startswith("BERT"))
        first, second = parts(step.problem)
        product = replace(both, label=f"{layer.label} alone", op=first.op, epilogue=first.epilogue, inputs=layer.inputs)
        normed = (Input(first.outputs[0].shape), *both.inputs[len(layer.inputs) :])
        norm = replace(both, label=f"{layer.label} norm", op=second.op, inputs=normed)
        together, own = by_prediction(step.problem), by_prediction(first)
        apart = locked(first, encoder.recipe)
        apart += of_other_sizes([each for each in own if not is_new(each)], 1)[:1]
        apart += of_other_sizes([each for each in own if is_new(each)], 1)[:1]
        for candidate in dict.fromkeys(apart):
            yield layer.label, "product", gpu_harness.Trial(product, alone(first), candidate)
        for candidate in PORTABLE.candidates(second, TARGET)[0]:
            yield layer.label, "norm", gpu_harness.Trial(norm, alone(second), candidate)
        stated = [dict(each.parameters) for each in together]
        clusters = [each for each, has in zip(together, stated, strict=True) if "norm" in has and "through" not in has]
        memory = [each for each, has in zip(together, stated, strict=True) if has.get("through") == "memory"]
        for way, found in (("cluster", clusters[:1]), ("memory", memory[:count])):
            for candidate in found:
                yield layer.label, way, gpu_harness.Trial(both, step, candidate)


def by_prediction(problem: KernelProblem) -> list[Candidate]:
    return sorted(FAMILY.candidates(problem, TARGET)[0], key=lambda each: FAMILY.predict(problem, each, TARGET))


def side_by_side(folder: Path, planned: Sequence[kernel_trials.Planned], streams: int) -> int:
    """How many kernels through memory were wrong on some stream; does not return where they wait for ever."""
    libraries, wrong = [gpu_harness.Library(folder) for _ in range(streams)], 0
    with ThreadPoolExecutor(streams) as pool:
        for index, (name, way, trial) in enumerate(planned):
            if way != "memory":
                continue
            for library in libraries:
                library.trials[index] = replace(trial, timed=False, launches=LAUNCHES)
            found = list(pool.map(lambda library, index=index: library.run(index), libraries))
            right = all(each.message == "" and each.error <= 1.0 for each in found)
            wrong += not right
            said = "right" if right else "; ".join(f"{each.message} {each.error}" for each in found)
            print(f"{name:34} {LAUNCHES} times on {streams} streams: {said}: {trial.candidate}", flush=True)
    return wrong


def joined(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The products of all, with the device and commands of the runs, which are on one machine."""
    if len({(each["device"], each["date"]) for each in results}) > 1:
        raise SystemExit("these runs are not of one device and day")
    products = {name: row for each in results for name, row in each["products"].items()}
    commands = "; ".join(each["command"] for each in results)
    wrong = sum(each["wrong"] for each in results)
    return {**results[0], "command": commands, "products": products, "wrong": wrong}


def planned_of(only: str, count: int) -> list[kernel_trials.Planned]:
    """Of encoders whose name begins with `only`."""
    return [
        (name, way, replace(trial, timed=True))
        for encoder in ENCODERS
        if encoder.name.startswith(only)
        for name, way, trial in trials_of(encoder, count)
    ]


def compare(rows: kernel_trials.Rows) -> None:
    """Adds both kernels apart, and how the fastest other way compares with that through memory."""
    for row in rows.values():
        for name, sum_name, field in (("gain", "apart", "us"), ("expected", "apart_predicted", "predicted")):
            product, norm, cluster, memory = (best(row[way], field) for way in WAYS)
            row[sum_name] = None if product is None or norm is None else product + norm
            others = [each for each in (row[sum_name], cluster) if each is not None]
            row[name] = min(others) / memory if others and memory is not None else None


def asked() -> argparse.Namespace:
    parser = kernel_trials.parser(__doc__, 2, "kernels through memory of each product")
    parser.add_argument("--only", default="", help="encoders whose name begins so")
    parser.add_argument("--streams", type=int, default=0, help="launch those through memory on so many streams at once")
    return parser.parse_args()


def join(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--join", type=Path, nargs="+", metavar="FILE", help="results of `--out`")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(words)
    record.write("norm_exchanges", joined([json.loads(each.read_text()) for each in arguments.join]), arguments.out)
    return 0


def main() -> int:
    if "--join" in sys.argv[1:]:
        return join(sys.argv[1:])
    arguments = asked()
    planned = planned_of(arguments.only, arguments.count)
    library = kernel_trials.library(arguments, [trial for *_, trial in planned], together=1)
    if library is None:
        return 0
    if arguments.streams:
        return min(side_by_side(arguments.folder, planned, arguments.streams), 1)
    rows = kernel_trials.measured_rows(library, planned, WAYS, predicted)
    wrong = kernel_trials.wrong(rows, WAYS)
    compare(rows)
    return kernel_trials.finish("norm_exchanges", arguments, {"products": rows, "wrong": wrong})


if __name__ == "__main__":
    sys.exit(main())
