"""Attention over rows of two tensors behind each other, whose heads a model has moved and normalised in each."""

from __future__ import annotations

from planner_checks import graph, run, said
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.moves.shape import Transpose
from bolt_build.planner.passes.recognise.attention import RECOGNISE_ATTENTION
from bolt_build.planner.pipeline import optimize


def stream(name: str, rows: int, norm: bool = True) -> str:
    """Queries, keys and values of a product's rows, each [2,3,rows,4]; the first two may be normalised by head."""
    lines = []
    for index, part in enumerate("qkv"):
        lines += [
            f"%{name}{part}.s = slice(%{name}) begin=[0,0,{12 * index}] count=[2,{rows},12] step=[1,1,1]",
            f"%{name}{part}.r = reshape(%{name}{part}.s) shape=[2,{rows},3,4]",
            f"%{name}{part}.h = transpose(%{name}{part}.r) perm=[0,2,1,3]",
        ]
        if norm and part != "v":
            what = f"norm(%{name}{part}.h, %w{name}) statistic=rms axes=[3] epsilon=1e-05"
            lines.append(f"%{name}{part}.n = {what}")
    return "\n".join(f'{line} // "{line.split()[0][1:]}"' for line in lines)


def joint(norm: bool = True) -> Graph:
    last = {"q": "n", "k": "n", "v": "h"} if norm else dict.fromkeys("qkv", "h")
    joined = [f'%{p} = concat(%x{p}.{last[p]}, %c{p}.{last[p]}) axis=2 // "{p}"' for p in "qkv"]
    weights = ["const %wx: f32[4] positive", "const %wc: f32[4] positive"] if norm else []
    return graph("\n".join([
        "graph g batch=2 (%x: f32[2,5,36], %c: f32[2,2,36]) -> (%y) {", *weights,
        stream("x", 5, norm), stream("c", 2, norm), *joined,
        '%s = matmul(%q, %k) transpose_b=true // "s"', '%p = softmax(%s) axis=3 // "p"', '%o = matmul(%p, %v) // "o"',
        '%t = transpose(%o) perm=[0,2,1,3] // "t"', '%y = reshape(%t) shape=[2,7,12] // "y"', "}",
    ]))  # fmt: skip


def test_rows_are_put_behind_each_other_where_products_left_them() -> None:
    result = run(RECOGNISE_ATTENTION, joint())
    assert [action for _, action, _ in said(result)] == ["recognised attention"]
    after = optimize(result.graph, POLICY).graph
    kinds = [node.op.kind for node in after.nodes]
    assert (kinds.count("head_rows"), kinds.count("concat"), kinds.count("transpose")) == (4, 3, 0)
    (attention,) = [node for node in after.nodes if isinstance(node.op, Attention)]
    assert attention.op == Attention(3, 3, 1.0)


def test_so_are_rows_that_nothing_is_done_to() -> None:
    after = optimize(run(RECOGNISE_ATTENTION, joint(norm=False)).graph, POLICY).graph
    assert not any(isinstance(node.op, Transpose) for node in after.nodes)


def test_earlier_keys_that_lie_by_heads_stay_where_they_are() -> None:
    """A decoder's caches: rows of the token alone would be moved less, but all of the cache would be moved then."""
    before = graph("""
        graph g batch=2 (%q: f32[2,3,1,4], %k: f32[2,1,12], %v: f32[2,3,8,4], %cache: f32[2,3,7,4]) -> (%y) {
          %r = reshape(%k) shape=[2,1,3,4] // "r"
          %h = transpose(%r) perm=[0,2,1,3] // "h"
          %all = concat(%cache, %h) axis=2 // "all"
          %s = matmul(%q, %all) transpose_b=true // "s"
          %p = softmax(%s) axis=3 // "p"
          %y = matmul(%p, %v) // "y"
        }""")
    after = run(RECOGNISE_ATTENTION, before).graph
    assert [node.inputs for node in after.nodes if node.name == "all"] == [("cache", "h")]
