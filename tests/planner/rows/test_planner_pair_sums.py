"""Terms that bias every pair of a row and a column become one sum, which picks by constant indices as it reads."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.elementwise.pair_sum import PairSum
from bolt_build.planner.passes.rows.pair_sums import ADD_PAIRS

ADDED = ("y", "added up")
_DISTANCES = "{10,9,8,11,10,9,10,9,8,11,10,9}"
"""Of two rows and three columns, twice: each one's distance from the other, and 10."""
_TURNED = "{10,11,9,10,8,9,10,11,9,10,8,9}"


def positions(behind: str, index: str = _DISTANCES) -> Graph:
    """Two heads of two queries and three keys, whose products with 24 distances are picked."""
    return graph(f"""
        graph g batch=1 (%q: f32[2,2,4], %k: f32[2,3,4], %mask: f32[1,1,1,3]) -> (%y) {{
          const %far: f32[2,4,24]
          const %near: f32[2,4,24]
          const %to: i64[2,2,3] {index}
          const %from: i64[2,3,2] {_TURNED}
          const %half: f32[] {{0.5}}
          %a = matmul(%q, %far) // "a"
          %c2p = gather_elements(%a, %to) axis=2 // "c2p"
          %b = matmul(%k, %near) // "b"
          {behind}
        }}""")


P2C = '%p2c = gather_elements(%b, %from) axis=2 // "p2c"\n'


def sum_of(after: Graph) -> PairSum:
    (op,) = [node.op for node in after.nodes if isinstance(node.op, PairSum)]
    return op


def test_positions_relative_to_queries_and_to_keys_are_one_sum() -> None:
    """As DeBERTa has them. Of the products nothing is computed that no index picks, in whole loads."""
    result = run(ADD_PAIRS, positions(P2C + """
          %turned = transpose(%p2c) perm=[0,2,1] // "turned"
          %scaled = div(%turned, %half) // "scaled"
          %less = mul(%half, %c2p) // "less"
          %sum = add(%less, %scaled) // "sum"
          %heads = reshape(%sum) shape=[1,2,2,3] // "heads"
          %y = add(%mask, %heads) // "y"
    """))  # fmt: skip
    assert said(result) == [
        ("a", "computes 8 columns of 24", "no index picks the others"),
        ("b", "computes 8 columns of 24", "no index picks the others"),
        (*ADDED, "3 terms of every pair, 2 of them picked by indices"),
    ]
    assert sum_of(result.graph) == PairSum((1, 2, 2, 3), (False, True, True), (False, False, True), (1.0, 0.5, 2.0))
    assert [node.op.kind for node in result.graph.nodes] == ["matmul", "matmul", "reshape", "reshape", "pair_sum"]
    assert result.graph.nodes[-1].covers == ("p2c", "turned", "scaled", "c2p", "less", "sum", "heads", "y")


@pytest.mark.parametrize(
    ("behind", "signs"),
    [
        (P2C + '%p = transpose(%p2c) perm=[0,2,1] // "p"\n %y = sub(%c2p, %p) // "y"', (1.0, -1.0)),
        ('%n = mul(%c2p, %half) // "n"\n %m = add(%n, %mask) // "m"\n %y = mul(%m, %half) // "y"', (0.25, 0.5)),
    ],
)
def test_differences_and_what_is_scaled_behind_a_sum(behind: str, signs: tuple[float, ...]) -> None:
    assert sum_of(run(ADD_PAIRS, positions(behind)).graph).multipliers == signs


def test_rows_that_pads_and_reshapes_shift_are_picked() -> None:
    """As Transformer-XL shifts what queries have with positions: a column of zeros in front, rows one shorter."""
    result = run(ADD_PAIRS, graph("""
        graph g batch=2 (%x: f32[2,2,3,5]) -> (%y) {
          const %half: f32[] {0.5}
          %padded = pad(%x) begin=[0,0,0,1] end=[0,0,0,0] // "padded"
          %long = reshape(%padded) shape=[2,2,6,3] // "long"
          %less = slice(%long) begin=[0,0,1,0] count=[2,2,5,3] step=[1,1,1,1] // "less"
          %rows = reshape(%less) shape=[2,2,3,5] // "rows"
          %near = slice(%rows) begin=[0,0,0,0] count=[2,2,3,3] step=[1,1,1,1] // "near"
          %y = mul(%near, %half) // "y"
        }"""))  # fmt: skip
    assert said(result) == [(*ADDED, "1 terms of every pair, 1 of them picked by indices")]
    (node,) = result.graph.nodes
    assert result.graph.constant(node.inputs[1]).tolist() == [[2, 3, 4], [1, 2, 3], [0, 1, 2]]


@pytest.mark.parametrize(
    "nodes",
    [
        # the padding itself is left
        (
            '%padded = pad(%x) begin=[0,0,0,1] end=[0,0,0,0] // "padded"\n'
            '%long = reshape(%padded) shape=[2,2,6,3] // "long"\n'
            '%near = slice(%long) begin=[0,0,0,0] count=[2,2,3,3] step=[1,1,1,1] // "near"\n'
        ),
        # rows become others
        (
            '%long = reshape(%x) shape=[2,2,5,3] // "long"\n'
            '%near = slice(%long) begin=[0,0,1,0] count=[2,2,3,3] step=[1,1,1,1] // "near"\n'
        ),
        # a part of each row, which is read where it lies
        '%near = slice(%x) begin=[0,0,0,1] count=[2,2,3,3] step=[1,1,1,1] // "near"\n',
    ],
)
def test_what_is_no_part_of_its_own_row_stays(nodes: str) -> None:
    before = graph(f"""
        graph g batch=2 (%x: f32[2,2,3,5], %z: f32[2,2,3,3]) -> (%y) {{
          {nodes} %y = add(%near, %z) // "y"
        }}""")
    assert said(run(ADD_PAIRS, before)) == []


def test_indices_of_each_matrix_and_results_that_others_read_stay() -> None:
    own = positions('%y = add(%c2p, %c2p) // "y"', "{10,9,8,11,10,9,10,9,8,11,10,8}")
    assert said(run(ADD_PAIRS, own)) == []
    read = positions('%z = add(%c2p, %half) // "z"\n %y = add(%c2p, %z) // "y"')
    assert said(run(ADD_PAIRS, read))[-1] == ("c2p", "added up", "1 terms of every pair, 1 of them picked by indices")


def test_indices_that_are_expanded_for_every_matrix_are_those_of_one() -> None:
    result = run(ADD_PAIRS, graph("""
        graph g batch=2 (%x: f32[2,2,3,5]) -> (%y) {
          const %to: i64[1,3,2] {4,3,2,2,1,0}
          %all = expand(%to) shape=[2,2,3,2] // "all"
          %y = gather_elements(%x, %all) axis=3 // "y"
        }"""))  # fmt: skip
    (node,) = result.graph.nodes
    assert result.graph.constant(node.inputs[1]).tolist() == [[4, 3], [2, 2], [1, 0]]


def test_more_terms_than_one_kernel_adds_up_are_added_behind_it() -> None:
    behind = '%s0 = add(%c2p, %half) // "s0"\n' + "".join(
        f'%s{i + 1} = add(%s{i}, %half) // "s{i + 1}"\n' for i in range(3)
    )
    result = run(ADD_PAIRS, positions(behind + '%y = relu(%s3) // "y"'))
    assert said(result) == [
        ("s3", "declined", "5 terms; one kernel adds up 4"),
        ("a", "computes 8 columns of 24", "no index picks the others"),
        ("s2", "added up", "4 terms of every pair, 1 of them picked by indices"),
    ]


def test_a_gather_by_indices_of_the_run_stays() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,8,3,4], %i: i64[]) -> (%y) {
          %r = reshape(%x) shape=[1,1,8,3,4] // "r"
          %y = gather(%r, %i) axis=1 // "y"
        }""")
    assert ADD_PAIRS.run(before, POLICY).graph == before
