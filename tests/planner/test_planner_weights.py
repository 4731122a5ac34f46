"""How the table of weights stores constants in the element types of layers."""

from __future__ import annotations

import numpy as np
import pytest

from bolt_build.dtypes import DType
from bolt_build.graph.text import parse_graph
from bolt_build.planner.weights import WeightTable

GRAPH = parse_graph("""\
graph masks batch=1 (%x: f32[1,4]) -> (%y) {
  const %c: f32[4] {-3.4028235e+38, 70000, -inf, 0.1}
  %y: f32[1,4] = add(%x, %c)
}
""")


@pytest.mark.parametrize(("dtype", "least", "most"), [(DType.F16, -65504.0, 65504.0), (DType.BF16, -3.3895314e38, 7e4)])
def test_numbers_beyond_a_half_type_end_at_its_largest_and_infinity_stays(
    dtype: DType, least: float, most: float
) -> None:
    table = WeightTable()
    table.index(GRAPH, "c", dtype)
    (weight,) = table.weights()
    np.testing.assert_allclose(weight.array.astype(np.float64), [least, most, -np.inf, 0.1], rtol=3e-3)


def test_what_is_stored_as_it_is_stays_bit_for_bit() -> None:
    table = WeightTable()
    table.index(GRAPH, "c", DType.F32)
    np.testing.assert_array_equal(table.weights()[0].array, np.asarray([-3.4028235e38, 7e4, -np.inf, 0.1], np.float32))
