"""Products of which constant indices pick, and the sum of these, are one step that stores neither."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.products.pair_product import PairProduct
from bolt_build.planner.passes.base import PassResult
from bolt_build.planner.passes.rows.multiply_pairs import MULTIPLY_PAIRS
from bolt_build.planner.passes.rows.pair_sums import ADD_PAIRS
from bolt_build.planner.passes.rows.place_products import PLACE_PRODUCTS
from bolt_build.targets import HOST, target_named

QUERIES, KEYS, HEADS, DEPTH, POSITIONS = 18, 21, 2, 8, 48


def _indices(first: str, apart: int = 1) -> str:
    """Of every query and key the distance between them, or of every key and query; for each head."""
    rows, columns = (QUERIES, KEYS) if first == "query" else (KEYS, QUERIES)
    distance = np.arange(rows)[:, None] - np.arange(columns)[None, :] + 20
    found = np.minimum(distance * apart, POSITIONS * apart - 1)
    return "{" + ",".join(map(str, np.broadcast_to(found, (HEADS, rows, columns)).reshape(-1))) + "}"


def positions(behind: str, *, apart: int = 1, far: str = "far", results: str = "%y") -> Graph:
    """Two heads of queries and keys side by side in rows, whose products with distances are picked."""
    inputs = f"%q: f32[{QUERIES},16], %k: f32[{KEYS},16], %given: f32[2,8,{POSITIONS * apart}]"
    return graph(f"""
        graph g batch=1 ({inputs}, %plain: f32[2,{QUERIES},{KEYS}]) -> ({results}) {{
          const %far: f32[2,8,{POSITIONS * apart}]
          const %near: f32[2,8,{POSITIONS}]
          const %to: i64[2,{QUERIES},{KEYS}] {_indices("query", apart)}
          const %from: i64[2,{KEYS},{QUERIES}] {_indices("key")}
          const %half: f32[] {{0.5}}
          %q2 = reshape(%q) shape=[{QUERIES},2,8] // "q2"
          %qh = transpose(%q2) perm=[1,0,2] // "qh"
          %a = matmul(%qh, %{far}) // "a"
          %c2p = gather_elements(%a, %to) axis=2 // "c2p"
          %k2 = reshape(%k) shape=[{KEYS},2,8] // "k2"
          %kh = transpose(%k2) perm=[1,0,2] // "kh"
          %b = matmul(%kh, %near) // "b"
          %p2c = gather_elements(%b, %from) axis=2 // "p2c"
          {behind}
        }}""")  # fmt: skip


_SUM = '%t = transpose(%p2c) perm=[0,2,1] // "t"\n %s = mul(%t, %half) // "s"\n %{0} = add(%c2p, %s) // "{0}"'
BOTH, INNER = _SUM.format("y"), _SUM.format("w")
ADDED = '\n %y = add(%{}, %plain) // "y"'


def multiplied(before: Graph) -> PassResult:
    return run(MULTIPLY_PAIRS, run(PLACE_PRODUCTS, run(ADD_PAIRS, before).graph).graph)


def test_positions_relative_to_queries_and_to_keys_are_one_step() -> None:
    """As DeBERTa has them. Queries and keys are read where heads lie side by side."""
    result = multiplied(positions(BOTH))
    (node,) = result.graph.nodes
    rows = ((QUERIES, 2, 8), (1, 0, 2), (2, QUERIES, 8)), ((KEYS, 2, 8), (1, 0, 2), (2, KEYS, 8))
    assert node.op == PairProduct((2, QUERIES, KEYS), rows, (False, True), (1.0, 0.5))
    assert (node.inputs[0], node.inputs[2]) == ("q", "k")
    assert said(result) == [("y", "multiplied", "computes what its pairs pick of 'a', 'b', and stores none of these")]
    assert {"a", "b", "c2p", "p2c", "y"} <= set(node.covers)
    least, more = (result.graph.constant(name) for name in node.inputs[4:6])
    assert least is not None
    assert more is not None
    assert least.tolist() == [[0], [16]]
    assert (least.repeat(16, 0)[:QUERIES] + more).tolist() == (
        np.arange(QUERIES)[:, None] - np.arange(KEYS)[None, :] + 20
    ).tolist()


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (positions(BOTH, apart=9), "neighbouring pairs name positions 315 apart"),
        (positions(BOTH, far="given"), "'given' is no constant"),
        (positions(INNER + ADDED.format("w")), "3 terms; one kernel multiplies 2"),
        (positions(ADDED.format("c2p")), "'plain' is no product that indices alone read"),
    ],
)
def test_what_a_kernel_has_no_room_for_stays(before: Graph, reason: str) -> None:
    assert ("y", "declined", reason) in said(multiplied(before))


def test_a_product_that_others_read_stays() -> None:
    """It is stored anyway."""
    read = positions(INNER + '\n %z = mul(%b, %half) // "z"', results="%w, %z")
    assert [(stage, why) for _, stage, why in said(multiplied(read))] == [
        ("declined", "'b' is no product that indices alone read")
    ]


def test_it_pays_where_tensor_cores_multiply_the_precision() -> None:
    assert MULTIPLY_PAIRS.pays_on is not None
    pays = [MULTIPLY_PAIRS.pays_on(target_named(name), precision) for name, precision in
            (("h200", "fp16"), ("t4", "fp16"), ("t4", "bf16"), ("h200", "fp32"))]  # fmt: skip
    assert pays == [True, True, False, False]
    assert not MULTIPLY_PAIRS.pays_on(HOST, "fp32")
