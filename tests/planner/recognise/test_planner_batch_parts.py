"""Attention of neighbouring parts of a sequence becomes that of a batch."""

from __future__ import annotations

import pytest
from planner_checks import body, graph, run, said
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.recognise.batch_parts import BATCH_PARTS
from bolt_build.planner.pipeline import optimize

HEAD = """
    graph g batch=1 (%q: f32[2,12,4], %k: f32[2,12,4], %v: f32[12,2,4]) -> (%y) {
      const %half: f32[] {0.5}
      const %third: f32[] {0.25}
      const %zero: f32[] {0}
"""


def lines(of: Graph) -> list[str]:
    """The nodes, without the names of what they stand for."""
    return [line.split("  //")[0].split(" @")[0] for line in body(of).splitlines()]


def part(name: str, begin: int, count: int, scale: str = "half") -> str:
    """Two heads' attention of some rows: [2, count, 4] of queries and keys, [count, 2, 4] of values."""
    return f"""
      %q{name} = slice(%q) begin=[0,{begin},0] count=[2,{count},4] step=[1,1,1] // "q{name}"
      %k{name} = slice(%k) begin=[0,{begin},0] count=[2,{count},4] step=[1,1,1] // "k{name}"
      %v{name} = slice(%v) begin=[{begin},0,0] count=[{count},2,4] step=[1,1,1] // "v{name}"
      %t{name} = transpose(%v{name}) perm=[1,0,2] // "t{name}"
      %s{name} = matmul(%q{name}, %k{name}) transpose_b=true // "s{name}"
      %m{name} = mul(%s{name}, %{scale}) // "m{name}"
      %p{name} = softmax(%m{name}) axis=2 // "p{name}"
      %n{name} = ask(%p{name}) question=nan // "n{name}"
      %w{name} = where(%n{name}, %zero, %p{name}) // "w{name}"
      %o{name} = matmul(%w{name}, %t{name}) // "o{name}"
      %r{name} = transpose(%o{name}) perm=[1,0,2] // "r{name}"
    """


def parts(*made: str, order: str = "abc") -> Graph:
    names = ", ".join(f"%r{name}" for name in order[: len(made)])
    return graph(
        HEAD
        + "".join(made)
        + f"""
      %y = concat({names}) axis=0 // "y"
    }}"""
    )


def test_parts_of_one_length_are_images_of_one_batch() -> None:
    result = run(BATCH_PARTS, parts(part("a", 0, 4), part("b", 4, 4), part("c", 8, 4)))
    assert said(result) == [("y", "batched", "3 parts as images of one batch")]
    assert "concat" not in body(result.graph)
    assert body(result.graph).count("softmax") == 1
    (whole,) = [line for line in lines(optimize(result.graph, POLICY).graph) if "attention(" in line]
    assert whole.endswith("heads=2 kv_heads=2 scale=0.5")


def test_others_stay_beside_them() -> None:
    result = run(BATCH_PARTS, parts(part("a", 0, 3), part("b", 3, 3), part("c", 6, 5)))
    assert said(result) == [("y", "batched", "2 parts as images of one batch")]
    assert body(result.graph).count("softmax") == 2
    assert lines(result.graph)[-1] == "%y = concat(%'y.parts.18, %rc) axis=0"


@pytest.mark.parametrize(
    "made",
    [
        (part("a", 0, 4), part("b", 4, 4, "third")),
        (part("a", 4, 4), part("b", 0, 4)),
        (part("a", 0, 4), part("b", 5, 4)),
        (part("a", 0, 4), part("b", 4, 5)),
    ],
    ids=["another scale", "another order", "a gap", "another length"],
)
def test_what_is_computed_otherwise_stays(made: tuple[str, ...]) -> None:
    before = parts(*made)
    result = run(BATCH_PARTS, before)
    assert result.graph is before
    assert said(result) == [("y", "declined", "no part is computed as the one in front of it is")]


def test_what_somebody_else_reads_stays() -> None:
    before = graph(
        HEAD.replace("(%y)", "(%y, %sa)")
        + part("a", 0, 4)
        + part("b", 4, 4)
        + """
      %y = concat(%ra, %rb) axis=0 // "y"
    }"""
    )
    result = run(BATCH_PARTS, before)
    assert (result.graph, said(result)) == (before, [])


def test_attention_that_a_model_has_as_such_is_batched_with_its_mask() -> None:
    result = run(
        BATCH_PARTS,
        graph("""
        graph g batch=1 (%x: f32[2,6,24]) -> (%y) {
          const %mask: f32[2,1,1,3]
          %a = slice(%x) begin=[0,0,0] count=[2,3,24] step=[1,1,1] // "a"
          %b = slice(%x) begin=[0,3,0] count=[2,3,24] step=[1,1,1] // "b"
          %c = attention(%a, %mask) heads=2 kv_heads=2 scale=0.5 packed=true // "c"
          %d = attention(%b, %mask) heads=2 kv_heads=2 scale=0.5 packed=true // "d"
          %y = concat(%c, %d) axis=1 // "y"
        }"""),
    )
    assert said(result) == [("y", "batched", "2 parts as images of one batch")]
    assert lines(result.graph) == [
        "%'y.parts = reshape(%x) shape=[2,2,3,24]",
        "%'y.parts.1 = transpose(%'y.parts) perm=[1,0,2,3]",
        "%'y.parts.2 = reshape(%'y.parts.1) shape=[4,3,24]",
        "%'y.parts.3 = attention(%'y.parts.2, %mask) heads=2 kv_heads=2 scale=0.5 packed=true",
        "%'y.parts.4 = reshape(%'y.parts.3) shape=[2,2,3,8]",
        "%'y.parts.5 = transpose(%'y.parts.4) perm=[1,0,2,3]",
        "%y = reshape(%'y.parts.5) shape=[2,6,8]",
    ]


@pytest.mark.parametrize("joined", ["%a, %a", "%c, %d"], ids=["one value twice", "keys that all parts share"])
def test_what_no_cut_leads_to_stays(joined: str) -> None:
    before = graph(f"""
        graph g batch=1 (%x: f32[2,6,4], %k: f32[2,3,4]) -> (%y) {{
          %a = attention(%x, %x, %x) heads=1 kv_heads=1 scale=1 packed=false // "a"
          %q = slice(%x) begin=[0,0,0] count=[2,3,4] step=[1,1,1] // "q"
          %r = slice(%x) begin=[0,3,0] count=[2,3,4] step=[1,1,1] // "r"
          %c = attention(%q, %k, %k) heads=1 kv_heads=1 scale=1 packed=false // "c"
          %d = attention(%r, %k, %k) heads=1 kv_heads=1 scale=1 packed=false // "d"
          %y = concat({joined}) axis=1 // "y"
        }}""")
    assert (run(BATCH_PARTS, before).graph, said(run(BATCH_PARTS, before))) == (before, [])


def attended(rows: str, *parts: tuple[str, str, str]) -> Graph:
    """Attention of parts, each with queries and keys of the one name and the other."""
    steps = "".join(
        f"""
      %s{index} = matmul(%{q}, %{k}) transpose_b=true
      %p{index} = softmax(%s{index}) axis=1
      %o{index} = matmul(%p{index}, %{v})"""
        for index, (q, k, v) in enumerate(parts)
    )
    names = ", ".join(f"%o{index}" for index in range(len(parts)))
    return graph(f"""
    graph g batch=1 (%x: f32[12,4], %z: f32[8,4]) -> (%y) {{
      {rows}{steps}
      %y = concat({names}) axis=0
    }}""")


def test_a_part_that_reads_one_cut_twice_is_unlike_one_that_reads_two() -> None:
    rows = "\n".join(
        f"%{name} = slice(%x) begin=[{begin},0] count=[4,4] step=[1,1]"
        for name, begin in (("a", 0), ("b", 4), ("c", 8))
    )
    before = attended(rows, ("a", "a", "a"), ("b", "c", "b"))
    assert run(BATCH_PARTS, before).graph == before


def test_cuts_of_a_tensor_that_is_read_backwards_stay() -> None:
    rows = """
      %a = slice(%z) begin=[0,3] count=[4,4] step=[1,-1]
      %b = slice(%z) begin=[4,3] count=[4,4] step=[1,-1]
      %c = slice(%x) begin=[0,0] count=[4,4] step=[1,1]
      %d = slice(%x) begin=[4,0] count=[4,4] step=[1,1]"""
    before = attended(rows, ("a", "c", "c"), ("b", "d", "d"))
    assert run(BATCH_PARTS, before).graph == before
