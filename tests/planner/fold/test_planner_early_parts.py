"""BatchNorms and activations behind concatenated convolutions are computed part by part, in these."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.fold.batch_norm import FOLD_BATCH_NORM
from bolt_build.planner.passes.fold.early_parts import NORM_PARTS
from bolt_build.planner.passes.fuse.epilogues import FUSE_EPILOGUES


def mixed(outputs: str = "%y", parts: str = "%a, %b", between: str = "", tail: str = "relu(%n)") -> Graph:
    """Windows of two sizes side by side, as MixNet has them, with a BatchNorm and an activation behind them."""
    constants = "\n".join(f"const %{name}: f32[5]" for name in ("scale", "bias", "mean"))
    return graph(f"""
        graph g batch=1 (%x: f32[1,4,5,5]) -> ({outputs}) {{
          const %w: f32[2,4,1,1]
          const %v: f32[3,4,3,3]
          {constants}
          const %variance: f32[5]
          %a = conv(%x, %w) // "a"
          %b = conv(%x, %v) pads_begin=[1,1] pads_end=[1,1] // "b"
          {between}
          %c = concat({parts}) axis=1 // "c"
          %n = batch_norm(%c, %scale, %bias, %mean, %variance) epsilon=9.0 // "n"
          %y = {tail} // "y"
        }}""")


def test_each_convolution_takes_its_part() -> None:
    before = mixed()
    result = run(NORM_PARTS, before)
    why = "the concatenation 'c', part by part"
    assert said(result) == [("n", "computed before", why), ("y", "computed before", why)]
    folded = run(FUSE_EPILOGUES, run(FOLD_BATCH_NORM, result.graph).graph).graph
    assert [(node.op.kind, len(node.epilogue)) for node in folded.nodes] == [("conv", 1), ("conv", 1), ("concat", 0)]
    x = {"x": np.random.default_rng(1).standard_normal((1, 4, 5, 5)).astype(np.float32)}
    for after in (result.graph, folded):
        np.testing.assert_allclose(evaluate(after, x)["y"], evaluate(before, x)["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("before", "subject", "reason"),
    [
        (mixed("%y, %b"), "n", "'b' is a graph output"),
        (mixed(parts="%a, %d", between='%d = add(%b, %b) // "d"'), "n", "'d' is no result of a convolution"),
    ],
)  # fmt: skip
def test_a_part_that_is_no_convolutions_alone_keeps_them_behind(before: Graph, subject: str, reason: str) -> None:
    result = run(NORM_PARTS, before)
    assert result.graph == before
    assert said(result) == [(subject, "declined", reason)]


@pytest.mark.parametrize(
    ("before", "moved"), [(mixed("%y, %c"), []), (mixed(tail="erf(%n)"), ["n"]), (mixed("%y, %n"), ["n"])]
)
def test_what_others_read_or_no_kernel_activates_stays(before: Graph, moved: list[str]) -> None:
    assert [subject for subject, _, _ in said(run(NORM_PARTS, before))] == moved
