"""Diagnostics as text and as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from bolt_build.errors import Diagnostic, Mark
from bolt_build.report.diagnostics import MOST_SHOWN, as_json, render


def marked(tmp_path: Path, line: str, column: int, length: int, hint: str | None = None) -> str:
    """The lines beneath the message, for a mark in `line`."""
    path = tmp_path / "r.yaml"
    path.write_text(f"first\n{line}\n", encoding="utf-8")
    text = render([Diagnostic("code", "message", Mark(str(path), 2, column, length), hint)], color=False)
    head, rest = text.split("\n", 1)
    assert head == f"{path}:2:{column}: error[code]: message"
    return rest


def test_line_caret_and_hint(tmp_path: Path) -> None:
    assert marked(tmp_path, "a: bcd", 4, 3, "do this") == "  2 | a: bcd\n    |    ^^^ do this\n"


def test_tabs_stay_tabs(tmp_path: Path) -> None:
    assert marked(tmp_path, "\ta\tb", 4, 1) == "  2 | \ta\tb\n    | \t \t^\n"


def test_wide_and_combining_characters_take_their_columns(tmp_path: Path) -> None:
    assert marked(tmp_path, "模型: e\u0301x", 7, 1) == "  2 | 模型: e\u0301x\n    |        ^\n"
    assert marked(tmp_path, "模型: x", 1, 2) == "  2 | 模型: x\n    | ^^^^\n"


def test_carets_end_where_the_line_does(tmp_path: Path) -> None:
    assert marked(tmp_path, "abc", 2, 50) == "  2 | abc\n    |  ^^\n"
    assert marked(tmp_path, "abc", 9, 1) == "  2 | abc\n    |    ^\n"


def test_what_steers_a_terminal_is_not_printed(tmp_path: Path) -> None:
    assert marked(tmp_path, "a: \x1b[31mred", 9, 3) == "  2 | a: \ufffd[31mred\n    |         ^^^\n"


def test_what_steers_a_terminal_is_not_printed_of_names_either() -> None:
    about = Diagnostic("code", "no '\x1b[1mkey'\nhere", None, "not '\x1b[0m'", "\x9bnet.onnx")
    assert render([about], color=False) == (
        "\ufffdnet.onnx: error[code]: no '\ufffd[1mkey'\nhere\n  hint: not '\ufffd[0m'\n"
    )
    named = Diagnostic("code", "message", Mark("\x1b]0;a.yaml", 1, 1))
    assert render([named], color=False) == "\ufffd]0;a.yaml:1:1: error[code]: message\n"


def test_a_long_line_is_cut_around_its_mark(tmp_path: Path) -> None:
    line = "x" * 300 + "MARK" + "y" * 300
    assert marked(tmp_path, line, 301, 4) == (
        f"  2 | ...{'x' * 40}MARK{'y' * 76}...\n    | {' ' * 43}^^^^\n"
    )  # fmt: skip


def test_without_a_readable_line_the_hint_stands_alone(tmp_path: Path) -> None:
    gone = Diagnostic("code", "message", Mark("gone.yaml", 3, 1), "do this")
    assert render([gone], color=False) == "gone.yaml:3:1: error[code]: message\n  hint: do this\n"
    path = tmp_path / "short.yaml"
    path.write_text("one line\n")
    beyond = Diagnostic("code", "message", Mark(str(path), 7, 1))
    assert render([beyond], color=False) == f"{path}:7:1: error[code]: message\n"


def test_subjects_and_severities() -> None:
    about = Diagnostic("unsupported-op", "no such operator", subject="net.onnx", severity="warning")
    assert render([about], color=False) == "net.onnx: warning[unsupported-op]: no such operator\n"
    both = Diagnostic("no-kernel", "no kernel", Mark("gone.yaml", 1, 1), subject="conv1")
    assert render([both], color=False) == "gone.yaml:1:1: error[no-kernel]: conv1: no kernel\n"
    named = Diagnostic("not-writable", "cannot write /gen/plan.json: no", subject="/gen/plan.json")
    assert render([named], color=False) == "error[not-writable]: cannot write /gen/plan.json: no\n"
    part = Diagnostic("no-kernel", "no kernel for convolution", subject="conv")
    assert render([part], color=False) == "conv: error[no-kernel]: no kernel for convolution\n"
    neither = Diagnostic("lost", "nowhere", severity="note")
    assert render([neither], color=False) == "note[lost]: nowhere\n"


def test_color_changes_no_text(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("a: b\n")
    diagnostics = [Diagnostic("code", "message", Mark(str(path), 1, 1, 1), "hint")]
    colored = render(diagnostics, color=True)
    assert "\033[1;31merror[code]\033[0m" in colored
    stripped = colored
    for code in ("\033[1;31m", "\033[1m", "\033[2m", "\033[0m"):
        stripped = stripped.replace(code, "")
    assert stripped == render(diagnostics, color=False)


def test_json() -> None:
    diagnostics = [
        Diagnostic("one", "first", Mark("r.yaml", 2, 3, 4), "do"),
        Diagnostic("two", "second", subject="net"),
    ]
    assert as_json(diagnostics) == [
        {
            "code": "one",
            "severity": "error",
            "message": "first",
            "file": "r.yaml",
            "line": 2,
            "column": 3,
            "length": 4,
            "subject": None,
            "hint": "do",
        },
        {
            "code": "two",
            "severity": "error",
            "message": "second",
            "file": None,
            "line": None,
            "column": None,
            "length": None,
            "subject": "net",
            "hint": None,
        },
    ]


def test_of_many_the_errors_are_shown_first_and_the_rest_is_counted() -> None:
    notes = [Diagnostic("old", f"note {number}", severity="note") for number in range(MOST_SHOWN)]
    errors = [Diagnostic("wrong", f"error {number}") for number in range(2)]
    said = render([*notes, *errors], color=False).splitlines()
    assert said[-4:] == [
        "note[old]: note 97", "error[wrong]: error 0", "error[wrong]: error 1",
        "note[more]: 2 notes more are not shown",
    ]  # fmt: skip
    assert [each["message"] for each in as_json([*notes, *errors])[-2:]] == ["error 1", "2 notes more are not shown"]
    assert render([*notes, errors[0]], color=False).endswith("note[more]: 1 note more is not shown\n")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("no such lock or directory", "lock: error[x]: no such lock or directory\n"),
        ("'lock' is no directory", "error[x]: 'lock' is no directory\n"),
    ],
)
def test_a_subject_is_named_once_and_no_word_of_the_message_stands_for_it(message: str, shown: str) -> None:
    assert render([Diagnostic("x", message, subject="lock")], color=False) == shown
