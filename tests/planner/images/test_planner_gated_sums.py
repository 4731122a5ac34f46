"""A gate and the residual beside it become one gate."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.planner.passes.images.gated_sums import GATE_SUMS


def gated(lines: str, outputs: str = "%y") -> str:
    return f"""
        graph g batch=2 (%x: f32[2,4,5,5], %g: f32[2,4,1,1], %z: f32[2,4,5,5]) -> ({outputs}) {{
          const %s: f32[4,1,1] #
          const %t: f32[1,4,1,1] #
          const %w: f32[1,1,5,5] #
          {lines}
        }}"""


def test_scale_and_shift_of_a_gated_tensor_beside_itself() -> None:
    before = graph(
        gated("""
          %a = mul(%x, %g) // "a"
          %b = mul(%s, %a) // "b"
          %c = add(%t, %b) // "c"
          %y = add(%x, %c) // "y"
    """)
    )
    result = run(GATE_SUMS, before)
    assert body(result.graph).splitlines() == [
        "%'y.gate.0 = mul(%g, %s)",
        "%'y.gate.1 = add(%'y.gate.0, %'y.one)",
        "%'y.gate.2 = mul(%x, %'y.gate.1)",
        '%y = add(%\'y.gate.2, %t) @y  // "a", "b", "c", "y"',
    ]
    assert said(result) == [("y", "made one gate", "of 'a' and the sum with 'x'")]


def test_a_gate_alone_beside_its_tensor() -> None:
    before = graph(gated('%a = mul(%g, %x) // "a"\n %y = add(%a, %x) // "y"'))
    assert body(run(GATE_SUMS, before).graph).splitlines() == [
        "%'y.gate.0 = add(%g, %'y.one)",
        '%y = mul(%x, %\'y.gate.0) @y  // "a", "y"',
    ]


@pytest.mark.parametrize(
    ("lines", "outputs"),
    [
        ('%a = mul(%x, %g) // "a"\n %y = add(%a, %z) // "y"', "%y"),
        ('%a = mul(%x, %z) // "a"\n %y = add(%a, %x) // "y"', "%y"),
        ('%a = mul(%x, %g) // "a"\n %y = add(%a, %x) // "y"', "%y, %a"),
        ('%a = mul(%x, %g) // "a"\n %b = relu(%a) // "b"\n %y = add(%b, %x) // "y"', "%y"),
        ('%a = mul(%x, %g) // "a"\n %b = add(%a, %t) // "b"\n %c = mul(%b, %z) // "c"\n %y = add(%c, %x) // "y"', "%y"),
        ('%a = mul(%x, %s) // "a"\n %y = add(%a, %x) // "y"', "%y"),
    ],
)
def test_other_sums_stay(lines: str, outputs: str) -> None:
    before = graph(gated(lines, outputs))
    assert run(GATE_SUMS, before).graph is before
