"""Products of groups on tensor cores: whose depth warps share, what a halo takes, what predictions count."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import Layer
from gpu_products import conv
from grouped_tiles import DEEP, GROUPED, LINE
from proposed import one_problem

from bolt_build.families.base import KernelProblem
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.kind import candidate_of
from bolt_build.families.grouped.kinds.deep import DeepTile
from bolt_build.families.grouped.kinds.tensor_core import TensorCoreTile
from bolt_build.families.grouped.registry import kinds_for
from bolt_build.families.grouped.shape import shape_of
from bolt_build.targets import Target, target_named

FAMILY = Grouped()
H200, T4 = target_named("h200"), target_named("t4")


def problem_of(layer: Layer, target: Target = H200) -> KernelProblem:
    return one_problem(FAMILY, layer, target)


@pytest.mark.parametrize(
    ("tile", "layer", "target", "why"),
    [
        (replace(DEEP, n=3), LINE, H200, None),
        (DEEP, LINE, H200, "its sums take 168 registers of a thread, over 112 do not stay in them"),
        (replace(DEEP, across=1), LINE, H200, "blocks have 128 to 512 threads, not 64"),
        (
            replace(DEEP, across=8, n=3),
            LINE,
            H200,
            "takes 185 registers of a thread, 512 threads have 128",
        ),
        (
            replace(DEEP, columns=16, images=1, n=3),
            LINE,
            H200,
            "not all of its 2 warps have positions",
        ),
        (
            replace(DEEP, images=1, rows=8, columns=8, n=4, depth=4),
            conv("shallow", (32, 64, 56, 56), 64, (3, 3), groups=2),
            H200,
            "18 steps of depth are no two rounds of 16",
        ),
        (
            replace(DEEP, images=1, rows=8, columns=16, n=3, depth=1),
            conv("small", (32, 64, 7, 7), 64, (3, 3), groups=2),
            H200,
            "over half of the positions would be beyond the 7x7 of an image",
        ),
        (
            replace(DEEP, n=3, depth=4, stages=4),
            LINE,
            T4,
            "takes 78512 bytes of shared memory, a block has 65536",
        ),
    ],
)  # fmt: skip
def test_says_why_warps_do_not_share_the_depth(tile: DeepTile, layer: Layer, target: Target, why: str | None) -> None:
    assert target.gpu is not None
    assert tile.refuse(shape_of(problem_of(layer)), target.gpu) == why


def kind_of_first(layer: Layer) -> str:
    first, *_ = FAMILY.candidates(problem_of(layer), H200)[0]
    return dict(first.parameters)["kind"]


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        (LINE, "deep"),
        (conv("few", (32, 2048, 7, 7), 2048, (3, 3), groups=32), "deep"),
        (conv("stepping", (32, 2048, 14, 14), 2048, (3, 3), 2, groups=32), "deep"),
        (conv("many", (32, 1024, 28, 28), 1024, (3, 3), groups=32), "tensor_core"),
        (GROUPED, "tensor_core"),
    ],
    ids=lambda value: value.label if isinstance(value, Layer) else "",
)
def test_warps_share_the_depth_of_many_weights_and_few_positions(layer: Layer, kind: str) -> None:
    assert kind_of_first(layer) == kind


@pytest.mark.parametrize(("stride", "columns"), [(1, 9), (2, 16), (3, 21)])
def test_columns_of_a_halo_lie_in_as_many_turns_as_windows_step_over(stride: int, columns: int) -> None:
    """Each turn has as many columns as the first."""
    layer = conv("stepping", (2, 128, 28, 28), 128, (3, 3), stride, groups=2)
    rows, shape, gpu = (7 - 1) * stride + 3, shape_of(problem_of(layer)), H200.gpu
    assert gpu is not None
    pixel = 2 * 72
    # Beside weights of 36 steps in three stages of four: where the depth lies, and zeros.
    deep = DeepTile(2, 7, 7, 2, 2, 4, 2, 3)
    assert deep.shared_bytes(shape, gpu) == max(2 * rows * columns * pixel + 3 * 4 * 4 * 256, 4 * 128 * 40) + 288 + 16
    # Two halos, and sums of two warps.
    products = TensorCoreTile(1, 7, 7, 2, 2, 1, 8, held=False)
    assert products.shared_bytes(shape, gpu) == 2 * rows * columns * pixel + 288 + 2 * 16 * 8 * 9 * 4 + 16


@pytest.mark.parametrize(("channels", "deep"), [(24, False), (32, True)])
def test_only_deep_products_are_shared(channels: int, deep: bool) -> None:
    layer = conv("groups", (2, 4 * channels, 17, 17), 4 * channels, (3, 3), groups=4)
    assert ("deep" in {kind.header for kind in kinds_for(shape_of(problem_of(layer)))}) is deep


@pytest.mark.parametrize(
    ("layer", "tile", "run", "us"),
    [
        (LINE, TensorCoreTile(1, 1, 128, 2, 2, 1, 6, held=False), 1, 193.6),
        (
            conv("few", (32, 2048, 7, 7), 2048, (3, 3), groups=32),
            TensorCoreTile(2, 7, 7, 2, 2, 1, 8, held=False),
            1,
            24.7,
        ),
        (
            conv("stepping", (32, 2048, 14, 14), 2048, (3, 3), 2, groups=32),
            TensorCoreTile(2, 7, 7, 2, 2, 1, 8, held=False),
            4,
            89.3,
        ),
        (
            conv("many", (32, 1024, 14, 14), 1024, (3, 3), groups=32),
            TensorCoreTile(2, 7, 14, 4, 4, 1, 4, held=True),
            4,
            22.3,
        ),
    ],
    ids=lambda value: value.label if isinstance(value, Layer) else "",
)
def test_predictions_count_what_warps_wait_for(layer: Layer, tile: TensorCoreTile, run: int, us: float) -> None:
    """Weights of global memory, where few warps share a multiprocessor: times of an H200."""
    found = FAMILY.predict(problem_of(layer), candidate_of(tile, run), H200)
    assert us / 1.15 < found * 1e6 < us * 1.15
