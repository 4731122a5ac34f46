"""Scale and shift of a normalisation, folded into the product behind it when an engine loads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from compiled_headers import library_of
from hypothesis import given
from hypothesis import strategies as st

from bolt_build import runtime
from bolt_build.families import load
from bolt_build.graph.ir import Array
from bolt_build.targets import target_named

_PROGRAM = """
#include "bolt_cutlass/plans/folded_norm.h"
using namespace bolt::cutlass_kernels;
template <typename Element>
long folded(int n, int k, float distance, const std::uint16_t* weights, const float* scale, const float* shift,
            const float* bias, std::byte* to) {
  const FoldedNorm<Element> norm{n, k, distance};
  if (to) norm.write(weights, scale, shift, bias, to);
  return static_cast<long>(norm.bytes());
}
#define FOLD(name)                                                                                             \\
  extern "C" long fold_##name(int n, int k, float distance, const std::uint16_t* w, const float* g,            \\
                              const float* h, const float* b, std::byte* to) {                                 \\
    return folded<bolt::portable::name>(n, k, distance, w, g, h, b, to);                                       \\
  }
FOLD(f16)
FOLD(bf16)
"""
H200 = target_named("h200")
TYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
HALF_A_STEP = {"f16": 2.0**-11, "bf16": 2.0**-8}
"""Of a number's last bit, in parts of the number."""
Fold = Callable[..., tuple[Array, Array, Array, float]]


@pytest.fixture(scope="module")
def fold(tmp_path_factory: pytest.TempPathFactory) -> Fold:
    """Weights [n, k], scale, shift and bias (or None) -> weights, biases and sums in fp64, and the factor."""
    includes = (runtime.include_dir(), *(each.include_dir for each in load(H200)))
    library = library_of(tmp_path_factory.mktemp("fold"), _PROGRAM, includes, ("-O1",))

    def folded(
        kind: str, weights: Array, scale: Array | None, shift: Array | None, bias: Array | None, distance: float = 2.0
    ) -> tuple[Array, Array, Array, float]:
        n, k = weights.shape
        call = getattr(library, f"fold_{kind}")
        call.restype = ctypes.c_long
        stored = np.ascontiguousarray(weights.astype(TYPES[kind]))
        vectors = [None if each is None else np.ascontiguousarray(each, np.float32) for each in (scale, shift, bias)]
        pointers = [None if each is None else ctypes.c_void_p(each.ctypes.data) for each in (stored, *vectors)]
        numbers = (ctypes.c_int(n), ctypes.c_int(k), ctypes.c_float(distance), *pointers)
        memory = np.full(call(*numbers, None), 0xFF, np.uint8)
        call(*numbers, ctypes.c_void_p(memory.ctypes.data))
        terms = memory[-(2 * n + 1) * 4 :].view(np.float32).astype(np.float64)
        of = memory[: n * k * 2].view(TYPES[kind]).astype(np.float64).reshape(n, k)
        return of, terms[:n], terms[n : 2 * n], float(terms[2 * n])

    return folded


def drawn(seed: int, n: int, k: int, size: float) -> tuple[Array, Array, Array, Array]:
    draw = np.random.RandomState(seed)
    return (
        draw.normal(size=(n, k)), (size * draw.uniform(0.5, 2, k)).astype(np.float32),
        draw.normal(size=k).astype(np.float32), draw.normal(size=n).astype(np.float32),
    )  # fmt: skip


@given(
    kind=st.sampled_from(list(TYPES)), seed=st.integers(0, 10**6), n=st.integers(1, 9), k=st.integers(1, 70),
    power=st.integers(-30, 10), missing=st.sets(st.sampled_from(["scale", "shift", "bias"])),
)  # fmt: skip
def test_scales_of_any_size_cost_no_bits(
    fold: Fold, kind: str, seed: int, n: int, k: int, power: int, missing: set[str]
) -> None:
    """A weight is rounded once, to the type's own bits, even where it would be no normal number of f16; sums are of
    what was rounded."""
    weights, scale, shift, bias = drawn(seed, n, k, 2.0**power)
    stored = weights.astype(TYPES[kind]).astype(np.float64)
    given_ = [None if name in missing else each for name, each in (("scale", scale), ("shift", shift), ("bias", bias))]
    found, biases, sums, factor = fold(kind, weights, *given_)
    wanted = stored if "scale" in missing else stored * scale.astype(np.float64)
    assert 512 <= np.abs(found).max() <= 1024
    assert factor == 2.0 ** round(np.log2(factor))
    # What is 2^24 times smaller than the largest has fewer bits in f16. Going through fp32 may tip a tie.
    least = 2.0**-25 * factor / 2
    np.testing.assert_allclose(found * (factor / 2), wanted, rtol=1.001 * HALF_A_STEP[kind], atol=least)
    np.testing.assert_allclose(sums, found.sum(axis=1), rtol=2e-7, atol=2e-4)
    moved = np.zeros(n) if "shift" in missing else stored @ shift.astype(np.float64)
    np.testing.assert_allclose(biases, moved + (0 if "bias" in missing else bias), rtol=1e-6, atol=1e-5)


def test_without_a_mean_the_factor_is_the_power_alone(fold: Fold) -> None:
    found, _, _, factor = fold("f16", np.ones((8, 32)), None, None, None, 1.0)
    assert (found.max(), found.min(), factor) == (512.0, 512.0, 2.0**-9)


def test_weights_of_zeros_stay_zeros(fold: Fold) -> None:
    found, biases, sums, factor = fold("f16", np.zeros((8, 32)), np.ones(32), np.ones(32), np.ones(8))
    assert not found.any()
    assert not sums.any()
    assert (biases == 1).all()
    assert factor == 2.0


def test_rows_that_are_no_multiple_of_16_bytes_are_followed_by_terms_that_begin_at_one(fold: Fold) -> None:
    weights, scale, shift, bias = drawn(3, 3, 5, 1.0)
    _, biases, _, _ = fold("f16", weights, scale, shift, bias)
    stored = weights.astype(np.float16).astype(np.float64)
    np.testing.assert_allclose(biases, stored @ shift + bias, rtol=1e-6, atol=1e-6)
