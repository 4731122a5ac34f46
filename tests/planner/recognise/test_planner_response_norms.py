"""Local response normalisation that PyTorch writes as a pooling of volumes."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import graph, random_inputs, run, said

from bolt_build.graph.ops.norms.normalization import Lrn
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.recognise.response_norms import RECOGNISE_RESPONSE_NORMS

NORM = """
    graph g batch=2 (%x: f32[{shape}]) -> (%y{out}) {{
      const %a: f32[] {{0.0002}}
      const %k: f32[] {{2}}
      const %b: f32[1] {{0.75}}
      %s = {square} // "s"
      %v = reshape(%s) shape=[{apart}] // "v"
      %p = pool(%v) mode=average kernel={kernel} pads_begin={pads} pads_end={pads}{more} // "p"
      %r = reshape(%p) shape=[{shape}] // "r"
      %m = mul({scaled}) // "m"
      %n = add(%k, %m) // "n"
      %d = pow(%n, %b) // "d"
      %y = div(%x, %d) // "y"
    }}"""
USUAL = {
    "shape": "2,12,5,3", "apart": "2,1,12,5,3", "kernel": "[5,1,1]", "pads": "[2,0,0]", "square": "mul(%x, %x)",
    "scaled": "%r, %a", "more": " count_include_pad=true", "out": "",
}  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "size"),
    [
        ({}, 5),
        ({"square": "square(%x)", "scaled": "%a, %r"}, 5),
        ({"shape": "2,12,7", "apart": "2,1,12,7", "kernel": "[3,1]", "pads": "[1,0]"}, 3),
    ],
)
def test_it_is_one_step(parts: dict[str, str], size: int) -> None:
    before = graph(NORM.format(**USUAL | parts))
    result = run(RECOGNISE_RESPONSE_NORMS, before)
    (node,) = result.graph.nodes
    assert isinstance(node.op, Lrn)
    assert (node.op.size, node.op.beta, node.op.bias) == (size, 0.75, 2.0)
    assert node.op.alpha == pytest.approx(0.0002)
    assert said(result) == [("y", "recognised response norm", f"over {size} channels")]
    x = random_inputs(before, 0)
    np.testing.assert_allclose(evaluate(result.graph, x)["y"], evaluate(before, x)["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "parts",
    [
        {"more": ""},
        {"kernel": "[3,1,1]"},
        {"kernel": "[1,5,1]", "pads": "[0,2,0]"},
        {"square": "abs(%x)"},
        {"out": ", %n"},
        {"scaled": "%r, %x"},
    ],
)  # fmt: skip
def test_other_poolings_and_numbers_stay(parts: dict[str, str]) -> None:
    text = NORM.format(**USUAL | parts)
    if parts.get("kernel") == "[3,1,1]":  # as many places, by other pads at the end
        text = text.replace("pads_begin=[2,0,0] pads_end=[2,0,0]", "pads_begin=[2,0,0] pads_end=[0,0,0]")
    before = graph(text)
    assert run(RECOGNISE_RESPONSE_NORMS, before).graph is before
