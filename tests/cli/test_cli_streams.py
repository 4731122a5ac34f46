"""Standard streams that are closed, full or of another encoding, and other trouble of the machine."""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bolt_build.cli import check
from bolt_build.cli.main import main
from bolt_build.errors import ExitCode

ROOT = Path(__file__).parents[2]
RECIPE = "bolt: 1\nmodel: {onnx: m.onnx}\ntargets: {host: }\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.yaml").write_text(RECIPE)
    Path("m.onnx").touch()


def shell(redirected: str, *words: str, **variables: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of bolt-build under a shell's redirection."""
    command = f'"$@" {redirected}'
    done = subprocess.run(
        ["bash", "-c", command, "bash", sys.executable, "-m", "bolt_build", *words],
        capture_output=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
    )  # fmt: skip
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode()


@pytest.mark.parametrize("redirected", [">&-", "<&- >&-", "<&- >&- 2>&-"])
def test_closed_streams_lose_what_is_written_and_nothing_else(redirected: str) -> None:
    assert shell(redirected, "check", "net.yaml") == (0, "", "")


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full"])
def test_the_exit_code_says_it_where_standard_error_cannot(redirected: str) -> None:
    assert shell(redirected, "check", "gone.yaml") == (ExitCode.INVALID, "", "")


def test_a_full_disk_behind_standard_output() -> None:
    code, _, said = shell(">/dev/full", "check", "net.yaml")
    assert code == ExitCode.TASK_FAILED
    assert said == "error[cannot-write]: the output cannot be written: No space left on device\n"


def test_a_full_disk_behind_json_of_what_is_wrong() -> None:
    code, _, said = shell(">/dev/full", "check", "gone.yaml", "--format", "json")
    assert code == ExitCode.TASK_FAILED
    assert said == "error[cannot-write]: the output cannot be written: No space left on device\n"


def test_a_reader_that_goes_away_before_json_of_what_is_wrong() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "bolt_build", "plan", "gone.yaml", "--format", "json"], stdout=writing,
        stderr=subprocess.PIPE, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_names_that_the_encoding_lacks_are_escaped(encoding: str) -> None:
    Path("\u7f51.yaml").write_text("name: net\n" + RECIPE)
    code, out, said = shell("", "check", "\u7f51.yaml", PYTHONIOENCODING=encoding)
    assert (code, said) == (0, "")
    assert out.startswith("\\u7f51.yaml: ok: net, ")


class Terminal(io.StringIO):
    """A terminal, as far as programs ask."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("words", [("check", "--model"), ("why",)], ids=["of all verbs", "the verb's own"])
@pytest.mark.parametrize(
    ("variables", "colored"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
    ids=["any terminal", "NO_COLOR without a value", "NO_COLOR", "a terminal without colours"],
)
def test_colours_are_for_terminals_that_know_them_and_users_who_want_them(
    words: tuple[str, ...], variables: dict[str, str], colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in ({"TERM": "xterm"} | variables).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert main([*words, "net.yaml"]) == ExitCode.INVALID
    said = sys.stderr.getvalue()
    assert "model-empty" in said
    assert ("\x1b[" in said) is colored


def test_names_that_are_no_text(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.yaml")
    Path(name).write_text("name: net\n" + RECIPE)
    code, out, said = shell("", "check", name)
    assert (code, said) == (0, "")
    assert out.startswith("\\udcff.yaml: ok: net, ")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "x", "/a/b"), "/a/b: error[file-trouble]: No space left on device\n"),
        (OSError(24, "x", "/a/b"), "/a/b: error[file-trouble]: Too many open files\n"),
        (
            MemoryError(),
            (
                "error[out-of-memory]: the memory of this machine does not suffice\n"
                "  hint: build on a machine with more of it, or a smaller batch\n"
            ),
        ),
    ],
)
def test_trouble_of_the_machine_is_no_bug(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(args: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(check, "run", run)
    monkeypatch.setattr("bolt_build.cli.streams.abandon", lambda stream: None)
    assert main(["check", "net.yaml"]) == ExitCode.TASK_FAILED
    assert capsys.readouterr().err == said
