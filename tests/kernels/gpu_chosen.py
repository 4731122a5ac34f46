"""Rows times the matrix that an index chooses for each, as layers that are tried on a GPU: sorted rows and others,
matrices in both orders, few rows of many matrices, ragged tiles, indices that count from the end."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer
from families_layers import RELU, stage
from gpu_asked import asked
from gpu_harness import TARGET, Trial, trials_of
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.products.chosen_product import ChosenTile
from bolt_build.families.portable.kernels.products.warpgroup_chosen import WarpgroupChosenTile
from bolt_build.graph.ops.products.chosen_matmul import ChosenMatMul

PORTABLE = Portable()


def chosen(
    label: str, rows: int, depth: int, matrices: int, columns: int, *, turned: bool = False, low: float = 0.0,
    even: bool = True, more: tuple[Input, ...] = (), precision: DType = DType.F16,
) -> Layer:  # fmt: skip
    stack = (matrices, columns, depth) if turned else (matrices, depth, columns)
    index = Input((rows,), low=low, high=matrices - 0.01, dtype=DType.I64, even=even)
    stages = (stage("add", 3), RELU) if more else ()
    inputs = (Input((rows, depth)), Input(stack, True), index, *more)
    return Layer(f"chosen-{label}", ChosenMatMul(turned), inputs, stages, precision, TOLERANCE)


LAYERS = (
    chosen("experts", 150, 48, 7, 72),
    chosen("any-order", 70, 64, 5, 136, turned=True, even=False),
    chosen("few", 6, 640, 40, 40, even=False),
    chosen("odd", 37, 45, 3, 131, low=-3.0, even=False, more=(Input((37, 131)),)),
    chosen("one-each", 64, 96, 64, 64, turned=True),
    chosen("one", 130, 32, 1, 36),
    chosen("grouped", 600, 72, 3, 200, even=False),
    chosen("many", 2500, 64, 9, 64, even=False),
    chosen("turned", 210, 136, 4, 261, turned=True, more=(Input((210, 261)),)),
)
TILES = {
    "chosen-experts": (ChosenTile(32, 64, 1, 3), ChosenTile(64, 32, 1, 2)),
    "chosen-any-order": (ChosenTile(32, 128, 1, 4), ChosenTile(64, 64, 1, 3)),
    "chosen-few": (ChosenTile(32, 32, 4, 2), ChosenTile(32, 64, 2, 4), ChosenTile(32, 128, 4, 3)),
    "chosen-odd": (ChosenTile(32, 32, 1, 2), ChosenTile(64, 128, 1, 4)),
    "chosen-one-each": (ChosenTile(64, 64, 1, 4), ChosenTile(128, 32, 1, 3)),
    "chosen-one": (ChosenTile(128, 64, 1, 3), ChosenTile(128, 128, 1, 4)),
}
WARPGROUPS = {
    "chosen-experts": ((2, 1, 128, 6, 1), (1, 2, 128, 3, 2)),
    "chosen-any-order": ((2, 1, 192, 5, 1), (1, 1, 64, 6, 2)),
    "chosen-few": ((1, 1, 64, 6, 2),),
    "chosen-grouped": ((3, 1, 192, 4, 1), (1, 1, 128, 4, 2), (1, 1, 192, 3, 2)),
    "chosen-many": ((2, 1, 128, 6, 1),),
    "chosen-turned": ((2, 1, 256, 4, 1), (1, 1, 256, 4, 1)),
}


def chosen_products() -> list[Trial]:
    """With these tiles and as prediction puts them."""
    found = []
    for layer in asked(LAYERS):
        trials = trials_of(layer, "portable", 2)
        plain = next(each for each in trials if each.shared is None)
        tiles = [("tensor_cores", tile.parameters) for tile in TILES.get(layer.label, ())]
        shapes = WARPGROUPS.get(layer.label, ()) if TARGET.gpu is not None and TARGET.gpu.warpgroup_mma else ()
        tiles += [("warpgroups", WarpgroupChosenTile(*shape).parameters) for shape in shapes]
        for algorithm, parameters in tiles:
            candidate = Candidate("portable", (("algorithm", algorithm), *parameters))
            reason = PORTABLE.refuse(plain.step.problem, candidate, TARGET)
            if reason is None:
                trials.append(replace(plain, candidate=candidate))
            else:  # a T4 has not room for all steps
                assert "bytes of shared memory" in reason
        found += list({trial.label: trial for trial in trials}.values())
    return found
