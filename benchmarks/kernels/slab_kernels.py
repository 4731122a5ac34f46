"""Kernels in which a product expands the halo of a depthwise convolution slab by slab: those that expand one slab while
they convolve the one in front of it (`ahead`), beside those whose slabs lie in one halo in turn (`turns`), and those
that keep the halo in registers (`strips`). Inverted
residuals of MobileNetV2, and what is in front of squeeze and excitation in EfficientNet-B0, with its means, at batch 32
in fp16. Each is timed from a replayed graph over buffers that exceed L2, and compared with the shape's first.

    python benchmarks/kernels/slab_kernels.py FOLDER --prepare  # anywhere with nvcc: writes and compiles the kernels
    python benchmarks/kernels/slab_kernels.py FOLDER --out FILE       # on an H200: runs them, compiled or not

Of each way the first `--count` tiles by prediction are tried, one of each extent. FOLDER keeps what was compiled. Times
are us.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import TESTS
from benchmarks.kernels import chain_kernels, kernel_trials
from benchmarks.kernels.chain_kernels import BATCH, MOBILENET_V2, Shape
from bolt_build.families.base import Candidate
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.neighbours.chain import Tile, chain_shape, tiles
from bolt_build.families.grouped.neighbours.strips_tile import StripsTile

sys.path[:0] = map(str, TESTS)

import gpu_harness
from gpu_depthwise_chains import averaged_step, step_of
from gpu_products import SILU

FAMILY = Grouped()
TARGET = gpu_harness.TARGET
WAYS = ("ahead", "turns", "strips")
EFFICIENTNET = (
    Shape(112, 16, 96, 0, stride=2, between=SILU), Shape(56, 24, 144, 0, between=SILU),
    Shape(56, 24, 144, 0, 5, 2, between=SILU), Shape(28, 40, 240, 0, 5, between=SILU),
    Shape(14, 80, 480, 0, between=SILU), Shape(14, 112, 672, 0, 5, between=SILU),
)  # fmt: skip
LAYERS = (
    *((shape, "chain" if shape.given == 0 else "inverted") for shape in MOBILENET_V2[:8]),
    *((shape, "averaged") for shape in EFFICIENTNET),
)


def way_of(tile: Tile) -> str:
    if isinstance(tile, StripsTile):
        return "strips"
    return "turns" if dict(tile.parameters).get("halos") == 1 else "ahead"


def trials_of(shape: Shape, way: str, count: int) -> list[tuple[str, gpu_harness.Trial]]:
    """Of all ways the first tiles of different extents by prediction."""
    layer = shape.layer(way)
    layer, step = averaged_step(layer) if way == "averaged" else (layer, step_of(layer))
    chain = chain_shape(step.problem)
    assert TARGET.gpu is not None
    legal = [tile for tile in tiles(chain) if tile.refuse(chain, TARGET.gpu) is None]
    legal.sort(key=lambda tile: tile.seconds(chain, TARGET))
    found: dict[str, dict[object, Tile]] = {way: {} for way in WAYS}
    for tile in legal:
        found[way_of(tile)].setdefault(tile.extent, tile)
    return [
        (name, gpu_harness.Trial(layer, step, Candidate("grouped", tile.parameters), large=True, timed=True))
        for name, some in found.items()
        for tile in list(some.values())[:count]
    ]


def planned(count: int) -> list[kernel_trials.Planned]:
    """Of each shape one kernel behind the other, all of which refer to the first."""
    found: list[kernel_trials.Planned] = []
    for shape, way in LAYERS:
        first = len(found)
        for name, trial in trials_of(shape, way, count):
            reference = None if len(found) == first else first
            found.append((trial.layer.label, name, replace(trial, reference=reference)))
    return found


def main() -> int:
    parser = kernel_trials.parser(__doc__, 3, "tiles of each way")
    parser.add_argument("--seconds", type=float, default=55, help="after these no more shapes are begun")
    arguments = parser.parse_args()
    plan = planned(arguments.count)
    if kernel_trials.library(arguments, [trial for _, _, trial in plan]) is None:
        return 0
    # Inputs are made in no time that matters beside a kernel's.
    library = chain_kernels.Library(arguments.folder)

    def predicted(trial: gpu_harness.Trial) -> float:
        return 1e6 * FAMILY.predict(trial.step.problem, trial.candidate, TARGET)

    rows = kernel_trials.measured_rows(library, plan, WAYS, predicted, arguments.seconds)
    for row in rows.values():
        row["us"] = kernel_trials.best([kernel for way in WAYS for kernel in row[way]])
    result = {"batch": BATCH, "layers": rows, "wrong": kernel_trials.wrong(rows, WAYS)}
    return kernel_trials.finish("slab_kernels", arguments, result)


if __name__ == "__main__":
    sys.exit(main())
