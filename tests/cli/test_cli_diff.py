"""Builds and locks compared: planned for real, compiled never."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from locked_net import new_net, whole_engine

from bolt_build.cli.main import main
from bolt_build.digest import encode
from bolt_build.errors import ExitCode
from bolt_build.lockfile.reading import Lock, LockedTarget, lock_text
from bolt_build.report.comparison import render
from bolt_build.verify.report import REPORT_VERSION, BatchReport, OutputReport, VerifyReport
from bolt_build.workflows.compared import Measure
from bolt_build.workflows.comparing import FigureChange, compare, regressions

FIRST, SECOND = Path("first/net/h200"), Path("second/net/h200")


@dataclass(frozen=True)
class Planned:
    """Parts of locks with the fastest and the second of the predicted kernels, and what planning made of each."""

    path: Path
    first: LockedTarget
    second: LockedTarget


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    """Planning takes a second: it is done twice for all tests."""
    path = tmp_path_factory.mktemp("planned")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        net = new_net()
        parts = net.tuned(fastest=0), slower(net.tuned(fastest=1), 1.2)
        for name, part in zip(("first", "second"), parts, strict=True):
            net.lock(part)
            net.plan()
            finish(Path("generated/net/h200"), 1000)
            Path("generated").rename(name)
    return Planned(path, *parts)


@pytest.fixture
def here(planned: Planned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planned:
    """Copies of both builds in the current directory."""
    shutil.copytree(planned.path, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return planned


def finish(directory: Path, library: int, error: float = 0.25, *, ok: bool = True) -> None:
    """What tasks leave: a library of so many bytes, weights, and a `verify.json` with this error of an output."""
    (directory / "libnet.so").write_bytes(bytes(library))
    (directory / "net.weights").write_bytes(bytes(500))
    output = OutputReport("r2", error, error, 1.0, error, 1.0, 1.0, 1.0, 0.5, 1.0, None, 0, 0, True, ok)
    batch = BatchReport(1, 2, (output,), 0, (), True, ok)
    report = VerifyReport(REPORT_VERSION, "net", "h200", "fp16", "ort", 0, "seeded", None, ok, (batch,), ())
    (directory / "verify.json").write_text(json.dumps(encode(report)))


def slower(part: LockedTarget, factor: float) -> LockedTarget:
    return replace(part, entries=tuple(replace(each, median=each.median * factor) for each in part.entries))


def write_lock(name: str, part: LockedTarget) -> Path:
    Path(name).write_text(lock_text(Lock((part,))))
    return Path(name)


def shown(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(["diff", *words]) == code
    found = capsys.readouterr()
    assert found.err == ""
    return found.out


def figures(data: Any) -> dict[str, tuple[float | None, float | None]]:
    (engine,) = data["engines"]
    return {each["name"]: (each["before"], each["after"]) for each in engine["figures"]}


def test_a_build_and_what_another_lock_makes_of_it(here: Planned, capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels with the times of the lock that each was planned with, sizes, errors, and what --fail-over says."""
    finish(SECOND, 1100)
    data = json.loads(shown(capsys, "first/net", "second", "--format", "json"))
    (engine,) = data["engines"]
    changed = [each for each in engine["layers"] if each["before"]["kernel"] != each["after"]["kernel"]]
    assert engine["engine"] == "h200"
    assert {each["batch"] for each in changed} == {1, 4}
    assert {(each["before"]["microseconds"], each["after"]["microseconds"]) for each in changed} == {(5.0, 6.0)}
    found = figures(data)
    assert (found["library"], found["weights"]) == ((1000, 1100), (500, 500))
    assert found["batch 1, r2: largest difference"] == (0.25, 0.25)
    times = [
        (each["before"]["microseconds"], each["after"]["microseconds"])
        for each in engine["layers"]
        if each["batch"] == 1 and each["before"]["microseconds"] and each["after"]["microseconds"]
    ]
    assert found[f"batch 1, sum of {len(times)} kernels measured in both"] == (
        pytest.approx(sum(before for before, _ in times)), pytest.approx(sum(after for _, after in times)),
    )  # fmt: skip

    failing = ("first", "second", "--fail-over", "10")
    assert "\nworse: h200: time: batch 4, sum of" in shown(capsys, *failing, code=ExitCode.REGRESSION)
    assert "worse" not in shown(capsys, *failing, "--of", "size", "--of", "error")
    text = shown(capsys, "first", "second", "--fail-over", "9.9", "--of", "size", code=ExitCode.REGRESSION)
    assert text.endswith("\nworse: h200: size: library: 10.0% more\n")


def test_equal_builds_have_no_table_of_kernels(here: Planned, capsys: pytest.CaptureFixture[str]) -> None:
    plans = json.loads((FIRST / "engine.json").read_text())["plans"]
    steps = sum(not step.get("view") for plan in plans for step in plan["steps"])
    lines = shown(capsys, str(FIRST), "first", "--fail-over", "0").splitlines()
    assert lines[:4] == [f"A: {FIRST}", "B: first", "", f"h200: {steps} the same"]
    assert lines[-1] == "verification: passes for A, passes for B"


def test_an_engine_that_fails_verification_now(here: Planned) -> None:
    finish(SECOND, 1000, ok=False)
    found = compare(FIRST, SECOND)
    assert regressions(found, 50, [Measure.ERROR]) == ("h200: verification passed, and fails now",)
    assert regressions(found, 50, [Measure.SIZE]) == ()


def test_an_engine_that_is_no_more(here: Planned) -> None:
    shutil.copytree(FIRST, "first/net/t4")
    engine = Path("first/net/t4/engine.json")
    engine.write_text(engine.read_text().replace('"h200"', '"t4"'))
    found = compare(Path("first"), Path("second"))
    assert found.only_before == ("t4",)
    assert regressions(found, 1000, []) == ("t4 is in first alone",)


def test_a_build_and_a_lock(here: Planned) -> None:
    """The lock's kernels stand at the build's layers."""
    (engine,) = compare(FIRST, write_lock("net.lock", here.second)).engines
    winners = {entry.problem: str(entry.winner) for entry in here.second.entries}
    both = [each for each in engine.layers if each.before is not None and each.after is not None]
    assert {each.layer.batch for each in both} == {1, 4}
    for each in both:
        assert each.before is not None
        assert each.after is not None
        assert (each.after.batch, each.after.name) == (each.before.batch, each.before.name)
        assert each.after.kernel == winners[each.before.problem]
    assert engine.unused == len(winners) - len({each.layer.problem for each in both})


def test_two_locks_fit_a_terminal(here: Planned) -> None:
    part = whole_engine(here.first)
    before = write_lock("a.lock", part)
    after = write_lock("b.lock", slower(replace(part, entries=part.entries[1:]), 1.5))
    found = compare(before, after)
    lines = render(found, (), width=120).splitlines()
    assert max(map(len, lines)) <= 120
    rest = len(part.entries) - 1
    assert lines[3] == f"h200: {rest} another time, 1 in A alone"
    assert sum("the same" in line and line.endswith("+50.0%") for line in lines) == rest
    (graph,) = [each.graph for each in part.engines]
    engine = FigureChange(Measure.TIME, f"batch 1, whole engine of graph {graph[:8]}", 45.0, 45.0)
    assert engine in found.engines[0].figures


def test_what_cannot_be_compared(here: Planned, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*words: str, code: int = ExitCode.INVALID) -> str:
        assert main(["diff", *words]) == code
        return capsys.readouterr().err

    Path("empty").mkdir()
    assert refused("gone", "empty") == (
        "gone: error[no-such-file]: no such lock or directory of a build\n"
        "empty: error[not-built]: no engine lies there\n"
        "  hint: name a lock, or what a build made: generated/RECIPE, or generated/RECIPE/TARGET\n"
    )
    assert refused("net.yaml", "net.yaml") == (
        "net.yaml: error[not-a-lock]: is a recipe, no lock\n  hint: compare what was built of it: generated/RECIPE\n"
    )
    write_lock("a100.lock", replace(here.first, target="a100"))
    assert refused("first", "a100.lock", code=ExitCode.USAGE) == (
        "error[nothing-to-compare]: first and a100.lock have no target in common\n"
        "  hint: first has h200 and a100.lock has a100\n"
    )
    (FIRST / "libnet.so").unlink()
    (SECOND / "verify.json").write_text("{")
    text = refused("first", "second")
    assert text.startswith(
        "first/net/h200: error[not-built]: 'libnet.so' is missing: the build is not finished\n"
        "  hint: build it to the end\n"
        "second/net/h200/verify.json: error[damaged-build]: cannot be read as a build's: "
    )
    assert text.endswith("\n  hint: build it again with this bolt-build\n")


@pytest.mark.parametrize("word", ["-1", "nan", "inf", "five"])
def test_a_threshold_that_is_none(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["diff", "a", "b", f"--fail-over={word}"])
    assert left.value.code == ExitCode.USAGE
    said = f"bolt-build diff: error: argument --fail-over: '{word}' is no percentage of at least 0\n"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("before", "after", "growth"), [(2, 3, 0.5), (0, 0, 0), (0, 1, float("inf")), (None, 1, None)])
def test_growth(before: float | None, after: float, growth: float | None) -> None:
    assert FigureChange(Measure.ERROR, "y", before, after).growth == growth
