"""Measuring on this machine, with a driver that is a script: what is compiled and measured, and what is not again."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tune_projects import A100, H200, Project, new_project

from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.running.session import SessionResult
from bolt_build.errors import BoltError, ExitCode
from bolt_build.families.base import Family
from bolt_build.lockfile.fingerprint import Device, TuningTools
from bolt_build.report.diagnostics import render
from bolt_build.toolchain.machine import FoundGpu
from bolt_build.tuning import job as tuning_job
from bolt_build.tuning import lab
from bolt_build.tuning.compile.candidates import Compiled
from bolt_build.tuning.compile.session import TuningSession
from bolt_build.tuning.exchange.bundle import BUNDLE_VERSION, Bundle, bundle_text
from bolt_build.tuning.records.kernel_record import Record, Status
from bolt_build.tuning.trials.tuning_set import ProblemTrials

DRIVER = """\
#!{python}
import json, sys
from pathlib import Path
words = sys.argv[1:]
here = Path(__file__).parent
devices = {devices}
if words == ["--devices", "--json"]:
    if (here / "gone").exists():
        print(json.dumps(dict(error="there is no GPU")))
        sys.exit(7)
    for i, d in enumerate(devices):
        print(json.dumps(dict(index=i, device=dict(d, uuid="GPU-%d" % i), line="GPU %d" % i)))
    sys.exit(0)
(here / "calls").open("a").write(" ".join(words) + "\\n")
given = json.loads(Path(words[words.index("--candidates") + 1]).read_text())
out = open(words[words.index("--results") + 1], "w")
def line(**data):
    out.write(json.dumps(data) + "\\n")
    out.flush()
gpu = int(words[words.index("--device") + 1].removeprefix("GPU "))
used = dict(devices[gpu], uuid="GPU-%d" % gpu)
line(kind="header", version=2, bundle=given["bundle"], target="a100", devices=[used])
if "engines" in words:
    {engines}
    sys.exit(0)
rows = 0
asked = int(words[words.index("--problems") + 1])
for number, problem in enumerate(given["problems"]):
    for at, candidate in enumerate(problem["candidates"] if number == asked else ()):
        if (number, at) == {stop}:
            {then}
        t = (5.0 + at) * (1.0 + {noise} * gpu)
        statistics = dict(median=t, least=t, greatest=t, spread=0.0, repeats=10, launches=20)
        line(kind="record", problem=problem["digest"], candidate=candidate, device=0, status="ok", message="",
             statistics=statistics, error=0.1)
        rows += 1
line(kind="end", measured=rows, unmeasured=0, swaps=0, plans=0, engines=0, unplayed=0, seconds=1.0)
print(json.dumps(dict(gpu=gpu, done=1, of=1, text="measured")), file=sys.stderr)
"""


PLAYER = """\
    tables = [row.split("\\t") for row in Path(words[words.index("--engines") + 1]).read_text().splitlines()]
    known, played = dict(), 0
    for row in tables:
        if row[0] == "problem":
            known[row[1]] = here = []
        elif row[0] == "trial":
            here.append((float(row[4]), row[1]))
    times = lambda t: dict(median=t, least=t, greatest=t, spread=0.0, repeats=12, launches=1)
    for row in (row for row in tables if row[0] == "engine"):
        base = dict((problem, min(found)[1]) for problem, found in known.items())
        ((problem, found),) = [pair for pair in known.items() if len(pair[1]) > 1]
        second = sorted(found)[1][1]
        gain = dict(gain=0.1, low=0.09, high=0.11, pairs=12)
        compared = dict(status="ok", message="", first=times(100.0), second=times(90.0), **gain)
        line(kind="swap", engine=row[1], problem=problem, candidate=second, device=0, kept=True, **compared)
        line(kind="engine", engine=row[1], batch=int(row[2]), device=0, threshold=0.003, tried=1, plans=0,
             complete=True, plan=row[1],
             base=base, chosen=dict(base, **dict([(problem, second)])), **compared)
        played += 1
    line(kind="end", measured=0, unmeasured=0, swaps=played, plans=0, engines=played, unplayed=0, seconds=1.0)
    print(json.dumps(dict(text="all played")), file=sys.stderr)
"""
"""What the driver does in the second stage: the second candidate of the problem that has several is faster there."""


@dataclass
class Workshop:
    """Stands in for the compiler: it makes the driver's script, and remembers what it was asked to compile."""

    devices: Sequence[Device] = (A100,)
    stop: tuple[int, int] | None = None
    then: str = "pass"
    noise: float = 0.0
    engines: str = PLAYER
    refuses: bool = False
    asked: list[list[str]] = field(default_factory=list)

    def driver(self, session: TuningSession) -> SessionResult:
        directory = session.directory.path
        directory.mkdir(parents=True, exist_ok=True)
        devices = [vars(device) for device in self.devices]
        run = directory / "run"
        text = DRIVER.format(
            python=sys.executable,
            devices=devices,
            stop=self.stop,
            then=self.then,
            noise=self.noise,
            engines=self.engines.strip(),
        )
        run.write_text(text)
        run.chmod(0o755)
        return SessionResult(False, (), ())

    def candidates(
        self,
        session: TuningSession,
        problems: Sequence[ProblemTrials],
        families: Mapping[str, Family],
        tools: TuningTools,
    ) -> Compiled:
        self.asked.append([problem.problem.op.kind for problem in problems])
        if self.refuses:
            gone = [(p.problem.digest, t.candidate) for p in problems for t in p.trials]
            return Compiled(None, tuple(Record(*pair, Status.NOT_COMPILED, "error") for pair in gone))
        bundle = Bundle(BUNDLE_VERSION, "tiny", "a100", tools, tuple(problems), (), ())
        session.directory.bundle.write_text(bundle_text(bundle))
        data = [{"digest": p.problem.digest, "candidates": [t.candidate.digest for t in p.trials]} for p in problems]
        candidates = {"bundle": bundle.id, "problems": data}
        (session.directory.path / "candidates.so").write_text(json.dumps(candidates))
        done = TaskEvent(EventKind.FINISHED, "a100", "compile-k", "compile k.cu", 1.0)
        return Compiled(bundle, finished=(done,), units=("compile-k", "compile-l"))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return new_project(tmp_path / "work")


@pytest.fixture
def workshop(monkeypatch: pytest.MonkeyPatch) -> Workshop:
    """An A100 on this machine."""
    found = Workshop()
    monkeypatch.setattr(tuning_job, "compile_driver", lambda session: found.driver(session))
    monkeypatch.setattr(tuning_job, "compile_candidates", found.candidates)
    monkeypatch.setattr(lab, "why_not_here", lambda target: None)
    monkeypatch.setattr(lab, "found_gpus", lambda: tuple(FoundGpu(d.name, 80) for d in found.devices))
    return found


def test_everything_is_measured_once(project: Project, workshop: Workshop) -> None:
    first = project.tune()
    count = sum(len(p.trials) for p in project.plan().problems.problems)
    assert (first.exit_code, first.measured_now, first.lock_changed) == (ExitCode.OK, count, True)
    assert first.compiled is not None
    assert (first.compiled.units, first.compiled.reused, first.compiled.candidates) == (2, 1, count)
    assert workshop.asked == [[p.problem.op.kind for p in project.plan().problems.problems]]
    again = project.tune()
    assert (again.exit_code, again.measured_now, again.lock_changed) == (ExitCode.OK, 0, False)
    assert len(workshop.asked) == 1


def test_more_candidates_are_measured_where_there_are_more(project: Project, workshop: Workshop) -> None:
    project.tune()
    project.tune(all_candidates=True)
    assert workshop.asked[1:] == [["conv"]]


def test_remeasuring_compiles_and_measures_everything(project: Project, workshop: Workshop) -> None:
    project.tune()
    project.tune(remeasure=True)
    assert workshop.asked[0] == workshop.asked[1]


def test_records_of_the_same_gpu_give_the_lock_of_the_measurement(project: Project, workshop: Workshop) -> None:
    project.tune()
    text = project.lock.read_bytes()
    project.lock.unlink()
    assert project.tune(from_records=True).exit_code is ExitCode.OK
    assert project.lock.read_bytes() == text


def test_another_driver_measures_anew(project: Project, workshop: Workshop) -> None:
    project.tune()
    workshop.devices = (Device(A100.name, A100.sms, A100.memory, A100.power, "580.1.2"),)
    project.tune()
    assert workshop.asked[0] == workshop.asked[1]


def test_only_gpus_of_the_target_measure(project: Project, workshop: Workshop) -> None:
    workshop.devices = (H200, A100, A100)
    project.tune()
    calls = (project.path / "generated" / "tiny" / "a100.tuning" / "calls").read_text()
    used = {number for number in range(3) if f"--device GPU {number} --stage kernels" in calls}
    assert used
    assert used <= {1, 2}
    assert "--budget 1200" in calls


def test_a_budget_is_the_recipes(project: Project, workshop: Workshop) -> None:
    project.write(("candidates: 3", "candidates: 3, budget: 90s"))
    project.tune()
    assert "--budget 90 " in (project.path / "generated" / "tiny" / "a100.tuning" / "calls").read_text()


def test_a_driver_that_fails_is_told_of_and_what_it_found_is_kept(project: Project, workshop: Workshop) -> None:
    workshop.stop, workshop.then = (1, 1), 'sys.exit("no memory")'
    result = project.tune()
    assert (result.exit_code, result.measured_now, result.lock) == (ExitCode.TASK_FAILED, 2, None)
    assert render(result.diagnostics[-1:], color=False) == (
        "error[measuring-failed]: the driver ended with status 1: no memory\n"
    )
    assert not project.lock.exists()
    workshop.stop = None
    result = project.tune()
    assert result.exit_code is ExitCode.OK
    assert result.measured_now < sum(len(p.trials) for p in project.plan().problems.problems)


def test_an_interrupted_measurement_keeps_what_it_has(project: Project, workshop: Workshop) -> None:
    workshop.stop, workshop.then = (
        (1, 1),
        "import os, signal; os.kill(os.getppid(), signal.SIGINT); sys.stdin.read(); sys.exit(130)",
    )
    result = project.tune()
    assert (result.exit_code, result.measured_now, result.lock) == (ExitCode.INTERRUPTED, 2, None)
    assert not project.lock.exists()


def test_where_no_kernel_compiles_the_rest_is_chosen_from(project: Project, workshop: Workshop) -> None:
    project.tune()
    workshop.refuses = True
    result = project.tune(all_candidates=True)
    assert (result.exit_code, len(workshop.asked)) == (ExitCode.OK, 2)
    assert [dict(p.statuses).get("not-compiled", 0) > 0 for p in result.problems] == [
        p.trials.problem.op.kind == "conv" for p in result.problems
    ]
    assert [diagnostic.code for diagnostic in result.diagnostics] == ["not-measured"]
    project.tune(all_candidates=True)
    assert len(workshop.asked) == 2


def test_where_nothing_compiles_at_all(project: Project, workshop: Workshop) -> None:
    workshop.refuses = True
    result = project.tune()
    assert result.exit_code is ExitCode.TASK_FAILED
    assert render(result.diagnostics, color=False) == (
        "error[nothing-measured]: no record says how fast any kernel of tiny for a100 is\n"
    )


def test_a_file_that_is_no_lock_is_told_of_before_anything_is_compiled(project: Project, workshop: Workshop) -> None:
    project.lock.write_text("lock: 99\ntargets: {}\n")
    with pytest.raises(BoltError) as caught:
        project.tune()
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["newer-version"]
    assert (workshop.asked, project.lock.read_text()) == ([], "lock: 99\ntargets: {}\n")


def test_damaged_records_are_told_of_before_anything_is_compiled(project: Project, workshop: Workshop) -> None:
    records = project.path / "cache" / "tuning" / "records.sqlite"
    records.parent.mkdir(parents=True)
    records.write_text("no database")
    with pytest.raises(BoltError) as caught:
        project.tune(remeasure=True)
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == ["damaged-records"]
    assert (workshop.asked, records.read_text()) == ([], "no database")


def test_without_a_gpu_of_the_target(project: Project, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    workshop.devices = (H200,)
    with pytest.raises(BoltError) as caught:
        project.tune()
    assert caught.value.exit_code is ExitCode.TOOL_MISSING
    assert render(caught.value.diagnostics, color=False).replace(f"{project.path}/", "").splitlines()[0] == (
        "tiny.yaml:4:11: error[no-gpu]: candidates for a100 cannot be measured here: the GPU here is NVIDIA H200"
    )
    monkeypatch.setattr(lab, "why_not_here", lambda target: "this machine has no GPU that CUDA can use")
    with pytest.raises(BoltError) as caught:
        project.tune()
    assert render(caught.value.diagnostics, color=False).replace(f"{project.path}/", "") == (
        "tiny.yaml:4:11: error[no-gpu]: candidates for a100 cannot be measured here: this machine has no GPU that CUDA "
        "can use\n"
        "  4 | targets: {a100: {precision: fp16}}\n"
        "    |           ^^^^ compile them here with --export BUNDLE.tar, run the bundle on a machine with the GPU "
        "and --import its results.jsonl; or choose from earlier measurements with --from-records\n"
    )
