"""How far an engine may be from the reference."""

from __future__ import annotations

import numpy as np
import pytest

from bolt_build.dtypes import DType
from bolt_build.verify.compare import cosine, difference
from bolt_build.verify.tolerance import MOST_RMS, TOLERANCES


def test_a_network_that_amplifies_little_must_keep_the_rows_cosine() -> None:
    assert TOLERANCES[DType.F16].cosine_at(2e-3) == 0.999


@pytest.mark.parametrize("rms", [0.05, 0.16, MOST_RMS])
def test_an_error_as_large_as_the_rms_limit_allows_is_not_refused_for_its_cosine(rms: float) -> None:
    generator = np.random.default_rng(0)
    reference = generator.standard_normal(100_000)
    noise = generator.standard_normal(100_000)
    noise -= noise @ reference / (reference @ reference) * reference
    result = reference + 0.99 * rms * noise
    assert difference(result, reference).rms < rms
    assert cosine(result, reference) >= TOLERANCES[DType.F16].cosine_at(rms)


def test_limits_grow_with_depth_and_amplification_up_to_a_cap() -> None:
    row = TOLERANCES[DType.F16]
    assert row.at(1, 1.0) == (1e-2, 2e-3)
    assert row.at(16, 2.0) == pytest.approx((8e-2, 1.6e-2))
    assert row.at(10_000, 100.0) == (1.0, 0.3)
