"""Forward substitution that an exporter unrolled, row by row, becomes one operator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from planner_checks import body, graph, run, said

from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.products.substitution import LARGEST, Substitution
from bolt_build.planner.passes.recognise.substitutions import RECOGNISE_SUBSTITUTIONS

LEAD = "2,3"


def numbers(values: np.ndarray) -> str:
    return ", ".join(map(str, values.ravel().tolist()))


def box(lead: Sequence[int], row: int) -> str:
    """Every place of a row in front of its diagonal."""
    ranges = [np.arange(extent) for extent in lead] + [np.array([row]), np.arange(row)]
    places = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1)
    return f"const %i{row}: i64[{','.join(map(str, places.shape))}] {{{numbers(places)}}}"


def total(row: int, above: str, *, multiplied: bool = False) -> str:
    """A row's elements in front of the diagonal, and their product with the rows above."""
    ahead = f"""
        const %n{row}: i64[] {{{row}}}
        %sel{row} = gather(%{above}, %n{row}) axis=2 // "sel{row}"
        %own{row} = slice(%sel{row}) begin=[0,0,0] count=[{LEAD},{row}] step=[1,1,1] // "own{row}"
        %rows{row} = slice(%{above}) begin=[0,0,0,0] count=[{LEAD},{row},4] step=[1,1,1,1] // "rows{row}"
        %sub{row} = slice(%rows{row}) begin=[0,0,0,0] count=[{LEAD},{row},{row}] step=[1,1,1,1] // "sub{row}"
    """
    if multiplied:
        return (
            ahead
            + f"""
            %line{row} = reshape(%own{row}) shape=[{LEAD},1,{row}] // "line{row}"
            %prod{row} = matmul(%line{row}, %sub{row}) // "prod{row}"
            %sum{row} = reshape(%prod{row}) shape=[{LEAD},{row}] // "sum{row}"
            %new{row} = add(%sum{row}, %own{row}) // "new{row}"
        """
        )
    return (
        ahead
        + f"""
        %col{row} = reshape(%own{row}) shape=[{LEAD},{row},1] // "col{row}"
        %prod{row} = mul(%col{row}, %sub{row}) // "prod{row}"
        %sum{row} = reduce(%prod{row}) mode=sum axes=[2] keepdims=false // "sum{row}"
        %new{row} = add(%own{row}, %sum{row}) // "new{row}"
    """
    )


def by_places(row: int, above: str) -> str:
    """As torch-script assigns: an index for every element."""
    return f"""
        {box((2, 3), row)}
        %up{row} = reshape(%new{row}) shape=[{LEAD},1,{row}] // "up{row}"
        %a{row} = scatter_nd(%{above}, %i{row}, %up{row}) // "a{row}"
    """


def by_rows(row: int, above: str) -> str:
    """As torch.export does: into the row with its elements in front, and then the row."""
    whole = numbers(np.full((2, 3, 1, 4), row))
    return f"""
        const %i{row}: i64[{row},1] {{{numbers(np.arange(row))}}}
        const %w{row}: i64[{LEAD},1,4] {{{whole}}}
        %tn{row} = transpose(%new{row}) perm=[2,1,0] // "tn{row}"
        %ts{row} = transpose(%sel{row}) perm=[2,1,0] // "ts{row}"
        %put{row} = scatter_nd(%ts{row}, %i{row}, %tn{row}) // "put{row}"
        %back{row} = transpose(%put{row}) perm=[2,1,0] // "back{row}"
        %up{row} = reshape(%back{row}) shape=[{LEAD},1,4] // "up{row}"
        %a{row} = scatter_elements(%{above}, %w{row}, %up{row}) axis=2 // "a{row}"
    """


def unrolled(assigned: str, rows: Sequence[int] = (1, 2, 3), *, multiplied: bool = False, end: str = "") -> Graph:
    text, above = "", "x"
    for row in rows:
        text += total(row, above, multiplied=multiplied)
        text += (by_places if assigned == "places" else by_rows)(row, above)
        above = f"a{row}"
    end = end or f'%y = neg(%{above}) // "y"'
    return graph(f"""
        graph g batch=2 (%x: f32[{LEAD},4,4]) -> (%y) {{
          {text}
          {end}
        }}""")


@pytest.mark.parametrize("assigned", ["places", "rows"])
@pytest.mark.parametrize("multiplied", [False, True])
def test_rows_that_follow_each_other_are_one_operator(assigned: str, *, multiplied: bool) -> None:
    result = run(RECOGNISE_SUBSTITUTIONS, unrolled(assigned, multiplied=multiplied))
    assert said(result) == [("a3", "recognised forward substitution", "of 4 rows")]
    made, last = (line.split("  //")[0].split(" @")[0] for line in body(result.graph).splitlines())
    assert (made, last) == ("%a3 = substitution(%x)", "%y = neg(%a3)")


def test_the_identity_behind_it_is_part_of_it() -> None:
    end = f'const %e: f32[4,4] {{{numbers(np.eye(4))}}}\n %y = add(%e, %a3) // "y"'
    result = run(RECOGNISE_SUBSTITUTIONS, unrolled("rows", end=end))
    assert said(result) == [("y", "recognised forward substitution", "of 4 rows, with 1 along the diagonal")]
    assert body(result.graph).split("  //")[0].split(" @")[0] == "%y = substitution(%x) unit=true"


def test_what_stands_above_is_what_rows_have_become() -> None:
    """The third row reads the matrix as it was given."""
    text = total(1, "x") + by_places(1, "x") + total(2, "a1") + by_places(2, "a1")
    text += total(3, "x") + by_places(3, "a2")
    before = graph(f'graph g batch=2 (%x: f32[{LEAD},4,4]) -> (%y) {{\n {text}\n %y = neg(%a3) // "y"\n}}')
    assert run(RECOGNISE_SUBSTITUTIONS, before).graph is before


def test_products_with_what_stands_above_as_columns_stay() -> None:
    text, above = "", "x"
    for row in (1, 2, 3):
        turned = total(row, above, multiplied=True).replace(f"%sub{row}) //", f"%sub{row}) transpose_b=true //")
        text += (turned if row == 2 else total(row, above, multiplied=True)) + by_places(row, above)
        above = f"a{row}"
    before = graph(f'graph g batch=2 (%x: f32[{LEAD},4,4]) -> (%y) {{\n {text}\n %y = neg(%a3) // "y"\n}}')
    assert run(RECOGNISE_SUBSTITUTIONS, before).graph is before


def test_rows_in_another_order_stay() -> None:
    result = run(RECOGNISE_SUBSTITUTIONS, unrolled("places", (2, 1, 3)))
    assert said(result) == [("a3", "declined", "substitution: 3 of 3 rows behind the first follow it")]


def test_a_matrix_is_the_inverse_of_what_it_is_less_than_the_identity() -> None:
    given = np.tril(np.random.default_rng(0).normal(size=(2, 5, 5)) * 0.3, -1).astype(np.float32)
    (made,) = Substitution(unit=True).evaluate([given])
    np.testing.assert_allclose(made, np.linalg.inv(np.eye(5) - given), rtol=1e-5, atol=1e-6)


def test_larger_matrices_stay() -> None:
    from bolt_build.dtypes import DType
    from bolt_build.graph.ir import ShapeError, TensorType

    with pytest.raises(ShapeError, match=r"^matrices of 65 rows are not supported, of at most 64 are$"):
        Substitution().infer([TensorType(DType.F32, (2, LARGEST + 1, LARGEST + 1))])
