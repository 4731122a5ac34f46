"""The power of half precision that GPUs have, computed by a model whose approximate instructions err all they may."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import pytest
from compiled_headers import WARNINGS, library_of

from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Array

# The PTX ISA: ex2.approx is within 2 units in the last place, lg2.approx within 2^-22, of itself or of 1.
_PROGRAM = """\
#include <cfloat>
#include "bolt_portable/fast_math.h"
namespace {
float exp2_error, log2_error;
float flushed(float y) { return std::fabs(y) < FLT_MIN ? std::copysign(0.0f, y) : y; }
struct Model {
  static float exp2(float x) {
    return flushed(static_cast<float>(std::exp2(double{x}) * (1 + exp2_error * std::ldexp(1.0, -23))));
  }
  static float log2_of_any(float x) {
    const double y = std::log2(double{x});
    return static_cast<float>(std::isfinite(y) ? y + log2_error * std::ldexp(std::fmax(1.0, std::fabs(y)), -22) : y);
  }
  static float log2(float x) { return log2_of_any(flushed(x)); }
  static std::uint32_t once(std::uint32_t value) { return value; }
};
}  // namespace
extern "C" void powers(const float* x, const float* y, float* z, int count, bool tiny, float exp2, float log2) {
  exp2_error = exp2, log2_error = log2;
  using Device = bolt::portable::Approximate<Model>;
  for (int i = 0; i < count; ++i) z[i] = tiny ? Device::power<true>(x[i], y[i]) : Device::power<false>(x[i], y[i]);
}
"""
_HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
_EXPONENTS = np.array(
    [0, -0.0, 1, -1, 2, 3, -3, 0.5, -0.5, 0.7, 1.5, 2.2, -2.2, 10, 11, 1e-3, 1e-7, 1000, 1001, -4097, 3e4, 65504,
     16777215, 16777216, 3e38, -3e38, np.inf, -np.inf, np.nan],
    np.float32,
)  # fmt: skip


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    flags = ("-O2", "-ffp-contract=off", *WARNINGS)
    return library_of(tmp_path_factory.mktemp("powers"), _PROGRAM, (Portable().include_dir,), flags)


def on_device(library: ctypes.CDLL, x: Array, y: Array, tiny: bool, exp2: float = 0, log2: float = 0) -> Array:
    x, y = np.ascontiguousarray(x, np.float32), np.ascontiguousarray(y, np.float32)
    z = np.empty_like(x)
    pointers = (array.ctypes.data_as(ctypes.c_void_p) for array in (x, y, z))
    library.powers(*pointers, x.size, ctypes.c_bool(tiny), ctypes.c_float(exp2), ctypes.c_float(log2))
    return z


def pairs() -> tuple[Array, Array]:
    """All numbers of half precision to chosen exponents, and to some drawn so that results are numbers of it."""
    drawn = np.random.default_rng(1).uniform(-24, 16, _HALVES.size)
    with np.errstate(all="ignore"):
        spread = (drawn / np.log2(np.abs(_HALVES.astype(np.float64)))).astype(np.float32)
    x = np.concatenate([np.tile(_HALVES, _EXPONENTS.size), _HALVES, _HALVES])
    y = np.concatenate([np.repeat(_EXPONENTS, _HALVES.size), spread, np.rint(spread)])
    return x, y


def exactly(x: Array, y: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.power(x.astype(np.float64), y.astype(np.float64))


@pytest.mark.parametrize(("exp2", "log2"), [(0, 0), (2, 1), (-2, -1), (2, -1), (-2, 1)])
def test_powers_of_all_halves_are_within_what_is_stated(library: ctypes.CDLL, exp2: float, log2: float) -> None:
    x, y = pairs()
    found, wanted = on_device(library, x, y, False, exp2, log2), exactly(x, y)
    normal = (np.abs(wanted) <= 65504) & (np.abs(wanted) >= 2.0**-24)
    assert np.all(np.abs(found[normal] - wanted[normal]) <= 2.0**-16 * np.abs(wanted[normal]))


def test_they_have_the_answers_of_c_where_either_side_is_zero_infinite_or_no_number(library: ctypes.CDLL) -> None:
    x, y = pairs()
    found, wanted = on_device(library, x, y, False), exactly(x, y)
    with np.errstate(all="ignore"):
        found, wanted = found.astype(np.float16), wanted.astype(np.float16)
    special = ~np.isfinite(wanted) | (wanted == 0) | (wanted == 1)
    # One unit where a result rounds to the greatest number or beyond it, or to the least or zero.
    edge = np.isin(np.abs(found), [np.inf, 65504, 2.0**-24, 0]) & np.isin(np.abs(wanted), [np.inf, 65504, 2.0**-24, 0])
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    assert np.array_equal(np.signbit(found[~np.isnan(wanted)]), np.signbit(wanted[~np.isnan(wanted)]))
    unlike = special & ~np.isnan(wanted) & (found != wanted)
    assert np.all(edge[unlike] | (np.abs(found[unlike] - 1) <= 2.0**-10))
    assert np.count_nonzero(unlike) < 50
    exact = np.isin(np.abs(x), [0, 1, np.inf]) | ~np.isfinite(y) | (y == 0)
    assert np.array_equal(found[exact], wanted[exact], equal_nan=True)


def test_numbers_of_bf16_below_the_least_normal_one_have_powers_too(library: ctypes.CDLL) -> None:
    x = np.arange(1 << 15, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)
    for exponent in (0.25, 0.9, 1.0, 3.0, -0.5):
        y = np.full_like(x, exponent)
        found, wanted = on_device(library, x, y, True, 2, -1), exactly(x, y)
        normal = (wanted <= 3.3e38) & (wanted >= 2.0**-125)
        assert np.all(np.abs(found[normal] - wanted[normal]) <= 2.0**-13 * wanted[normal])
        assert np.array_equal(np.isnan(found), np.isnan(wanted))
