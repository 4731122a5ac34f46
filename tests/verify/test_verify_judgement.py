"""What counts as rounding, and what does not."""

from __future__ import annotations

import numpy as np
import pytest

from bolt_build.dtypes import DType
from bolt_build.verify.judgement import SPREAD, chance, different, judge, largest
from bolt_build.verify.rounding.rounding import UNIT

REFERENCE = np.random.default_rng(0).standard_normal((64, 1000)).astype(np.float32)
ONE = np.ones_like(REFERENCE)


def test_rounding_to_the_stored_type_passes_and_a_little_more_does_not() -> None:
    stored = REFERENCE.astype(np.float16)
    assert judge(stored, REFERENCE, None, DType.F16).used < 1
    assert judge(REFERENCE.astype(np.float16) * np.float16(1.002), REFERENCE, None, DType.F16).spread > SPREAD
    assert judge(stored, REFERENCE, None, DType.F32).used > 1


def test_one_element_is_measured_by_what_rounding_does_there() -> None:
    variance = ONE.copy()
    variance[3, 5] = 1e8
    wrong = REFERENCE.copy()
    wrong[3, 5] += np.float32(1e4 * UNIT)
    assert judge(wrong, REFERENCE, variance, DType.F32).largest < 2
    assert judge(wrong, REFERENCE, ONE, DType.F32).largest > largest(REFERENCE.size)


def test_the_more_elements_the_larger_the_largest_may_be() -> None:
    normal = np.random.default_rng(1).standard_normal(10**6)
    for count in (100, 10**4, 10**6):
        assert 2 * np.abs(normal[:count]).max() < largest(count) < 4 * np.abs(normal[:count]).max()


def test_few_elements_may_all_be_off_by_chance() -> None:
    random = np.random.default_rng(3)
    for count in (1, 2, 5, 20, 100):
        deviations = np.sqrt(np.mean(np.square(random.standard_normal((10**5, count))), axis=1))
        assert deviations.max() < chance(count) * SPREAD < max(2.5 * deviations.max(), 1.01 * SPREAD)
    one = np.float32([1.0])
    assert judge(one + np.float32(3 * UNIT), one, one, DType.F32).spread < SPREAD
    assert judge(one + np.float32(12 * UNIT), one, one, DType.F32).spread > SPREAD


def test_elements_that_are_the_same_number_are_rounded_as_one() -> None:
    """A convolution over an image of one number: all but the border is the same sum, off by the same part of it."""
    image = np.full((7, 7), 0.37, np.float32)
    image[0] = image[:, 0] = 0.25
    assert different(image) == pytest.approx(49**2 / (36**2 + 13**2))
    off = np.float32(1.0 + 2.0 * SPREAD * UNIT / np.sqrt(3.0))
    assert judge(image * off, image, None, DType.F32).used < 1
    assert judge(image * np.float32(1.0 + 8 * UNIT), image, None, DType.F32).used > 1
    random = np.random.default_rng(4).uniform(0.5, 1.0, (7, 7)).astype(np.float32)
    assert different(random) == pytest.approx(49)
    assert judge(random * off, random, None, DType.F32).used > 1
    assert different(np.zeros(9, np.float32)) == different(np.full(9, np.inf, np.float32)) == 1


def test_an_error_where_rounding_does_most_shows_in_the_sums() -> None:
    """Half of the tensor is a thousand times as large, and off by twice what rounding does there."""
    variance = np.where(np.arange(1000) < 500, 1.0, 1e6).astype(np.float32) * ONE
    noise = np.random.default_rng(2).standard_normal(REFERENCE.shape).astype(np.float32)
    wrong = REFERENCE + np.where(variance > 1, 1.6e3, 0).astype(np.float32) * UNIT * noise
    found = judge(wrong, REFERENCE, variance, DType.F32)
    assert found.largest < largest(REFERENCE.size)
    assert found.spread > SPREAD


@pytest.mark.parametrize(("size", "tells"), [(1e-9, False), (1e-3, True), (0.0, True)])
def test_a_tensor_no_larger_than_rounding_is_not_judged(size: float, tells: bool) -> None:
    reference = np.float32(size) * REFERENCE
    found = judge(reference, reference, ONE if size else None, DType.F32)
    assert found.used < 1
    assert found.tells is tells


def test_what_is_not_finite_is_counted_apart() -> None:
    array, reference = REFERENCE.copy(), REFERENCE.copy()
    array[0, :3] = np.nan, np.inf, -np.inf
    reference[0, 2:4] = np.nan, np.inf
    found = judge(array, reference, None, DType.F32)
    assert (found.not_finite, found.reference_not_finite, found.max_abs) == (2, 2, 0.0)


def test_what_is_no_number_on_both_sides_is_no_difference() -> None:
    """As a logarithm of a negative number is, which the model then does not choose."""
    array, reference = REFERENCE.copy(), REFERENCE.copy()
    array[0, :2] = reference[0, :2] = np.nan
    reference[0, 2] = np.nan
    found = judge(array, reference, None, DType.F32)
    assert (found.not_finite, found.reference_not_finite, found.max_abs) == (0, 1, 0.0)


def test_what_is_masked_on_both_sides_is_no_difference() -> None:
    array, reference = REFERENCE.copy(), REFERENCE.copy()
    lowest = np.finfo(np.float32).min
    array[0, :4] = reference[0, :4] = -np.inf, np.inf, lowest, lowest
    array[0, 4], reference[0, 4] = np.inf, -np.inf
    array[0, 5], reference[0, 5] = np.nextafter(lowest, np.float32(0)), lowest
    found = judge(array, reference, None, DType.F32)
    assert (found.not_finite, found.reference_not_finite, found.unbounded, found.max_abs) == (0, 1, 1, 0.0)


def test_a_mask_beyond_half_precision_is_infinite_there() -> None:
    """What is no mask, but has overflown, departs; so does the other infinity."""
    reference = np.random.RandomState(1).standard_normal((4, 50)).astype(np.float32)
    array = reference.copy()
    array[0, :2], reference[0, :2] = (-np.inf, np.inf), (np.finfo(np.float32).min, 3e38)
    assert judge(array, reference, None, DType.F16).not_finite == 0
    array[0, :2] = -65504.0, 65504.0
    assert judge(array, reference, None, DType.F16).tells
    array[1, :2], reference[1, :2] = (np.inf, np.inf), (7e4, -3e38)
    found = judge(array, reference, None, DType.F16)
    assert (found.not_finite, found.reference_not_finite) == (2, 0)


def test_where_rounding_may_do_anything_nothing_is_told() -> None:
    variance, array = ONE.copy(), REFERENCE.copy()
    variance[0, :2] = np.inf
    array[0, 0] += 1
    found = judge(array, REFERENCE, variance, DType.F32)
    assert (found.unbounded, found.tells) == (1, False)


def test_differences_beyond_what_can_be_squared_depart() -> None:
    array = REFERENCE.copy()
    array[0, 0] = 3e38
    found = judge(array, REFERENCE, None, DType.F32)
    assert found.used > 1
    assert np.isfinite([found.largest, found.spread, found.max_abs]).all()
