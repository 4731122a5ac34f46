"""Kernels of recurrences: which there are, which are refused and why, and what they are expected to take."""

from __future__ import annotations

import pytest
from families_harness import Layer
from gpu_harness import TARGET, trials_of
from scan_layers import FIRST, SCANS, layer_of, scan

from bolt_build.families.base import KernelProblem
from bolt_build.families.portable.kernels.recurrent.state_scan import FORM, ScanTile
from bolt_build.graph.ir import ShapeError, TensorType


def problem(layer: Layer) -> KernelProblem:
    return trials_of(layer, "portable")[0].step.problem


def named(label: str) -> Layer:
    return next(layer for layer in SCANS if layer.label == f"scan-{label}")


def test_every_recurrence_has_a_kernel_whose_lanes_are_threads_of_their_own() -> None:
    assert TARGET.gpu is not None
    for layer in SCANS:
        of = problem(layer)
        legal = [tile for tile in FORM.tiles(of, TARGET.gpu) if FORM.refuse_tile(of, tile, TARGET.gpu) is None]
        assert legal, layer.label


@pytest.mark.parametrize(
    ("label", "tile", "reason"),
    [
        (
            "first",
            ScanTile(3, 1, 32),
            "1 to 32 threads of 32, 64 or 128 share a lane and ask for 1 to 32 steps at once, powers of two",
        ),
        ("first", ScanTile(2, 1, 32), "1 elements are added up, too few for 2 threads"),
        ("delta-100", ScanTile(1, 1, 64), "a thread would keep 100 numbers in registers, at most 48 are worth it"),
        ("delta-64", ScanTile(2, 2, 32), "a thread would wait for 132 numbers at once, at most 64 are worth it"),
        ("matrix", ScanTile(1, 8, 128), "5 steps are fewer than 8"),
    ],
)
def test_says_why_a_tile_is_none(label: str, tile: ScanTile, reason: str) -> None:
    assert TARGET.gpu is not None
    assert str(FORM.refuse_tile(problem(named(label)), tile, TARGET.gpu)) == reason


def test_more_steps_take_longer_and_more_lanes_do_not_until_memory_is_busy() -> None:
    def seconds(steps: int, lanes: int) -> float:
        op = scan((steps, lanes), ("ta", "ta", "a"), FIRST, (4,), 4, (0, 1))
        return FORM.seconds(
            problem(layer_of("long", op, ((steps, lanes), (steps, lanes), (lanes,)))), ScanTile(1, 4, 128), TARGET
        )

    assert seconds(200, 100) > 1.5 * seconds(100, 100)
    assert seconds(100, 100) == seconds(100, 1000)
    assert seconds(100, 4_000_000) > 20 * seconds(100, 1000)


@pytest.mark.parametrize(
    ("reads", "shapes", "reason"),
    [
        (("ta", "ta", "ta"), ((4, 3), (4, 3), (4, 3)), "input 2 is a first state and has steps"),
        (("ta", "ta", "a"), ((4, 3), (3, 3), (3,)), "input 1 of shape [3, 3] does not reach as far as the space"),
    ],
)
def test_says_what_it_does_not_reach(reads: tuple[str, ...], shapes: tuple[tuple[int, ...], ...], reason: str) -> None:
    op = scan((4, 3), reads, FIRST, (4,), 4, (0, 1))
    layer = layer_of("wrong", op, shapes)
    with pytest.raises(ShapeError) as error:
        op.infer([TensorType(given.dtype, given.shape) for given in layer.inputs])
    assert str(error.value) == reason
