"""Products of one input with few rows become one product."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.rows.few_rows import SHARE_FEW_ROWS


def word(lines: str, rows: str = "2,1", outputs: str = "(%y, %z)") -> Graph:
    """Keys and values of one word, which join a cache."""
    made = "\n".join(f'{line.strip()} // "{line.split()[0][1:]}"' for line in lines.strip().splitlines())
    return graph(f"""
        graph g batch=2 (%x: f32[{rows},6], %cache: f32[{rows.replace(",1", ",7")},8]) -> {outputs} {{
          const %wk: f32[6,8]
          const %wv: f32[6,8]
          const %odd: f32[6,12]
          const %bv: f32[8]
          {made}
        }}""")


KEYS = """
    %k = matmul(%x, %wk)
    %v = matmul(%x, %wv, %bv)
    %y = concat(%cache, %k) axis=1
    %z = concat(%cache, %v) axis=1
"""


def test_keys_and_values_of_one_word_are_one_product() -> None:
    result = run(SHARE_FEW_ROWS, word(KEYS))
    assert body(result.graph).splitlines()[:3] == [
        """%'k.projections = matmul(%x, %'wk.projections, %'bv.projections)  // "k", "v\"""",
        "%k = slice(%'k.projections) begin=[0,0,0] count=[2,1,8] step=[1,1,1] @k.columns",
        "%v = slice(%'k.projections) begin=[0,0,8] count=[2,1,8] step=[1,1,1] @v.columns",
    ]
    assert said(result) == [("k", "merged", "'k', 'v', of few rows")]


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        (KEYS, "65,1"),  # work enough
        (KEYS.replace("%z = concat(%cache, %v) axis=1", "%z = silu(%v)"), "2,1"),  # more than moved
        (KEYS.replace("%wv, %bv", "%odd").replace("concat(%cache, %v) axis=1", "reshape(%v) shape=[24]"), "2,1"),  # odd
    ],
)
def test_others_stay(lines: str, rows: str) -> None:
    assert said(run(SHARE_FEW_ROWS, word(lines, rows))) == []
