"""The forms that activations have on a GPU, computed by a model whose approximate instructions err all they may."""

from __future__ import annotations

import ctypes
from itertools import product

import numpy as np
import pytest
from compiled_headers import WARNINGS, library_of

from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Array
from bolt_build.graph.ops.elementwise.activation import Activation

OF_FOUR = ("silu", "gelu_tanh", "mish")
"""Those that four neighbours have together."""
FUNCTIONS = (
    *("sigmoid", "silu", "hard_swish", "tanh", "softplus", "gelu", "gelu_tanh", "erf", "mish", "elu"),
    *(f"{name}_of_four" for name in OF_FOUR),
    *("asinh", "acosh", "atanh"),
)
NEAR_ZERO = (
    "asinh",
    "atanh",
    "tanh",
    "erf",
    "gelu",
    "hard_swish",
    "elu",
    *OF_FOUR,
    *(f"{name}_of_four" for name in OF_FOUR),
)

# The PTX ISA: ex2.approx is within 2 units in the last place of the correctly rounded result, rcp.approx within 1. The
# root errs as ex2 does, by a guess, the logarithm by 2^-22 of the larger of itself and 1.
_PROGRAM = """\
#include <cfloat>
#include "bolt_portable/fast_math.h"
namespace {
int exp2_error, reciprocal_error;
float flushed(float y) { return std::fabs(y) < FLT_MIN ? std::copysign(0.0f, y) : y; }
float off(float y, int units) {  // normal numbers alone have units to be off by
  if (!std::isnormal(y)) return flushed(y);
  return bolt::portable::float_of(bolt::portable::bits_of(y) + static_cast<std::uint32_t>(units));
}
struct Model {
  static float exp2(float x) { return off(static_cast<float>(std::exp2(double{flushed(x)})), exp2_error); }
  static float reciprocal(float x) { return off(1.0f / flushed(x), reciprocal_error); }
  static float sqrt(float x) { return off(std::sqrt(flushed(x)), exp2_error); }
  static float log2(float x) {
    const double y = std::log2(double{flushed(x)});
    const double error = exp2_error * std::fmax(1.0, std::fabs(y)) * 0x1p-23;
    return static_cast<float>(std::isfinite(y) ? y + error : y);
  }
  static float saturate(float x) { return x > 0.0f ? std::fmin(x, 1.0f) : 0.0f; }
};
template <typename Function>
void each(const float* x, float* y, int count, Function function) {
  for (int i = 0; i < count; ++i) y[i] = function(x[i]);
}
// With neighbours that are far from it: the least, the greatest and none.
void each(const float* x, float* y, int count, void (*function)(float (&)[4])) {
  for (int i = 0; i < count; ++i) {
    float four[4] = {-3e38f, 1.0f, std::nanf(""), 3e38f};
    four[i % 4] = x[i];
    function(four);
    y[i] = four[i % 4];
  }
}
}  // namespace
"""
_FUNCTION = """\
extern "C" void device_{name}(const float* x, float* y, int count, int exp2_units, int reciprocal_units) {{
  exp2_error = exp2_units, reciprocal_error = reciprocal_units;
  each(x, y, count, bolt::portable::Approximate<Model>::{name});
}}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    program = _PROGRAM + "".join(_FUNCTION.format(name=name) for name in FUNCTIONS)
    flags = ("-O2", "-ffp-contract=off", *WARNINGS)
    return library_of(tmp_path_factory.mktemp("activations"), program, (Portable().include_dir,), flags)


def on_device(library: ctypes.CDLL, name: str, x: Array, exp2_units: int = 0, reciprocal_units: int = 0) -> Array:
    y = np.empty_like(x)
    pointers = (array.ctypes.data_as(ctypes.c_void_p) for array in (x, y))
    getattr(library, f"device_{name}")(*pointers, ctypes.c_int(x.size), exp2_units, reciprocal_units)
    return y


def exactly(name: str, x: Array) -> Array:
    """The operator's own reference, in double precision."""
    op = Activation("elu", 1.0) if name == "elu" else Activation(name.removesuffix("_of_four"))
    (y,) = op.evaluate((x.astype(np.float64),))
    return y


def finite_values() -> Array:
    """Every number of half precision, floats of every exponent, and many where the functions are curved."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    floats = np.arange(0, 1 << 32, 65521, dtype=np.uint32).view(np.float32)
    curved = np.linspace(-20.0, 20.0, 100_001, dtype=np.float32)
    values = np.concatenate([halves, floats, curved, np.array([100.0, -100.0, 1e4, -1e4, 3.4e38, -3.4e38], np.float32)])
    return values[np.isfinite(values)]


VALUES = finite_values()
DOMAINS = {"acosh": lambda x: x >= 1.0, "atanh": lambda x: np.abs(x) < 1.0}
"""Where a function is a number."""


@pytest.mark.parametrize("name", DOMAINS)
def test_is_no_number_outside_of_its_domain(library: ctypes.CDLL, name: str) -> None:
    outside = VALUES[~DOMAINS[name](VALUES) & (np.abs(VALUES) != 1.0)]
    assert np.isnan(on_device(library, name, outside)).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_is_right_wherever_half_and_single_precision_look(library: ctypes.CDLL, name: str) -> None:
    values = VALUES[DOMAINS[name](VALUES)] if name in DOMAINS else VALUES
    wanted = exactly(name, values)
    normal = np.abs(wanted) >= 2.0**-14  # half precision's least normal number
    if name == "hard_swish":
        normal &= np.abs(values + 3.0) > 0.1  # x / 6 + 1/2 is rounded before it cancels, on hosts too
    for exp2_units, reciprocal_units in product((-2, 0, 2), (-1, 0, 1)):
        found = on_device(library, name, values, exp2_units, reciprocal_units).astype(np.float64)
        error = np.abs(found - wanted)
        assert np.max(error / (1.0 + np.abs(wanted))) <= 1e-6  # NaN is no such number
        assert np.max(error[normal] / np.abs(wanted[normal])) <= 2.0**-15


@pytest.mark.parametrize("name", FUNCTIONS)
def test_is_the_reference_at_infinities_and_nan(library: ctypes.CDLL, name: str) -> None:
    x = np.array([np.inf, -np.inf, np.nan], np.float32)
    wanted = exactly(name, x)
    if name == "gelu":
        wanted[1] = 0.0  # its limit: there the definition multiplies infinity by 0
    if name in ("silu_of_four", "gelu_tanh_of_four"):
        wanted[1] = 0.0
    least = 2e-8 if wanted[1] == 0.0 and name != "gelu" else 1e-30
    np.testing.assert_allclose(on_device(library, name, x), wanted, rtol=0.0, atol=least)


@pytest.mark.parametrize("name", NEAR_ZERO)
def test_is_right_relatively_where_it_is_near_zero(library: ctypes.CDLL, name: str) -> None:
    """bfloat16 has the exponents of single precision: the least numbers count there as the larger do."""
    x = np.geomspace(2.0**-100, 1.0, 20_001)[:-1].astype(np.float32)  # an atanh of 1 is infinite
    for both in (x, -x):
        wanted = exactly(name, both)
        assert np.max(np.abs(on_device(library, name, both, 2, -1) - wanted) / np.abs(wanted)) <= 2.0**-15
