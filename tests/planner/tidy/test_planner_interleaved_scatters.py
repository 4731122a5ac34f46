"""Assignments to every second element or further ones are put between each other in one move."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import body, compare, graph, random_inputs, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.reference import evaluate
from bolt_build.planner.passes.tidy.interleaved_scatters import INTERLEAVE_SCATTERS

Steps = tuple[tuple[int, int], ...]
"""Where assigned places begin along each axis, and how far apart they are."""


def indices(shape: tuple[int, ...], steps: Steps) -> str:
    """The constant of a scatter that names these places of a tensor, as torch-script writes it."""
    runs = [np.arange(begin, extent, step) for extent, (begin, step) in zip(shape, steps, strict=True)]
    places = np.stack(np.meshgrid(*runs, indexing="ij"), axis=-1)
    return f"i64[{','.join(map(str, places.shape))}] {{{', '.join(map(str, places.ravel()))}}}"


def assigned(shape: tuple[int, ...], all_steps: list[Steps], more: str = "", outputs: str = "%y") -> Graph:
    """A tensor of zeros to whose places %p0, %p1 and so on are assigned, one after the other."""
    inputs, constants, nodes, value = [], [], [], "%zero"
    for at, steps in enumerate(all_steps):
        part = [-(-(extent - begin) // step) for extent, (begin, step) in zip(shape, steps, strict=True)]
        inputs.append(f"%p{at}: f32[{','.join(map(str, part))}]")
        constants.append(f"const %i{at}: {indices(shape, steps)}")
        made = "%y" if at == len(all_steps) - 1 else f"%s{at}"
        nodes.append(f'{made} = scatter_nd({value}, %i{at}, %p{at}) // "{made[1:]}"')
        value = made
    lines = "\n".join((*constants, *nodes, more))
    extents = ",".join(map(str, shape))
    zeros = ", ".join("0" for _ in range(int(np.prod(shape))))
    return graph(
        f"graph g batch=2 ({', '.join(inputs)}) -> ({outputs}) {{\nconst %zero: f32[{extents}] {{{zeros}}}\n{lines}\n}}"
    )


ALL = (0, 1)
PIXELS = [
    (ALL, ALL, (0, 2), (0, 2)),
    (ALL, ALL, (1, 2), (0, 2)),
    (ALL, ALL, (0, 2), (1, 2)),
    (ALL, ALL, (1, 2), (1, 2)),
]
CASES = {
    "pixels": ((2, 3, 4, 6), PIXELS, "2 along axis 2, 2 along axis 3"),
    "pairs": ((2, 3, 8), [(ALL, ALL, (0, 2)), (ALL, ALL, (1, 2))], "2 along axis 2"),
    "channels": ((2, 6, 4), [(ALL, (begin, 3), ALL) for begin in (2, 0, 1)], "3 along axis 1"),
    "images": ((4, 3), [((1, 2), ALL), ((0, 2), ALL)], "2 along axis 0"),
    "single rows": ((2, 3), [((1, 2), ALL), ((0, 2), ALL)], "2 along axis 0"),
    "again": ((2, 8), [(ALL, (1, 2)), (ALL, (0, 2)), (ALL, (1, 2))], "2 along axis 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_parts_that_fill_a_tensor_are_moved_once(case: str) -> None:
    shape, steps, along = CASES[case]
    before = assigned(shape, steps)
    result = run(INTERLEAVE_SCATTERS, before)
    kinds = [node.op.kind for node in result.graph.nodes]
    assert kinds.count("concat") == 1
    assert "scatter_nd" not in kinds
    assert said(result)[-1] == ("y", "interleaved", f"assignments to all of {along} leave nothing else")
    inputs = random_inputs(before, 0)
    compare({"y": evaluate(result.graph, inputs)["y"]}, evaluate(before, inputs), 1e-6)


def test_pairs_are_stacked_beside_each_other() -> None:
    result = run(INTERLEAVE_SCATTERS, assigned(*CASES["pairs"][:2]))
    assert [line.split(" = ")[1].split("  ")[0].split(" @")[0] for line in body(result.graph).splitlines()] == [
        "reshape(%p0) shape=[2,3,4,1]", "reshape(%p1) shape=[2,3,4,1]",
        "concat(%'y.parts, %'y.parts.1) axis=3", "reshape(%'y.parts.2) shape=[2,3,8]",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "steps"),
    [
        ((2, 3, 4, 6), PIXELS[:3]),
        ((2, 5), [(ALL, (0, 2)), (ALL, (1, 2))]),
        ((2, 6), [(ALL, (0, 2)), (ALL, (0, 3)), (ALL, (1, 2))]),
        ((2, 6), [(ALL, (0, 2)), (ALL, (1, 2)), (ALL, (2, 4))]),
    ],
    ids=["a part is missing", "parts of two sizes", "parts that overlap", "a part is assigned to in part"],
)
def test_what_does_not_fill_a_tensor_evenly_stays(shape: tuple[int, ...], steps: list[Steps]) -> None:
    before = assigned(shape, steps)
    inputs = random_inputs(before, 0)
    result = run(INTERLEAVE_SCATTERS, before)
    assert result.graph.nodes[-1].op.kind == "scatter_nd"
    compare({"y": evaluate(result.graph, inputs)["y"]}, evaluate(before, inputs), 1e-6)


TURNED = """
    graph g batch=2 (%p0: f32[2,3,2,4], %p1: f32[2,3,2,4], %p2: f32[2,3,2,4], %p3: f32[2,3,2,4]) -> (%y) {
      const %zero: f32[2,3,4,8]
      const %even: i64[2,1] {0, 2}
      const %odd: i64[2,1] {1, 3}
      const %even_columns: i64[4,1] {0, 2, 4, 6}
      const %odd_columns: i64[4,1] {1, 3, 5, 7}
      ASSIGNED
    }"""
ONE = """
      %cN = slice(%BEFORE) begin=[0,0,ROW,0] count=[2,3,2,8] step=[1,1,2,1] // "cN"
      %dN = transpose(%cN) perm=[3,1,2,0] // "dN"
      %uN = transpose(%pN) perm=[3,1,2,0] // "uN"
      %sN = scatter_nd(%dN, %COLUMNS, %uN) // "sN"
      %vN = transpose(%sN) perm=[2,1,3,0] // "vN"
      %tN = transpose(%BEFORE) perm=[2,1,0,3] // "tN"
      %wN = scatter_nd(%tN, %ROWS, %vN) // "wN"
      %yN = transpose(%wN) perm=[2,1,0,3] // "yN"
"""


def test_assignments_within_assignments_are_moved_once() -> None:
    """torch.export assigns to columns of the rows that it assigns then, each with a transpose in front and behind."""
    lines = ""
    for at in range(4):
        row, column = at % 2, at // 2
        one = ONE.replace("BEFORE", f"y{at - 1}" if at else "zero").replace("ROWS", ("even", "odd")[row])
        one = one.replace("COLUMNS", ("even_columns", "odd_columns")[column]).replace("ROW", str(row))
        lines += one.replace("N", str(at))
    before = graph(TURNED.replace("ASSIGNED", lines.replace("%y3", "%y").replace('"y3"', '"y"')))
    result = run(INTERLEAVE_SCATTERS, before)
    kinds = [node.op.kind for node in result.graph.nodes]
    assert kinds.count("concat") == 1
    assert "scatter_nd" not in kinds
    inputs = random_inputs(before, 0)
    compare({"y": evaluate(result.graph, inputs)["y"]}, evaluate(before, inputs), 1e-6)


def test_sums_into_places_stay() -> None:
    before = graph("""
        graph g batch=1 (%a: f32[2], %b: f32[2]) -> (%y) {
          const %zero: f32[4] {0, 0, 0, 0}
          const %even: i64[2,1] {0, 2}
          const %odd: i64[2,1] {1, 3}
          %s = scatter_nd(%zero, %even, %a) reduction=add // "s"
          %y = scatter_nd(%s, %odd, %b) reduction=add // "y"
        }""")
    assert run(INTERLEAVE_SCATTERS, before).graph == before
