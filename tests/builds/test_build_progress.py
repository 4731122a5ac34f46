"""What people see of a build where there is no terminal."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from queue import SimpleQueue

import pytest

from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.layout import TargetDirectory
from bolt_build.build.result import BuildResult, TargetResult
from bolt_build.build.staleness.estimate import Outlook
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.planner.kernel_sources import KernelSource
from bolt_build.report import live
from bolt_build.report.progress import JsonProgress, PlainProgress, failure_text, summary_text, total_text, waited_for
from bolt_build.report.pulse import PulseLines
from bolt_build.report.shown import Running, Shown


def event(kind: EventKind, label: str, seconds: float = 0.0, **more: object) -> TaskEvent:
    return TaskEvent(kind, "host", label.replace(" ", "-"), label, seconds, **more)  # type: ignore[arg-type]


def result(code: ExitCode = ExitCode.OK, **more: object) -> BuildResult:
    fields = {
        "recipe": "toy", "exit_code": code, "diagnostics": (), "targets": (), "finished": (), "failed": (),
        "not_attempted": (), "seconds": 1.234,
    }  # fmt: skip
    return BuildResult(**(fields | more))  # type: ignore[arg-type]


def test_one_line_a_finished_task() -> None:
    lines: list[str] = []
    now = iter([100.0, 100.5, 104.9, 105.0, 171.2])
    shown = PlainProgress(lines.append, clock=lambda: next(now))
    shown.start(Outlook(("toy",), 3))
    shown.event(event(EventKind.STARTED, "compile a.cpp"))
    why = ("policy.fusion.epilogue changed (toy.yaml:4): true -> false", "CUTLASS changed 4.2.0 -> 4.3.0")
    shown.event(event(EventKind.FINISHED, "compile a.cpp", 4.12, reasons=why))
    shown.event(event(EventKind.FINISHED, "compile b.cpp", cached=True, reasons=("not built yet",)))
    shown.event(event(EventKind.NOTE, "link", text="lib was changed by hand; it is made again"))
    shown.event(event(EventKind.CURRENT, "emit"))
    shown.event(event(EventKind.FAILED, "link", text="exit status 1"))
    assert lines == [
        f"[1/3 0:04] compile a.cpp 4.1 s: {why[0]}; {why[1]}",
        "[2/3 0:05] compile b.cpp from the cache",
        "link: lib was changed by hand; it is made again",
        "[3/3 1:11] link failed: exit status 1",
    ]


def test_what_takes_long_is_said_where_no_terminal_shows_it() -> None:
    lines: SimpleQueue[str] = SimpleQueue()
    pulse = PulseLines(lines.put, quiet=0.0, clock=lambda: 161.0)
    pulse.show(Shown((Running("verify against onnxruntime", 100.0, 90.0), Running("compile a.cu", 154.0))))
    assert lines.get(timeout=60) == "still running: verify against onnxruntime 1:01 of about 1:30; compile a.cu 0:07"
    pulse.stop()
    count = lines.qsize()
    pulse.show(Shown(()))
    pulse.stop()
    assert lines.qsize() == count


def test_a_reader_who_went_away_ends_the_pulse_alone() -> None:
    told: SimpleQueue[str] = SimpleQueue()

    def closed(text: str) -> None:
        told.put(text)
        raise BrokenPipeError

    pulse = PulseLines(closed, quiet=0.0, clock=lambda: 0.0)
    pulse.show(Shown((Running("compile a.cu", 0.0),)))
    assert told.get(timeout=60) == "still running: compile a.cu 0:00"
    pulse.stop()
    assert told.empty()


def test_what_a_verb_waits_for_stands_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `verify` does, in an engine's words and by what its last verification took."""
    seen: list[object] = []

    class Lines:
        def __init__(self, *, stderr: bool) -> None:
            assert stderr

        def show(self, shown: Shown) -> None:
            seen.extend((each.label, each.expected) for each in shown.running)

        def stop(self) -> None:
            seen.append("gone")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(live, "TerminalLines", Lines)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with waited_for("verifying net/host", 90.0):
        assert seen == []
    monkeypatch.setattr(sys, "stderr", Terminal())

    def interrupted() -> None:
        with waited_for("verifying net/host", 90.0):
            assert seen == [("verifying net/host", 90.0)]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert seen[1:] == ["gone"]


def test_lines_of_recipes_that_are_built_together_say_whose_they_are() -> None:
    lines: list[str] = []
    shown = PlainProgress(lines.append, clock=lambda: 0.0)
    shown.start(Outlook(("net", "other"), 2))
    shown.event(event(EventKind.FINISHED, "compile a.cpp", 1.0, recipe="net"))
    shown.event(event(EventKind.FINISHED, "compile a.cpp", recipe="other", cached=True, as_for="net/host"))
    shown.event(event(EventKind.NOTE, "link", text="lib was changed by hand; it is made again", recipe="net"))
    assert lines == [
        "[1/2 0:00] net/host: compile a.cpp 1.0 s",
        "[2/2 0:00] other/host: compile a.cpp as for net/host",
        "net/host: link: lib was changed by hand; it is made again",
    ]


def test_one_line_sums_up_recipes_that_were_built_together() -> None:
    ran = event(EventKind.FINISHED, "compile a.cpp", 1.0)
    done = result(finished=(ran, event(EventKind.FINISHED, "b", cached=True)))
    wrong = result(ExitCode.TASK_FAILED, finished=(event(EventKind.FINISHED, "a", cached=True, as_for="net/host"),))
    refused = BoltError([Diagnostic("model-unreadable", "cannot read net.onnx")])
    assert total_text([wrong, done, refused, result(ExitCode.TOOL_MISSING)], 2.5) == (
        "4 recipes: 1 done, 1 failed, 1 not built, 1 built in part; 1 task run, 1 in common, 1 from the cache, 2.50 s\n"
    )
    assert total_text([result(), result()], 0.5) == "2 recipes: 2 done; nothing to do, 0.50 s\n"
    assert total_text([result(), refused], 0.5) == "2 recipes: 1 done, 1 not built; nothing to do, 0.50 s\n"
    assert total_text([refused, refused], 0.5) == "2 recipes: 2 not built; nothing finished, 0.50 s\n"


def test_a_build_with_nothing_to_do_says_so_in_one_line() -> None:
    assert summary_text(result()) == "toy: done, nothing to do, 1.23 s\n"


def test_the_wait_for_another_build_is_no_part_of_the_time() -> None:
    said = "toy: done, nothing to do, 1.23 s after 46.30 s of waiting for another build\n"
    assert summary_text(result(waited=46.3)) == said


def test_the_summary_lists_artifacts_with_their_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "host").mkdir()
    (tmp_path / "host/libtoy.so").write_bytes(bytes(2_340_000))
    (tmp_path / "host/toy.h").write_bytes(bytes(12))
    target = TargetResult("host", TargetDirectory(tmp_path / "host"), ("libtoy.so", "toy.h"), True)
    done = (event(EventKind.FINISHED, "a"), event(EventKind.FINISHED, "b", cached=True))
    assert summary_text(result(targets=(target,), finished=done)) == (
        "host/\n     2.3 MB  libtoy.so\n       12 B  toy.h\ntoy: done, 1 task run, 1 from the cache, 1.23 s\n"
    )


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        (KernelSource("predictions"), "chosen by prediction"),
        (KernelSource("lock", "net.lock.yaml", "NVIDIA H200"), "net.lock.yaml, measured on NVIDIA H200"),
        (
            KernelSource("lock", "net.lock.yaml", "NVIDIA H200", True, 2),
            "net.lock.yaml, measured on NVIDIA H200 with another toolchain; 2 chosen by prediction",
        ),
    ],
)
def test_the_summary_says_where_kernels_come_from(tmp_path: Path, kernels: KernelSource, words: str) -> None:
    (tmp_path / "toy.h").touch()
    target = TargetResult("h200", TargetDirectory(tmp_path), ("toy.h",), None, "no GPU", kernels)
    done = (TaskEvent(EventKind.FINISHED, "h200", "t", "t"),)
    assert summary_text(result(targets=(target,), finished=done)).splitlines()[2:4] == [
        f"  kernels: {words}", "  not verified: no GPU",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ExitCode.INTERRUPTED, "toy: interrupted, nothing finished, 1.23 s\n"),
        (ExitCode.TASK_FAILED, "toy: failed, nothing finished, 1.23 s\n"),
        (ExitCode.VERIFY_FAILED, "toy: verification failed, nothing to do, 1.23 s\n"),
    ],
)
def test_the_summary_of_a_build_that_did_not_end_well(code: ExitCode, words: str) -> None:
    assert summary_text(result(code)) == words


def test_a_failure_is_told_with_its_log_its_repetition_and_its_consequences() -> None:
    failed = event(
        EventKind.FAILED, "compile a.cpp", text="exit status 1", log="a.cpp:1: error: no\n1 error",
        log_file="/gen/toy/host/build/logs/a.log", command="cd /gen/toy/host && g++ -c a.cpp",
    )  # fmt: skip
    assert failure_text(result(ExitCode.TASK_FAILED, failed=(failed,), not_attempted=("link", "verify"))) == (
        "\n"
        "error[task-failed]: toy/host: compile a.cpp: exit status 1\n"
        "  | a.cpp:1: error: no\n"
        "  | 1 error\n"
        "  log: /gen/toy/host/build/logs/a.log\n"
        "  to repeat it: cd /gen/toy/host && g++ -c a.cpp\n"
        "  not attempted: link, verify\n"
    )


def test_events_as_json_lines() -> None:
    stream = io.StringIO()
    shown = JsonProgress(stream)
    shown.start(Outlook(("toy",), 1, 2.5))
    shown.event(event(EventKind.FINISHED, "link", 0.5, reasons=("a.cpp changed",)))
    start, task = (json.loads(line) for line in stream.getvalue().splitlines())
    assert start == {"event": "start", "recipe": "toy", "recipes": ["toy"], "tasks": 1, "expected": 2.5}
    assert task["reasons"] == ["a.cpp changed"]
    assert (task["event"], task["kind"], task["label"], task["seconds"]) == ("task", "finished", "link", 0.5)
