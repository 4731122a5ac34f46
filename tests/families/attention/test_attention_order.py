"""Blocks of causal attention begin with the longest tiles of all heads, as long as L2 keeps what these read."""

from __future__ import annotations

import ctypes

import pytest
from compiled_headers import WARNINGS, library_of

from bolt_build import runtime
from bolt_build.families.attention.family import Attention
from bolt_build.families.portable.family import Portable

_PROGRAM = """\
#include "bolt_attention/launch.h"
extern "C" bool longest_first(int batch, int heads, int group, int keys, bool causal, int length) {
  bolt::attention::Arguments a{};
  a.batch = batch;
  a.heads = heads;
  a.group = group;
  a.queries = a.keys = keys;
  a.causal = causal;
  a.mask_images = 1;
  return bolt::attention::divided(a, 4, length).longest_first;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    includes = (runtime.include_dir(), Attention().include_dir, Portable().include_dir)
    flags = ("-std=c++20", "-O1", *WARNINGS)
    found = library_of(tmp_path_factory.mktemp("order"), _PROGRAM, includes, flags)
    found.longest_first.restype = ctypes.c_bool
    return found


@pytest.mark.parametrize(
    ("batch", "heads", "group", "keys", "causal", "longest"),
    [
        (8, 12, 1, 256, True, True),
        (8, 12, 1, 256, False, False),
        # Keys and values of 32 MiB, and of a quarter of it where heads share them.
        (4, 16, 1, 2048, True, False),
        (4, 16, 4, 2048, True, True),
    ],
)
def test_causal_tiles_begin_with_the_longest_where_keys_stay_in_cache(
    library: ctypes.CDLL, batch: int, heads: int, group: int, keys: int, causal: bool, longest: bool
) -> None:
    assert library.longest_first(batch, heads, group, keys, causal, 64 + 64) is longest


def test_tiles_that_are_no_causal_ones_keep_their_order(library: ctypes.CDLL) -> None:
    """Turns of windows are tiles too, each with images of its own."""
    assert not library.longest_first(8, 12, 1, 64, True, 0)
