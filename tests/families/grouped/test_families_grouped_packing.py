"""How weights of grouped and depthwise convolutions are packed when an engine loads."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from compiled_headers import library_of

from bolt_build import runtime
from bolt_build.families.grouped.family import Grouped

FAMILY = Grouped()
_PACK = """
#include "bolt_grouped/fragments.h"
using namespace bolt::grouped;
extern "C" long planes(const std::uint16_t* from, std::uint16_t* to, const int* f) {
  const Planes layout{f[0], f[1], f[2]};
  if (to) layout.write(from, to);
  return static_cast<long>(layout.count());
}
extern "C" long fragments(const std::uint16_t* from, std::uint16_t* to, const int* f) {
  const Fragments layout{f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]};
  if (to) layout.write(from, to);
  return static_cast<long>(layout.count());
}
"""


@pytest.fixture(scope="module")
def packing(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    includes = (runtime.include_dir(), FAMILY.include_dir)
    return library_of(tmp_path_factory.mktemp("packing"), _PACK, includes, ())


def packed(packing: ctypes.CDLL, name: str, weights: np.ndarray, *fields: int) -> np.ndarray:  # type: ignore[type-arg]
    numbers = (ctypes.c_int * len(fields))(*fields)
    function = getattr(packing, name)
    to = np.zeros(function(None, None, numbers), np.uint16)
    function(weights.ctypes.data_as(ctypes.c_void_p), to.ctypes.data_as(ctypes.c_void_p), numbers)
    return to


def test_planes_are_filters_tap_by_tap(packing: ctypes.CDLL) -> None:
    weights = np.arange(1, 1 + 5 * 9, dtype=np.uint16).reshape(5, 9)
    found = packed(packing, "planes", weights, 5, 9, 8).reshape(9, 8)
    assert (found[:, :5] == weights.T).all()
    assert not found[:, 5:].any()


@pytest.mark.parametrize("instruction", [8, 16])
@pytest.mark.parametrize(
    ("groups", "joined", "given", "made"), [(4, 2, 4, 4), (5, 2, 3, 5), (3, 1, 24, 20), (2, 1, 9, 7)]
)
def test_fragments_are_block_diagonal_factors(
    packing: ctypes.CDLL, groups: int, joined: int, given: int, made: int, instruction: int
) -> None:
    taps, units, tiles = 9, -(-groups // joined) + 1, -(-joined * made // 8)
    weights = np.random.RandomState(0).randint(1, 60000, (groups * made, given, taps)).astype(np.uint16)
    found = packed(packing, "fragments", weights, groups, joined, given, made, taps, units, tiles, instruction)
    octets, parts = -(-joined * given // 8), instruction // 8
    # Unit, step, runs of results, result and pair of channels of a lane, octet of the step, channel of the pair.
    lanes = found.reshape(units, -1, tiles, 8, 4, parts, 2)
    depth = lanes.transpose(0, 2, 3, 1, 5, 4, 6).reshape(units, tiles * 8, -1)
    wanted = np.zeros((units, tiles * 8, taps, octets * 8), np.uint16)
    for group in range(groups):
        unit, at = divmod(group, joined)
        block = weights[group * made : (group + 1) * made].transpose(0, 2, 1)
        wanted[unit, at * made : (at + 1) * made, :, at * given : (at + 1) * given] = block
    wanted = wanted.reshape(units, tiles * 8, -1)
    assert (depth[:, :, : wanted.shape[2]] == wanted).all()
    assert not depth[:, :, wanted.shape[2] :].any()
