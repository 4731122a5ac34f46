"""Tables fit the terminal, and say in full what nobody has to squeeze."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from bolt_build.report.tables import LEAST_NAME, Column, byte_text, shortened, table, terminal_width

COLUMNS = (
    Column("step", right=True), Column("layer", name=True), Column("error", right=True), Column("shape", spare=1),
    Column("reads", spare=2), Column("writes", spare=2),
)  # fmt: skip
LAYERS = ("/model/encoder/stages.0/layers.1/convolution/Conv", "/model/encoder/stages.1/layers.0/convolution/Conv")
ROWS = [(str(i), name, "1.0e-06", "1x16x32x32", "@65536 w0", "@0") for i, name in enumerate(LAYERS)]


def lines(width: int | None) -> list[str]:
    return [line.plain for line in table(COLUMNS, ROWS, width)]


def test_without_a_width_everything_is_there() -> None:
    assert lines(None) == [
        "step  layer                                                error  shape       reads      writes",
        "   0  /model/encoder/stages.0/layers.1/convolution/Conv  1.0e-06  1x16x32x32  @65536 w0  @0",
        "   1  /model/encoder/stages.1/layers.0/convolution/Conv  1.0e-06  1x16x32x32  @65536 w0  @0",
    ]


def test_names_are_abbreviated_first() -> None:
    assert lines(80) == [
        "step  layer                                 error  shape       reads      writes",
        "   0  /mode/enco/stag.0/laye.1/conv/Conv  1.0e-06  1x16x32x32  @65536 w0  @0",
        "   1  /mode/enco/stag.1/laye.0/conv/Conv  1.0e-06  1x16x32x32  @65536 w0  @0",
    ]


def test_then_columns_that_can_be_spared_are_left_out_equal_ones_together() -> None:
    assert lines(60)[0].split() == ["step", "layer", "error", "shape"]
    assert lines(50)[0].split() == ["step", "layer", "error"]


@given(st.integers(40, 200))
def test_a_table_is_never_wider_than_asked_where_its_columns_may_go(width: int) -> None:
    assert all(len(line) <= width for line in lines(width))


def test_cells_keep_their_style() -> None:
    *_, row = table([Column("layer", name=True), Column("verdict")], [("conv", Text("departs", "red"))], 80)
    assert [(row.plain[span.start : span.end], span.style) for span in row.spans] == [("departs", "red")]


@given(st.text("abcdefghij./_0123456789", max_size=120), st.integers(LEAST_NAME, 80))
def test_a_shortened_name_fits(name: str, width: int) -> None:
    assert len(shortened(name, width)) <= width
    if len(name) <= width:
        assert shortened(name, width) == name


def test_what_differs_in_numbers_still_differs() -> None:
    assert [shortened(name, 34) for name in LAYERS] == [
        "/mode/enco/stag.0/laye.1/conv/Conv",
        "/mode/enco/stag.1/laye.0/conv/Conv",
    ]


def test_a_name_without_words_loses_its_middle() -> None:
    assert shortened("0123456789" * 6, 25) == "01234567\N{HORIZONTAL ELLIPSIS}4567890123456789"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (102_121_920, "102.1 MB"), (3_200_000_000, "3.2 GB")],
)
def test_bytes_have_their_unit(count: int, text: str) -> None:
    assert byte_text(count) == text


def test_what_is_no_terminal_has_no_width() -> None:
    assert terminal_width(io.StringIO()) is None


def test_a_name_cannot_steer_the_terminal() -> None:
    (_, line) = table([Column("layer", name=True)], [["\x1b[2Jconv"]], None)
    assert line.plain == "\ufffd[2Jconv"
