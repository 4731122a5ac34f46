"""In which order blocks take the tiles of a product: every tile once, clusters side by side."""

from __future__ import annotations

import ctypes
from collections import Counter
from dataclasses import dataclass

import pytest
from compiled_headers import library_of
from hypothesis import given
from hypothesis import strategies as st

from bolt_build.families import load
from bolt_build.targets import target_named

_CUDA = """\
#pragma once
#define __CUDACC__
#define __device__
#define __host__
struct dim3 { unsigned x = 1, y = 1, z = 1; dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {} };
inline dim3 blockIdx{0}, gridDim{1};
"""
_PROGRAM = """\
#include "bolt_cutlass/warpgroups/warpgroup_order.h"
template <int m, int n>
int order(const int* of, int multiprocessors, unsigned* grid, int* tiles) {
  const auto order = bolt::cutlass_kernels::TileOrder<m, n>::of(of[0], of[1], of[2], of[3], of[4]);
  gridDim = order.grid(multiprocessors);
  grid[0] = gridDim.x, grid[1] = gridDim.y;
  int count = 0;
  for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
      int turn = 0;
      for (unsigned tile = order.first(); tile < order.tiles; tile += gridDim.x * gridDim.y) {
        const auto place = order.place(tile);
        const int found[] = {int(blockIdx.x), int(blockIdx.y), turn++, place.row, place.column, place.slice};
        for (const int value : found) *tiles++ = value;
        ++count;
      }
    }
  return count;
}
#define ORDER(m, n)                                                                             \\
  extern "C" int order_##m##x##n(const int* of, int sms, unsigned* grid, int* tiles) {          \\
    return order<m, n>(of, sms, grid, tiles);                                                   \\
  }
ORDER(1, 1)
ORDER(2, 1)
ORDER(1, 2)
"""
_MOST = 1 << 16


@dataclass(frozen=True)
class Taken:
    """A tile that a block takes in its `turn`."""

    block: tuple[int, int]
    turn: int
    row: int
    column: int
    slice: int


@dataclass(frozen=True)
class Orders:
    library: ctypes.CDLL

    def __call__(
        self, rows: int, columns: int, slices: int = 1, *, swizzle: int = 1, direction: int = 0,
        cluster: tuple[int, int] = (1, 1), multiprocessors: int = 132,
    ) -> tuple[tuple[int, int], list[Taken]]:  # fmt: skip
        """The grid, and what its blocks take."""
        grid, tiles = (ctypes.c_uint * 2)(), (ctypes.c_int * (6 * _MOST))()
        of = (ctypes.c_int * 5)(rows, columns, slices, swizzle, direction)
        function = getattr(self.library, f"order_{cluster[0]}x{cluster[1]}")
        count = function(of, multiprocessors, grid, tiles)
        assert count <= _MOST
        found = (tiles[6 * index : 6 * index + 6] for index in range(count))
        return (grid[0], grid[1]), [Taken((x, y), turn, row, column, s) for x, y, turn, row, column, s in found]


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Orders:
    (family,) = [family for family in load(target_named("h200")) if family.name == "cutlass"]
    return Orders(library_of(tmp_path_factory.mktemp("order"), _PROGRAM, (family.include_dir,), cuda=_CUDA))


@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 24),
    slices=st.integers(1, 3),
    swizzle=st.sampled_from([1, 2, 4, 8]),
    direction=st.sampled_from([0, 1, 2]),
    cluster=st.sampled_from([(1, 1), (2, 1), (1, 2)]),
    multiprocessors=st.sampled_from([2, 7, 16, 132]),
)
def test_every_tile_is_taken_once_and_clusters_stay_together(
    orders: Orders, rows: int, columns: int, slices: int, swizzle: int, direction: int, cluster: tuple[int, int],
    multiprocessors: int,
) -> None:  # fmt: skip
    (across, down), taken = orders(
        rows, columns, slices, swizzle=swizzle, direction=direction, cluster=cluster, multiprocessors=multiprocessors
    )
    assert across * down <= multiprocessors
    assert across % cluster[0] == 0
    assert down % cluster[1] == 0
    counts = Counter((each.row, each.column, each.slice) for each in taken)
    assert set(counts.values()) == {1}
    wanted = {(row, column, s) for row in range(rows) for column in range(columns) for s in range(slices)}
    assert wanted <= set(counts)
    outside = -rows % cluster[0] * columns + -columns % cluster[1] * (rows + -rows % cluster[0])
    assert len(counts) == (rows * columns + outside) * slices
    at = {(each.block, each.turn): each for each in taken}
    for each in taken:
        x, y = each.block
        first = at[(x - x % cluster[0], y - y % cluster[1]), each.turn]
        place = (first.row + x % cluster[0], first.column + y % cluster[1], first.slice)
        assert (each.row, each.column, each.slice) == place


def drawn(taken: list[Taken], rows: int, columns: int) -> list[str]:
    """The order in which one block, or one cluster of them, takes the tiles: a digit a tile."""
    digits = {(each.row, each.column): f"{each.turn:x}" for each in taken}
    return [" ".join(digits[row, column] for column in range(columns)) for row in range(rows)]


def test_blocks_go_along_the_direction_with_fewer_tiles(orders: Orders) -> None:
    assert drawn(orders(3, 2, multiprocessors=1)[1], 3, 2) == ["0 1", "2 3", "4 5"]
    assert drawn(orders(2, 3, multiprocessors=1)[1], 2, 3) == ["0 2 4", "1 3 5"]


def test_a_direction_that_is_asked_for_is_taken(orders: Orders) -> None:
    assert drawn(orders(3, 2, direction=1, multiprocessors=1)[1], 3, 2) == ["0 3", "1 4", "2 5"]
    assert drawn(orders(2, 3, direction=2, multiprocessors=1)[1], 2, 3) == ["0 1 2", "3 4 5"]


def test_bands_are_as_wide_as_the_swizzle(orders: Orders) -> None:
    taken = orders(4, 3, swizzle=2, direction=2, multiprocessors=1)[1]
    assert drawn(taken, 4, 3) == ["0 2 4", "1 3 5", "6 8 a", "7 9 b"]


def test_the_last_band_is_as_wide_as_what_is_left(orders: Orders) -> None:
    """Whole bands beyond the product would leave some blocks without tiles, in the same places of every round."""
    taken = orders(5, 2, swizzle=4, direction=2, multiprocessors=1)[1]
    assert drawn(taken, 5, 2) == ["0 2", "1 3", "4 6", "5 7", "8 9"]
    assert len(orders(5, 5, swizzle=8, multiprocessors=1)[1]) == 25
    assert len(orders(96, 18, swizzle=8, multiprocessors=1)[1]) == 96 * 18


def test_a_cluster_takes_neighbours_at_once(orders: Orders) -> None:
    taken = orders(4, 2, cluster=(2, 1), multiprocessors=3)[1]
    assert drawn(taken, 4, 2) == ["0 1", "0 1", "2 3", "2 3"]
