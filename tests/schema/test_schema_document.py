"""YAML 1.2's core schema, and where each value stands."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bolt_build.errors import BoltError, Mark
from bolt_build.schema.document import read_document
from bolt_build.schema.values import Items, Scalar, Table, plain, walk


def read(tmp_path: Path, text: str) -> Table:
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    table, wrong = read_document(path)
    assert wrong == ()
    return table


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("Yes", "Yes"),
        ("on", "on"),
        ("true", True),
        ("FALSE", False),
        ("tRUE", "tRUE"),
        ("12:30", "12:30"),
        ("2024-01-31", "2024-01-31"),
        ("1_000", "1_000"),
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-0.5e-1", -0.05),
        ("0o17", 15),
        ("0x1F", 31),
        ("017", 17),
        ("+3", 3),
        ("0b1", "0b1"),
        ("-.inf", -math.inf),
        ("null", None),
        ("~", None),
        ("", None),
        ("'3'", "3"),
        ("!!str 3", "3"),
        ("!!float 3", 3.0),
        ("=", "="),
    ],
)
def test_plain_text_means_what_the_core_schema_says(tmp_path: Path, text: str, value: Any) -> None:
    found = plain(read(tmp_path, f"key: {text}\n"))["key"]
    assert found == value
    assert type(found) is type(value)


def test_nan_is_a_number(tmp_path: Path) -> None:
    assert math.isnan(plain(read(tmp_path, "key: .nan\n"))["key"])


def test_a_key_is_its_text(tmp_path: Path) -> None:
    assert plain(read(tmp_path, "1: a\nnull: b\n'<<': c\n0x1: d\n")) == {"1": "a", "null": "b", "<<": "c", "0x1": "d"}


def test_aliases_stand_where_their_anchor_does(tmp_path: Path) -> None:
    table = read(tmp_path, "a: &x [1]\nb: *x\n")
    assert plain(table) == {"a": [1], "b": [1]}
    first, second = table.get("a"), table.get("b")
    assert first is not None
    assert second is not None
    assert first.value.mark == second.value.mark == Mark(str(tmp_path / "recipe.yaml"), 1, 4, 6)


def test_marks_of_keys_and_values(tmp_path: Path) -> None:
    table = read(tmp_path, "\u00e9t\u00e9: {a: [1, 'x y']}\nlong: |\n  one\n  two\nblock:\n  - z\n")
    marks = {key: (entry.mark, entry.value.mark) for key, entry in walk(table)}
    shown = {key: tuple((mark.line, mark.column, mark.length) for mark in pair) for key, pair in marks.items()}
    assert shown == {
        "\u00e9t\u00e9": ((1, 1, 3), (1, 6, 15)),
        "\u00e9t\u00e9.a": ((1, 7, 1), (1, 10, 10)),
        "long": ((2, 1, 4), (2, 7, 1)),
        "block": ((5, 1, 5), (6, 3, 1)),
    }


def test_crlf_and_other_line_breaks_count_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_bytes("a: 1\r\nb: 2\u2028c: 3\rd: 4\n".encode())
    table, _ = read_document(path)
    assert [(entry.key, entry.mark.line) for entry in table.entries] == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]


@given(data=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode(errors="ignore")))
@example(data=b"? {a: [")
@example(data=b"a: !!int 0x")
@example(data="\u2028@".encode())
@example(data=b"\x1f\x8b")
@settings(max_examples=300, deadline=None)
def test_whatever_a_file_holds_is_read_or_explained(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_bytes(data)
    try:
        table, wrong = read_document(path)
    except BoltError as error:
        # Of what is no text at all no place is named, but the file.
        placed = [each for each in error.diagnostics if (each.code, each.subject) != ("other-file", str(path))]
        marks = [diagnostic.mark for diagnostic in placed]
        explained = True
    else:
        explained = False
        marks = [table.mark]
        marks += [diagnostic.mark for diagnostic in wrong] + [entry.mark for _, entry in walk(table)]
    assert marks or explained
    for mark in marks:
        assert mark is not None
        assert mark.line >= 1
        assert mark.column >= 1
        assert mark.length >= 1


_SCALARS = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text("abc_*/.:- #'\"{}[]&!é", max_size=8)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc*/.", min_size=1), inner, max_size=3),
    max_leaves=10,
)


@given(value=st.dictionaries(st.text("abcxyz", min_size=1), _VALUES, min_size=1, max_size=4))
@settings(max_examples=100, deadline=None)
def test_json_is_read_as_json(tmp_path: Path, value: dict[str, Any]) -> None:
    """YAML 1.2 contains JSON: what another program writes there must come out the same."""
    assert plain(read(tmp_path, json.dumps(value))) == value


def test_kinds_of_values(tmp_path: Path) -> None:
    table = read(tmp_path, "a: 1\nb: [2]\nc: {d: 3}\n")
    assert [type(entry.value) for entry in table.entries] == [Scalar, Items, Table]
