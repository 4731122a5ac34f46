"""Poolings of known networks by windows that slide, beside the plain kernel: each is timed from a replayed graph over
buffers that exceed L2, and compared with the plain one, or at a batch of 1 with NumPy. In fp16, channels last, but for
those whose names say otherwise.

    python benchmarks/kernels/pool_windows.py FOLDER --prepare     # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/pool_windows.py FOLDER --out FILE    # on an H200: runs them

Of each shape and of each kernel that slides there are the first `--count` by prediction. FOLDER keeps what was
compiled. Times are us.
"""

from __future__ import annotations

import functools
import math
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import kernel_trials
from benchmarks.kernels.kernel_trials import best
from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, ProposedStep
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.images.pool_sliding import FORM
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.images.pool import Pool

sys.path[:0] = map(str, TESTS)

import gpu_harness
from families_harness import Input, Layer, graph_with
from gpu_products import TOLERANCE

FAMILY = Portable()
TARGET = gpu_harness.TARGET
BYTES_A_SECOND = 4.3e12
"""What the H200's memory gives to kernels that read and write."""
WAYS = ("sliding", "direct")
DIRECT = Candidate("portable", (("algorithm", "direct"),))


@dataclass(frozen=True)
class Shape:
    """A network's pooling: extent, channels, and square windows."""

    of: str
    extent: int
    channels: int
    mode: str
    cells: int
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    ceil_mode: bool = False
    padded: bool = False
    batch: int = 32
    precision: DType = DType.F16
    layout: Layout = Layout.CHANNELS_LAST

    @property
    def name(self) -> str:
        more = f" d{self.dilation}" if self.dilation > 1 else ""
        more += "" if self.precision is DType.F16 else f" {self.precision.value}"
        more += " in planes" if self.layout is Layout.ROW else ""
        what = f"{self.mode} {self.cells}x{self.cells}s{self.stride}"
        return f"{self.of} b{self.batch} {self.extent}x{self.extent}x{self.channels} {what}{more}"

    @property
    def layer(self) -> Layer:
        two = [(value,) * 2 for value in (self.cells, self.stride, self.pad, self.pad, self.dilation)]
        op = Pool(self.mode, *two, self.ceil_mode, self.padded)
        shape = (self.batch, self.channels, self.extent, self.extent)
        return Layer(self.name, op, (Input(shape),), (), self.precision, TOLERANCE)

    @functools.cached_property
    def step(self) -> ProposedStep:
        """Of the pooling in the shape's layout, stored in its precision."""
        graph, node = graph_with(self.layer)
        for alternative in FAMILY.propose(graph, node, TARGET, self.precision)[0]:
            (step,) = alternative.steps
            given, stored = step.problem.inputs[0].format, step.problem.outputs[0].format
            if given == stored and given.layout is self.layout:
                return step
        raise LookupError(self.name)


def _poolings(of: str, cells: str, *extents: tuple[int, int], **more: Any) -> Iterator[Shape]:
    """`cells` as "max 3x3s2"."""
    mode, (size, stride) = cells.split()[0], cells.split()[1].split("s")
    for extent, channels in extents:
        yield Shape(of, extent, channels, mode, int(size.split("x")[0]), int(stride), **more)


KNOWN = (
    *_poolings("Inception-v3", "average 3x3s1", (35, 192), (35, 256), (35, 288), (17, 768), (8, 1280), (8, 2048), pad=1,
               padded=True),
    *_poolings("Inception-v3", "max 3x3s2", (147, 64), (71, 192), (35, 288), (17, 768)),
    *_poolings("PoolFormer-S12", "average 3x3s1", (56, 64), (28, 128), (14, 320), (7, 512), pad=1),
    *_poolings("GoogLeNet", "max 3x3s1", (28, 192), (28, 256), (14, 480), (14, 512), (7, 832), pad=1),
    *_poolings("GoogLeNet", "max 3x3s2", (56, 192), (28, 480), ceil_mode=True),
    *_poolings("YOLO SPPF", "max 5x5s1", (20, 256), (40, 128), pad=2),
    *_poolings("YOLO SPP", "max 9x9s1", (20, 512), pad=4, batch=8),
    *_poolings("YOLO SPP", "max 13x13s1", (20, 512), pad=6, batch=8),
    *_poolings("ResNet", "max 3x3s2", (112, 64), pad=1),
    *_poolings("ResNet-D", "average 2x2s2", (56, 256), (28, 512), ceil_mode=True),
    *_poolings("DenseNet-121", "average 2x2s2", (56, 128), (28, 256), (14, 512)),
    *_poolings("VGG-16", "max 2x2s2", (224, 64), (112, 128), (56, 256), (28, 512), (14, 512)),
)  # fmt: skip
OTHERS = (
    Shape("other", 33, 256, "max", 3, pad=2, dilation=2), Shape("other", 45, 104, "average", 3, pad=1),
    Shape("other", 28, 68, "max", 3, pad=1),
    replace(KNOWN[2], precision=DType.F32), replace(KNOWN[2], layout=Layout.ROW), replace(KNOWN[6], layout=Layout.ROW),
)  # fmt: skip
ALONE = tuple(
    replace(each, batch=1)
    for each in KNOWN
    if (each.of, each.extent) in {("Inception-v3", 35), ("PoolFormer-S12", 56), ("YOLO SPPF", 20), ("ResNet", 112)}
)
SHAPES = (*KNOWN, *OTHERS, *ALONE)


def sliding(shape: Shape, count: int) -> list[Candidate]:
    """By prediction: of each compiled kernel so many, no two with as many windows below each other; and of the first
    one every run of channels."""
    problem, gpu = shape.step.problem, TARGET.gpu
    assert gpu is not None
    legal = [tile for tile in FORM.tiles(problem, gpu) if FORM.refuse_tile(problem, tile, gpu) is None]
    legal.sort(key=lambda tile: (FORM.seconds(problem, tile, TARGET), abs(tile.together - 8)))
    found = [tile for tile in legal if replace(tile, together=legal[0].together) == legal[0]]
    kept: Counter[tuple[int, ...]] = Counter()
    for tile in legal:
        kernel = (tile.across, tile.ahead)
        if kept[kernel] < count and not kept[*kernel, tile.down]:
            kept[kernel] += 1
            kept[*kernel, tile.down] += 1
            found.append(tile)
    return [
        Candidate("portable", (("algorithm", "sliding"), *tile.parameters), tile.settings)
        for tile in dict.fromkeys(found)
    ]


def planned(count: int) -> list[kernel_trials.Planned]:
    """Of each shape the plain kernel first, which those of large batches refer to."""
    found: list[kernel_trials.Planned] = []
    for shape in SHAPES:
        first, large = len(found), shape.batch > 1
        for candidate in (DIRECT, *sliding(shape, count)):
            trial = gpu_harness.Trial(shape.layer, shape.step, candidate, large=large, timed=True)
            reference = first if large and candidate != DIRECT else None
            found.append(
                (shape.name, str(dict(candidate.parameters)["algorithm"]), replace(trial, reference=reference))
            )
    return found


def predicted(trial: gpu_harness.Trial) -> float:
    """In us."""
    return 1e6 * FAMILY.predict(trial.step.problem, trial.candidate, TARGET)


def main() -> int:
    parser = kernel_trials.parser(__doc__, 2, "sliding kernels of each shape that are compiled alike")
    parser.add_argument("--seconds", type=float, default=400, help="after these no more shapes are begun")
    arguments = parser.parse_args()
    plan = planned(arguments.count)
    library = kernel_trials.library(arguments, [trial for *_, trial in plan], few=True)
    if library is None:
        return 0
    rows = kernel_trials.measured_rows(library, plan, WAYS, predicted, arguments.seconds)
    for shape in SHAPES:
        if shape.name in rows:
            row, problem = rows[shape.name], shape.step.problem
            row["bytes_us"] = problem.nbytes / BYTES_A_SECOND * 1e6
            row["best"] = {way: best(row[way]) for way in WAYS}
            times = {way: us or math.nan for way, us in row["best"].items()}
            print(f"{shape.name:52} bytes {row['bytes_us']:6.2f}, sliding {times['sliding']:7.2f}, plain "
                  f"{times['direct']:7.2f}, {times['direct'] / times['sliding']:.2f} times as fast")  # fmt: skip
    return kernel_trials.finish("pool_windows", arguments, {"shapes": rows, "wrong": kernel_trials.wrong(rows, WAYS)})


if __name__ == "__main__":
    sys.exit(main())
