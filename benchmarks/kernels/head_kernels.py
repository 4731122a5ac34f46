"""What is done to heads around attention: rotary positions and lengths, by the plain kernel and by that which has both
elements of a pair in one thread; and attention over channels, on tensor cores. Layers of decoders and encoders in fp16.
Each is timed from a replayed graph, launches overlapped, over buffers that exceed L2, and compared with NumPy.

    python benchmarks/kernels/head_kernels.py FOLDER --prepare   # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/head_kernels.py FOLDER --out FILE  # on an H200: runs them, compiled or not

Of each algorithm the first `--count` kernels by prediction are tried. FOLDER keeps what was compiled. Times are us.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import kernel_trials
from bolt_build.dtypes import DType
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Op
from bolt_build.graph.ops.attention.channel_attention import ChannelAttention
from bolt_build.graph.ops.attention.heads import HeadRows

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Input, Layer, graph_with
from gpu_products import TOLERANCE

FAMILY = Portable()
TARGET = gpu_harness.TARGET
WAYS = ("direct", "pairs", "tensor_cores")
"""Algorithms, as candidates call them."""


def turned(
    name: str, batch: int, rows: int, heads: int, depth: int, *, normed: bool = False, neighbours: bool = False
) -> Layer:
    """Heads of `depth` elements that share the cosines and sines of their row; pairs are halves, or neighbours."""
    op = HeadRows(heads, "rms" if normed else "", 1e-6 if normed else 0.0, normed, rotary=True, interleaved=neighbours)
    angles = Input((1, rows, 1, depth), True)
    scale = (Input((1, 1, heads, depth), True, 0.5, 2.0),) if normed else ()
    return _layer(name, op, Input((batch, rows, heads * depth)), *scale, angles, angles)


def channels(name: str, batch: int, rows: int, heads: int, depth: int) -> Layer:
    op = ChannelAttention(heads, 1.0, "l2", 1e-12, True)
    return _layer(name, op, Input((batch, rows, 3 * heads * depth)), Input((2 * heads, rows), True, 0.5, 2.0))


def _layer(name: str, op: Op, *inputs: Input) -> Layer:
    return Layer(name, op, inputs, (), DType.F16, TOLERANCE)


LAYERS = (
    turned("Qwen 3 8 x 256", 8, 256, 24, 128, normed=True), turned("Llama 1B 8 x 256", 8, 256, 40, 64),
    turned("ModernBERT 8 x 128", 8, 128, 24, 64), turned("Mistral 4096", 1, 4096, 40, 64),
    turned("EVA-02 tiny b32", 32, 197, 6, 64, neighbours=True), turned("Qwen 3 1 x 1", 1, 1, 24, 128, normed=True),
    channels("XCiT nano b32", 32, 196, 4, 32), channels("XCiT small b32", 32, 196, 8, 48),
    channels("EdgeNeXt b32, 88", 32, 256, 4, 22), channels("XCiT nano b1", 1, 196, 4, 32),
    channels("3136 rows b32", 32, 3136, 3, 32),
)  # fmt: skip


def planned(count: int) -> list[kernel_trials.Planned]:
    found: list[kernel_trials.Planned] = []
    for layer in LAYERS:
        graph, node = graph_with(layer)
        (step,) = FAMILY.propose(graph, node, TARGET, layer.precision)[0][0].steps
        stated = FAMILY.candidates(step.problem, TARGET)[0]
        for way in WAYS:
            some = [each for each in stated if dict(each.parameters)["algorithm"] == way]
            if way == "direct" and isinstance(layer.op, ChannelAttention):
                continue  # a thread a channel: for GPUs without tensor cores, and takes too long to time
            some.sort(key=lambda each: FAMILY.predict(step.problem, each, TARGET))
            found += [(layer.label, way, gpu_harness.Trial(layer, step, each, timed=True)) for each in some[:count]]
    return found


def main() -> int:
    parser = kernel_trials.parser(__doc__, 3, "kernels of each algorithm")
    arguments = parser.parse_args()
    plan = planned(arguments.count)
    library = kernel_trials.library(arguments, [trial for _, _, trial in plan])
    if library is None:
        return 0

    def predicted(trial: gpu_harness.Trial) -> float:
        return 1e6 * FAMILY.predict(trial.step.problem, trial.candidate, TARGET)

    rows = kernel_trials.measured_rows(library, plan, WAYS, predicted)
    for row in rows.values():
        row["us"] = {way: kernel_trials.best(row[way]) for way in WAYS}
    return kernel_trials.finish("head_kernels", arguments, {"layers": rows, "wrong": kernel_trials.wrong(rows, WAYS)})


if __name__ == "__main__":
    sys.exit(main())
