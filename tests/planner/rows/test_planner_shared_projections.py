"""Operands of an attention that are products of one input, but no packed rows, become columns of one product."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.attention.heads import HeadRows
from bolt_build.planner.passes.recognise.attention_heads import Heads, joined_heads
from bolt_build.planner.passes.rows.shared_projections import SHARE_PROJECTIONS

ATTENTION = "attention(%q, %k, %v) heads=2 kv_heads=1 scale=0.5 causal=false packed=false safe=false"
TURNED = """
    %qp = matmul(%x, %wq, %bq)
    %kp = matmul(%x, %wk)
    %q = head_rows(%qp, %cos, %sin) heads=2 statistic="" epsilon=0.0 scaled=false shifted=false rotary=true interleaved=false
    %k = head_rows(%kp, %cos, %sin) heads=1 statistic="" epsilon=0.0 scaled=false shifted=false rotary=true interleaved=false
    %v = matmul(%x, %wv)
"""  # noqa: E501
POSITIONS = (
    "%far = placed_matmul(%q, %wp) left=[[2,5,2,8],[0,2,1,3],[2,2,5,8]] right=[[2,8,4],[0,1,2],[2,8,4]] "
    "made=[[2,2,5,4],[0,1,2,3],[2,2,5,4]]"
)
NORMED = TURNED.replace('(%qp, %cos', '(%qp, %sq, %cos').replace('statistic="" epsilon=0.0 scaled=false',
                        'statistic="rms" epsilon=0.01 scaled=true', 1)  # fmt: skip


def projected(lines: str, outputs: str = "(%y)") -> Graph:
    """A graph of these statements, and attention over %q, %k and %v."""
    made = "\n".join(f'{line.strip()} // "{line.split()[0][1:]}"' for line in lines.strip().splitlines())
    return graph(f"""
        graph g batch=2 (%x: f32[2,5,6], %memory: f32[2,5,6]) -> {outputs} {{
          const %wq: f32[6,16]
          const %wk: f32[6,8]
          const %wv: f32[6,8]
          const %odd: f32[6,12]
          const %wp: f32[2,8,4]
          const %wa: f32[6,32]
          const %bq: f32[16]
          const %sq: f32[1,1,1,8]
          const %cos: f32[1,5,1,8]
          const %sin: f32[1,5,1,8]
          {made}
          %y = {ATTENTION} // "attend"
        }}""")


def test_turned_queries_and_keys_are_prepared_as_columns_of_one_product() -> None:
    result = run(SHARE_PROJECTIONS, projected(TURNED))
    assert body(result.graph).splitlines()[:-1] == [
        """%'attend.projections = matmul(%x, %'wq.projections, %'bq.projections)  // "qp", "kp", "v\"""",
        "%'attend.columns = slice(%'attend.projections) begin=[0,0,0] count=[2,5,24] step=[1,1,1]",
        (
            "%'attend.columns.1 = head_rows(%'attend.columns, %'attend.columns.cosines, %'attend.columns.sines) "
            "heads=3 rotary=true"
        ),
        "%q = slice(%'attend.columns.1) begin=[0,0,0] count=[2,5,16] step=[1,1,1] @attend.columns.2",
        "%k = slice(%'attend.columns.1) begin=[0,0,16] count=[2,5,8] step=[1,1,1] @attend.columns.3",
        "%v = slice(%'attend.projections) begin=[0,0,24] count=[2,5,8] step=[1,1,1] @attend.columns.4",
    ]
    assert said(result) == [
        ("attend", "merged", "'qp', 'kp', 'v' into the product 'qp', whose columns are read in place")
    ]


def test_what_is_done_to_queries_alone_is_done_to_their_columns() -> None:
    made = body(run(SHARE_PROJECTIONS, projected(NORMED)).graph)
    assert made.count("head_rows(") == 2
    assert "matmul(%x, %'wq.projections, %'bq.projections)" in made


def test_a_decoder_shares_what_it_takes_of_its_encoder() -> None:
    crossed = "%q = matmul(%x, %wq, %bq)\n%k = matmul(%memory, %wk)\n%v = matmul(%memory, %wv)"
    result = run(SHARE_PROJECTIONS, projected(crossed))
    assert said(result) == [("attend", "merged", "'k', 'v' into the product 'k', whose columns are read in place")]


def test_products_of_heads_with_positions_read_columns_too() -> None:
    lines = "%q = matmul(%x, %wq)\n%k = matmul(%x, %wk)\n%v = matmul(%x, %wv)\n" + POSITIONS
    result = run(SHARE_PROJECTIONS, projected(lines, "(%y, %far)"))
    assert [reason for _, _, reason in said(result)] == [
        "'q', 'k', 'v' into the product 'q', whose columns are read in place"
    ]
    (reader,) = [node for node in result.graph.nodes if node.name == "far"]
    assert reader.inputs == ("q", "wp")


def beside_each_other(*names: str) -> str:
    """TURNED with these of queries, keys and values as columns of one product."""
    sliced, begin = TURNED.replace("\n", "\n    %all = matmul(%x, %wa)\n", 1), 0
    for value, made, width in (("qp", "(%x, %wq, %bq)", 16), ("kp", "(%x, %wk)", 8), ("v", "(%x, %wv)", 8)):
        columns = f"slice(%all) begin=[0,0,{begin}] count=[2,5,{width}] step=[1,1,1]"
        if value in names:
            sliced = sliced.replace(f"%{value} = matmul{made}", f"%{value} = {columns}")
        begin += width
    return sliced


def test_heads_of_columns_beside_each_other_are_prepared_by_one_step() -> None:
    """As those of a product that has the queries, keys and values of each head together."""
    result = run(SHARE_PROJECTIONS, projected(beside_each_other("qp", "kp", "v")))
    assert said(result) == [("attend", "merged", "what is done to the heads of 'q' and 'k'")]
    (heads,) = [node for node in result.graph.nodes if isinstance(node.op, HeadRows)]
    assert heads.op.heads == 3


def test_scales_that_each_head_has_of_its_own_lie_side_by_side() -> None:
    """Cohere's queries and keys: four heads of these, two of those."""
    sides = [Heads(HeadRows(1, "rms", 0.01, scaled=True), np.full((1, 1, heads, 8), float(heads))) for heads in (4, 2)]
    both = joined_heads(*sides, (4, 2))
    assert both.scale is not None
    assert both.scale[0, 0, :, 0].tolist() == [4.0, 4.0, 4.0, 4.0, 2.0, 2.0]
    assert (both.scale.shape, both.bias) == ((1, 1, 6, 8), None)


def test_a_product_that_gives_queries_and_keys_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where keys are the queries, normalised."""
    lines = """
        %k = matmul(%x, %wk)
        %q = head_rows(%k, %cos, %sin) heads=1 statistic="" epsilon=0.0 scaled=false shifted=false rotary=true interleaved=false
        %v = matmul(%x, %wv)
    """  # noqa: E501
    monkeypatch.setattr(sys.modules[__name__], "ATTENTION", ATTENTION.replace("heads=2", "heads=1"))
    before = projected(lines)
    result = run(SHARE_PROJECTIONS, before)
    assert result.graph == before
    assert said(result) == [("attend", "declined", "'k', 'k', 'v': 'k' gives two of its operands")]


def test_so_are_those_of_a_product_that_nothing_else_reads() -> None:
    """Values that something else reads too are no columns of it."""
    lines = beside_each_other("qp", "kp") + "%again = relu(%v)"
    made = body(run(SHARE_PROJECTIONS, projected(lines, "(%y, %again)")).graph)
    assert "%all = matmul(%x, %wa)" in made
    assert "%'attend.columns = slice(%all) begin=[0,0,0] count=[2,5,24] step=[1,1,1]" in made


@pytest.mark.parametrize(
    ("lines", "outputs", "why"),
    [
        (TURNED, "(%y, %kp)", "'kp' is a graph output"),
        (TURNED.replace("%wk)", "%w)").replace("%kp =", "%w = relu(%wk)\n%kp ="), "(%y)",
         "the weight of 'kp' is not constant"),
        (TURNED.replace("(%x, %wv)", "(%x, %odd)"), "(%y)", "12 columns of 'v' are no whole loads of 8"),
    ],
)  # fmt: skip
def test_it_is_declined_with_a_reason(lines: str, outputs: str, why: str) -> None:
    before = projected(lines, outputs)
    result = run(SHARE_PROJECTIONS, before)
    assert result.graph == before
    assert [reason for _, _, reason in said(result)] == [f"'qp', 'kp', 'v': {why}"]
