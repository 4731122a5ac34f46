"""1x1 convolutions of few channels, and products behind a BatchNorm or a gate whose depth a cluster shares, beside the
other kernels for the same layers: `tiles` that warps share, `thin` rows that each warp has by itself; and for the
second `whole` depths and `sliced` ones. In fp16 with fp32 accumulation.

    # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/thin_products.py FOLDER --prepare
    python benchmarks/kernels/thin_products.py FOLDER --out FILE    # on an H200: runs them, compiled or not

Kernels of a layer are compared with its first one, which tests compare with NumPy. Each is timed from a replayed graph,
launches overlapped, over buffers that exceed L2. With torch, cuDNN's fastest for the convolution alone stands beside,
over the same buffers again and again, and `warm` are the kernels' times over one set of buffers too.

Of each way the first `--count` kernels by prediction are tried. FOLDER keeps what was compiled. Times are us.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import kernel_trials, prologue_kernels
from benchmarks.kernels.kernel_trials import best
from bolt_build.families.base import Candidate, ProposedStep
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.products.conv import Conv

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Layer, graph_with
from gpu_pairs import steps_of
from gpu_products import RESIDUAL, SILU, conv

TARGET, FAMILY = gpu_harness.TARGET, Cutlass()
BEHIND: dict[str, tuple[EpilogueOp, ...]] = {"": (), "ReLU": RESIDUAL[1:], "SiLU": SILU, "residual": RESIDUAL[:1]}
WAYS = ("tiles", "thin", "whole", "sliced")
PLANS, SECONDS = 10, 0.002
"""Plans that cuDNN's search times, and seconds for which a kernel is run over one set of buffers."""


@dataclass(frozen=True)
class Shape:
    """`channels` to `filters` over `extent` by `extent` pixels, and what follows."""

    batch: int
    extent: int
    channels: int
    filters: int
    behind: str = "ReLU"

    @property
    def name(self) -> str:
        words = f"b{self.batch} {self.extent}x{self.extent} {self.channels} to {self.filters}"
        return f"{words}, {self.behind}" if self.behind else words

    @property
    def layer(self) -> Layer:
        x = (self.batch, self.channels, self.extent, self.extent)
        return conv(self.name, x, self.filters, (1, 1), epilogue=BEHIND[self.behind])


SHAPES = (
    Shape(32, 112, 16, 96, "SiLU"), Shape(32, 112, 32, 16, ""), Shape(32, 112, 32, 64), Shape(32, 56, 24, 144, "SiLU"),
    Shape(32, 56, 16, 16), Shape(32, 56, 96, 24, ""), Shape(32, 56, 144, 24, "residual"), Shape(32, 56, 64, 64),
    Shape(32, 56, 64, 256, "residual"), Shape(32, 56, 104, 208), Shape(32, 28, 40, 240, "SiLU"),
    Shape(32, 28, 240, 40, ""), Shape(32, 28, 192, 32, "residual"), Shape(32, 28, 24, 88),
    Shape(8, 56, 24, 144, "SiLU"), Shape(1, 112, 16, 96),
)  # fmt: skip
PROLOGUES = tuple(
    prologue_kernels.Shape(extent, channels, filters, behind, pitch, batch)
    for batch, extent, channels, filters, behind, pitch in (
        (1, 28, 256, 128, "relu", 512), (1, 14, 512, 128, "relu", 1024), (1, 14, 992, 128, "relu", 1024),
        (1, 7, 992, 128, "relu", 1024), (8, 7, 992, 128, "relu", 1024), (32, 7, 992, 128, "relu", 1024),
        (32, 14, 512, 128, "relu", 1024), (1, 14, 672, 112, "add", 0), (1, 7, 1152, 192, "add", 0),
        (32, 7, 1152, 192, "add", 0),
    )
)  # fmt: skip


def way_of(candidate: Candidate) -> str:
    stated = dict(candidate.parameters)
    if "prologue" in stated:
        return "sliced" if "deep_cluster" in stated else "whole"
    return "thin" if "x" in stated else "tiles"


def first_of(layer: Layer, step: ProposedStep, count: int, between: int = 0) -> Iterator[kernel_trials.Planned]:
    """The first kernels of each way by prediction."""
    found: dict[str, list[Candidate]] = {way: [] for way in WAYS}
    for each in sorted(FAMILY.candidates(step.problem, TARGET)[0], key=lambda each: predicted(step, each)):
        found[way_of(each)].append(each)
    for way, of_way in found.items():
        for each in of_way[:count]:
            yield layer.label, way, gpu_harness.Trial(layer, step, each, timed=True, large=True, between=between)


def predicted(step: ProposedStep, candidate: Candidate) -> float:
    """In microseconds."""
    return 1e6 * FAMILY.predict(step.problem, candidate, TARGET)


def planned_of(count: int) -> list[kernel_trials.Planned]:
    """All kernels; those of a layer are compared with its first."""
    found: list[kernel_trials.Planned] = []
    for shape in SHAPES:
        graph, node = graph_with(shape.layer)
        step = FAMILY.propose(graph, node, TARGET, shape.layer.precision)[0][0].steps[0]
        found += first_of(shape.layer, step, count)
    for before in PROLOGUES:
        layer = replace(before.layers[0], label=f"b{before.batch} {before.name.split('x', before.batch != 32)[-1]}")
        between = before.pitch - before.channels if before.pitch else 0
        found += first_of(layer, steps_of(layer)[0], count, between)
    begins: dict[str, int] = {}
    return [
        (name, way, replace(trial, reference=None if at == index else at))
        for index, (name, way, trial) in enumerate(found)
        for at in [begins.setdefault(name, index)]
    ]


def warm(library: gpu_harness.Library, index: int) -> float | None:
    """A kernel's time over one set of buffers."""
    with mock.patch.object(gpu_harness, "sets_of", return_value=1):
        return library.run(index, SECONDS).microseconds


def cudnn(shape: Shape) -> float | None:
    """cuDNN's fastest for the convolution alone; None without torch."""
    if importlib.util.find_spec("torch") is None:
        return None
    from benchmarks.peers.cudnn_convolutions import cudnn_us

    x = (shape.batch, shape.channels, shape.extent, shape.extent)
    op = Conv((1, 1), (0, 0), (0, 0), (1, 1), 1)
    return cudnn_us(op, x, (shape.filters, shape.channels, 1, 1), PLANS)


def completed(rows: kernel_trials.Rows) -> dict[str, Any]:
    """With the fastest of each way, and how many times as long the fastest other one takes as the new one."""
    for row in rows.values():
        found = {way: best(row[way]) for way in WAYS}
        new = found["thin"] or found["sliced"]
        other = found["tiles"] or found["whole"]
        row["us"], row["gain"] = found, None if new is None or other is None else other / new
        row["warm"] = {way: best(row[way], "warm") for way in WAYS}
    return {"shapes": rows, "wrong": kernel_trials.wrong(rows, WAYS)}


def main() -> int:
    arguments = kernel_trials.parser(__doc__, 2, "kernels of each way").parse_args()
    planned = planned_of(arguments.count)
    library = kernel_trials.library(arguments, [trial for *_, trial in planned])
    if library is None:
        return 0
    rows = kernel_trials.measured_rows(library, planned, WAYS, lambda trial: predicted(trial.step, trial.candidate))
    places: dict[tuple[str, str], int] = {}
    for index, (name, way, _) in enumerate(planned):
        place = places[name, way] = places.get((name, way), -1) + 1
        rows[name][way][place]["warm"] = warm(library, index)
    for shape in SHAPES:
        rows[shape.name]["cudnn"] = cudnn(shape)
    return kernel_trials.finish("thin_products", arguments, completed(rows))


if __name__ == "__main__":
    sys.exit(main())
