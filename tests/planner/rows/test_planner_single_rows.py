"""Heads of single rows are prepared where a product leaves them."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said, same_values

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.attention.heads import HeadRows
from bolt_build.planner.passes.rows.single_rows import SINGLE_ROWS
from bolt_build.targets import target_named

HEAD = """
    graph g batch=3 (%x: f32[{images},{rows},24], %c: f32[{angles},4], %s: f32[{angles},4]{more}) -> (%y) {{
      const %w: f32[4] {{1,2,3,4}}
      %k = slice(%x) begin=[0,0,8] count=[{images},{rows},16] step=[1,1,1] // "k"
      {nodes}
    }}"""
KEYS = """
      %a = reshape(%k) shape=[{images},{rows},4,4] // "a"
      %n = norm(%a, %w) statistic="rms" axes=[3] epsilon=0.01 // "n"
      %b = reshape(%n) shape=[{images},4,{rows},4] // "b"
      %y = rotary(%b, %c, %s) // "y"
"""
TURNED = """
      %a = reshape(%k) shape=[{images},4,{rows},4] // "a"
      %y = rotary(%a, %c, %s) interleaved=true // "y"
"""
NORMED = """
      %a = reshape(%k) shape=[{images},4,1,4] // "a"
      %y = norm(%a, %w) statistic="rms" axes=[3] epsilon=0.01 // "y"
"""
QUERIES = """
      %a = reshape(%k) shape=[6,2,4] // "a"
      %y = head_rows(%a, %c, %s) heads=1 rotary=true // "y"
"""


def of(nodes: str, images: int = 3, rows: int = 1, angles: str = "1,1,1", more: str = "") -> Graph:
    whole = HEAD.format(images=images, rows=rows, angles=angles, more=more, nodes=nodes)
    return graph(whole.replace("{images}", str(images)).replace("{rows}", str(rows)))


def prepared(before: Graph) -> list[HeadRows]:
    """What the pass makes of the columns, which computes the same."""
    result = run(SINGLE_ROWS, before).graph
    same_values(before, result)
    return [node.op for node in result.nodes if isinstance(node.op, HeadRows) and node.inputs[0] == "k"]


@pytest.mark.parametrize("angles", ["1,1,1", "1,1", "3,1,1"])
def test_a_normalisation_and_rotary_embedding_are_one_step_on_columns(angles: str) -> None:
    before = of(KEYS, angles=angles)
    assert prepared(before) == [HeadRows(4, "rms", 0.01, scaled=True, rotary=True)]
    assert said(run(SINGLE_ROWS, before)) == [("y", "prepared in rows", "4 heads of a single row")]
    assert "norm" not in body(run(SINGLE_ROWS, before).graph)


def test_one_of_them_is_where_columns_would_be_copied() -> None:
    assert prepared(of(TURNED)) == [HeadRows(4, rotary=True, interleaved=True)]
    assert prepared(of(NORMED)) == [HeadRows(4, "rms", 0.01, scaled=True)]
    assert prepared(of(TURNED, images=1)) == []  # of one row columns are a run


def test_heads_that_attention_has_as_images_are_those_of_rows() -> None:
    before = of(QUERIES)
    assert prepared(before) == [HeadRows(4, rotary=True)]
    assert said(run(SINGLE_ROWS, before)) == [("y", "prepared in rows", "4 heads of a single row")]


def test_rows_of_several_words_stay() -> None:
    assert run(SINGLE_ROWS, of(TURNED, rows=2)).decisions == ()


def test_heads_with_angles_of_their_own_stay() -> None:
    assert prepared(of(KEYS, angles="1,4,1")) == [HeadRows(4, "rms", 0.01, scaled=True)]
    (decision,) = said(run(SINGLE_ROWS, of(QUERIES, angles="6,1,1")))
    assert decision[1:] == ("declined", "heads or images have numbers of their own")


def test_a_scale_of_each_image_is_none_of_heads() -> None:
    """As conditions of a diffusion transformer scale what is normalised."""
    text = NORMED.replace("norm(%a, %w)", "norm(%a, %g)")
    assert run(SINGLE_ROWS, of(text, more=", %g: f32[3,1,1,1]")).decisions == ()


def test_a_normalisation_of_whole_rows_is_none_of_heads() -> None:
    text = """
      %a = reshape(%k) shape=[{images},16] // "a"
      %y = norm(%a) statistic="rms" axes=[1] epsilon=0.01 // "y"
"""
    assert run(SINGLE_ROWS, of(text)).decisions == ()


def test_what_another_reads_is_prepared_by_itself() -> None:
    before = of(KEYS.replace("%y = rotary(%b, %c, %s)", "%r = rotary(%b, %c, %s)") + '%y = add(%r, %b) // "z"\n')
    assert prepared(before) == [HeadRows(4, "rms", 0.01, scaled=True)]


def test_it_is_for_gpus_whose_tensor_cores_multiply_the_precision() -> None:
    assert SINGLE_ROWS.pays_on is not None
    assert SINGLE_ROWS.pays_on(target_named("h200"), "fp16")
    assert not SINGLE_ROWS.pays_on(target_named("host"), "fp32")


def test_heads_with_scales_of_their_own_stay() -> None:
    nodes = NORMED.replace("norm(%a, %w)", "norm(%a, %v)").replace("      %a", "      const %v: f32[4,1,1] #\n      %a")
    assert prepared(of(nodes)) == []


def test_heads_that_lie_across_images_stay() -> None:
    """Sixteen columns of an image are no heads of six elements, although all images together are."""
    nodes = QUERIES.replace("%a = reshape(%k) shape=[6,2,4]", "%a = reshape(%k) shape=[4,2,6]")
    assert prepared(of(nodes)) == []


def test_groups_of_a_row_are_normalised_by_themselves() -> None:
    nodes = """
      %a = reshape(%k) shape=[12,4] // "a"
      %y = norm(%a) statistic="variance" axes=[1] epsilon=0.01 groups=2 // "y"
"""
    assert run(SINGLE_ROWS, of(nodes)).decisions == ()
