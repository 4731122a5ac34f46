"""Kernels of GPUs divide by a product and a shift: the quotient is the exact one, of every count below 2^31."""

from __future__ import annotations

import ctypes

import pytest
from compiled_headers import library_of
from hypothesis import example, given
from hypothesis import strategies as st

from bolt_build.families.portable.family import Portable

MOST = 2**31 - 1
_PROGRAM = """\
#include "bolt_portable/divisor.h"
extern "C" std::uint32_t quotient(std::uint32_t count, std::uint32_t by) {
  return bolt::portable::Divisor(by).quotient(count);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return library_of(tmp_path_factory.mktemp("divisor"), _PROGRAM, (Portable().include_dir,))


@pytest.mark.parametrize("by", [*range(1, 70), *(2**k + e for k in range(7, 31) for e in (-1, 0, 1)), MOST])
def test_multiples_and_what_is_one_less(library: ctypes.CDLL, by: int) -> None:
    last = MOST // by * by
    for count in (0, by - 1, by, min(2 * by - 1, MOST), last - 1, last, MOST):
        assert library.quotient(count, by) == count // by


@given(st.integers(0, MOST), st.integers(1, MOST))
@example(MOST, 1)
@example(MOST - 1, MOST)
def test_any_count_by_any_number(library: ctypes.CDLL, count: int, by: int) -> None:
    assert library.quotient(count, by) == count // by
