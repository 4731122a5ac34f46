"""Products with weights that a transpose stands around: they multiply what lies behind each other, where it lies."""

from __future__ import annotations

import pytest
from planner_checks import graph

from bolt_build.dtypes import DType
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.products.placed_matmul import PlacedMatMul
from bolt_build.targets import target_named

FAMILY = Portable()


def layouts(lines: str, target: str = "h200", precision: DType = DType.F16) -> list[tuple[Layout, Layout]]:
    """Of what the product %m reads and makes, where it is offered as one of tokens."""
    of = graph(f"""
        graph g batch=2 (%x: f32[2,9,16]) -> (%y) {{
          const %w: f32[9,24] #
          const %v: f32[24,9] #
          const %u: f32[16,24] #
          const %b: f32[24] #
          {lines}
        }}""")
    node = next(each for each in of.nodes if each.name == "m")
    found, _ = FAMILY.propose(of, node, target_named(target), precision)
    problems = [each.steps[0].problem for each in found if isinstance(each.steps[0].problem.op, PlacedMatMul)]
    return [(each.inputs[0].format.layout, each.outputs[0].format.layout) for each in problems]


IN_FRONT = """
          %t = transpose(%x) perm=[0,2,1] // "t"
          %m = matmul(%t, %w, %b) | gelu // "m"
          %y = relu(%m) // "y"
"""
BEHIND_ANOTHER = """
          %t = transpose(%x) perm=[0,2,1] // "t"
          %f = matmul(%t, %w) | gelu // "f"
          %m = matmul(%f, %v) // "m"
          %y = relu(%m) // "y"
"""
BEHIND = """
          %m = matmul(%x, %u) // "m"
          %y = transpose(%m) perm=[0,2,1] // "y"
"""
NONE = """
          %m = matmul(%x, %u) // "m"
          %y = relu(%m) // "y"
"""
ROW, LAST = Layout.ROW, Layout.CHANNELS_LAST


@pytest.mark.parametrize("lines", [IN_FRONT, BEHIND_ANOTHER, BEHIND])
def test_products_near_a_transpose_of_rows_and_columns_are_offered_in_every_layout(lines: str) -> None:
    assert layouts(lines) == [(ROW, ROW), (ROW, LAST), (LAST, ROW), (LAST, LAST)]


def test_other_products_are_not() -> None:
    assert layouts(NONE) == []


def test_nor_are_they_where_no_tensor_cores_multiply() -> None:
    assert layouts(IN_FRONT, "host", DType.F32) == []
    assert layouts(IN_FRONT, "h200", DType.F32) == []


@pytest.mark.parametrize(("channels", "apart"), [(1, ()), (8, (0,))])
def test_a_factor_is_read_among_other_channels_unless_its_pixels_are_neighbours_without_them(
    channels: int, apart: tuple[int, ...]
) -> None:
    """Means of pixels by masks: kernels load several pixels of a single channel at once, which lie apart then."""
    left, made = f"[[2,{channels},4,8],[0,1,2,3],[2,{channels},32]]", f"[[2,{channels},16],[0,1,2],[2,{channels},16]]"
    of = graph(f"""
        graph g batch=2 (%m: f32[2,{channels},4,8], %x: f32[2,32,16]) -> (%y) {{
          %y = placed_matmul(%m, %x) left={left} right=[[2,32,16],[0,1,2],[2,32,16]] made={made} // "y"
        }}""")
    found, _ = FAMILY.propose(of, of.nodes[0], target_named("h200"), DType.F16)
    steps = [each.steps[0] for each in found if each.steps[0].problem.inputs[0].format.layout is LAST]
    assert {step.reads_apart[:1] if 0 in step.reads_apart else () for step in steps} == {apart}


def test_why_it_does_not_multiply_what_lies_there() -> None:
    of = graph("""
        graph g batch=2 (%x: f32[2,9,16]) -> (%y) {
          const %w: f32[9,24] #
          const %s: f32[24] #
          %t = transpose(%x) perm=[0,2,1] // "t"
          %m = matmul(%t, %w, %s) | mul(%s) // "m"
          %y = relu(%m) // "y"
        }""")
    _, refused = FAMILY.propose(of, of.nodes[1], target_named("h200"), DType.F16)
    reason = "numbers of one axis each do not follow a product that lies apart"
    assert {each.reason for each in refused} == {f"as a product of what lies there: {reason}"}
