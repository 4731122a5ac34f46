"""Comparisons of rows with columns: which they are, what is refused and why, and what a call says."""

from __future__ import annotations

import pytest
from test_portable_flat import FAMILY, H200, half, numbers, points

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.graph.ops.elementwise.logic import Compare, Logic


def crossed(down: int, kinds: int = 1) -> Candidate:
    return Candidate("portable", (("algorithm", "crossed"),), (("down", down), ("kinds", kinds)))


def flags(*shape: int) -> tuple[tuple[int, ...], DType]:
    return shape, DType.BOOL


IDS = points(Compare("equal"), flags(32, 777, 777), numbers(32, 1, 777), numbers(32, 777, 1))
ONE_HOT = points(Compare("equal"), flags(32, 512, 1000), numbers(32, 512, 1), numbers(1000))
PLANES = points(Compare("less"), flags(32, 21, 64, 64), numbers(32, 1, 64, 64), numbers(21, 1, 1))
NONE = "portable algorithm=crossed down=64 kinds=1 is none of its candidates"


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (IDS, None),
        (ONE_HOT, None),
        (PLANES, None),
        (points(Compare("less"), flags(32, 77, 91), half(32, 1, 91), half(32, 77, 1)), None),
        (points(Compare("less"), flags(32, 77, 91), numbers(32, 77, 91), numbers(32, 77, 1)), NONE),
        (points(Compare("less"), flags(32, 77, 91), numbers(32, 77, 91), numbers(32, 77, 91)), NONE),
        (points(Compare("equal"), flags(32, 77, 91), flags(32, 1, 91), flags(32, 77, 1)), NONE),
        (points(Logic("and"), flags(32, 77, 91), flags(32, 1, 91), flags(32, 77, 1)), NONE),
        (
            points(Compare("less"), flags(32, 77, 31), numbers(32, 1, 31), numbers(32, 77, 1)),
            "crossed: compares rows of 32 to 8192 columns, not of 31",
        ),
        (
            points(Compare("less"), flags(32, 77, 8193), numbers(32, 1, 8193), numbers(32, 77, 1)),
            "crossed: compares rows of 32 to 8192 columns, not of 8193",
        ),
        (
            points(Compare("less"), flags(600, 2048, 2048), numbers(600, 1, 2048), numbers(600, 2048, 1)),
            "crossed: 2516582400 elements are more than it counts",
        ),
    ],
    ids=lambda each: "",
)
def test_what_is_no_row_and_column_has_a_reason(problem: KernelProblem, reason: str | None) -> None:
    assert FAMILY.refuse(problem, crossed(64), H200) == reason


def test_a_block_has_no_more_rows_than_are_tried() -> None:
    assert FAMILY.refuse(IDS, crossed(128), H200) is None
    assert FAMILY.refuse(IDS, crossed(129), H200) == "a block has at most 128 rows"
    assert FAMILY.refuse(IDS, crossed(8, 32), H200) is None
    assert FAMILY.refuse(IDS, crossed(8, 33), H200) == "rows begin in 32 ways, not in 33"


def test_a_call_says_which_input_has_the_columns() -> None:
    at = StepExpressions(("a", "b"), ("y",), (None, None))
    call = "bolt::portable::crossed<bolt::portable::typed::Equal, {}, std::int64_t, std::int64_t>(r, {}, {}, {}, y);"
    cut = ".down = 64, .kinds = 1, .of_image = {{{}}}, .of_row = 1"
    shape = f"bolt::portable::CrossedShape{{{{.rows = {{}}, .columns = {{}}, {cut}}}}}"
    assert FAMILY.emit(IDS, crossed(64), H200, at).call == call.format(
        "true", shape.format(777, 777, "777, 777"), 32, "a, b"
    )
    assert FAMILY.emit(ONE_HOT, crossed(64), H200, at).call == call.format(
        "false", shape.format(16384, 1000, "0, 0"), 1, "b, a"
    )
