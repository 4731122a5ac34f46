"""Windows over groups of channels that go down an image: which tiles there are, why not, and the C++."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import graph_with
from gpu_products import conv

from bolt_build.dtypes import DType
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.kind import candidate_of
from bolt_build.families.grouped.kinds import down
from bolt_build.families.grouped.kinds.down import DownTile
from bolt_build.families.grouped.registry import kinds_for
from bolt_build.families.grouped.shape import Shape, shape_of
from bolt_build.targets import Target, target_named

H200, A100, T4 = target_named("h200"), target_named("a100"), target_named("t4")
FAMILY = Grouped()
TILE = DownTile(units=4, strips=2, rows=28)


def shape(
    channels: int, filters: int, groups: int, kernel: tuple[int, int], *, stride: int = 1, dilation: int = 1
) -> Shape:
    layer = conv("grouped", (2, channels, 56, 56), filters, kernel, stride, None, dilation, groups, epilogue=())
    graph, node = graph_with(layer)
    return shape_of(FAMILY.propose(graph, node, H200, DType.F16)[0][0].steps[0].problem)


def refused(tile: DownTile, of: Shape, target: Target = H200) -> str | None:
    assert target.gpu is not None
    return tile.refuse(of, target.gpu)


def test_a_candidate_states_its_tile() -> None:
    of = shape(64, 64, 8, (7, 7))
    candidate = candidate_of(TILE, 1)
    assert str(candidate) == "grouped kind=down units=4 strips=2 rows=28 run=1"
    assert down.KIND.tile_of(candidate) == TILE
    assert H200.gpu is not None
    text = TILE.cxx(of, H200.gpu)
    assert text == "bolt::grouped::DownTile<bolt::grouped::Window<7, 7, 1, 1, 1, 1>, 8, 8, 4, 2, 28, 4, 40, 8, 8>"


@pytest.mark.parametrize(("channels", "groups", "kernel", "options"), [
    (64, 8, (3, 3), {}), (64, 8, (7, 7), {"stride": 2}), (64, 8, (5, 5), {"dilation": 2}), (96, 4, (5, 5), {}),
    (64, 64, (7, 7), {}),
])  # fmt: skip
def test_others_are_not_offered(channels: int, groups: int, kernel: tuple[int, int], options: dict[str, int]) -> None:
    """Small windows, steps, gaps, groups of over sixteen channels, and filters of one channel."""
    assert down.KIND not in kinds_for(shape(channels, channels, groups, kernel, **options))


def test_a_tile_that_does_not_fit_has_a_reason() -> None:
    of = shape(40, 40, 5, (7, 7))
    assert refused(replace(TILE, units=1, strips=1), of) == "blocks have 64 to 512 threads, not 32"
    assert refused(replace(TILE, units=8, strips=1), of) == "8 units are more than there are"


def test_weights_of_large_windows_over_sixteen_channels_have_no_room_in_registers() -> None:
    assert "registers" in str(refused(replace(TILE, units=1, strips=1), shape(64, 64, 4, (9, 9))))


def test_instructions_of_depth_sixteen_come_with_ampere() -> None:
    of = shape(64, 64, 8, (7, 7))
    assert refused(TILE, of, A100) is None
    assert refused(TILE, of, T4) == "multiplies two octets at once, with instructions of depth 16"


def test_small_groups_are_joined_into_one_octet() -> None:
    """Four channels a group, one result: two groups are a unit of eight channels and two results."""
    of = shape(64, 16, 16, (9, 9))
    assert TILE.warps(of) == 8
    assert TILE.parts(of) == 2
