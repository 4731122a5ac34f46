"""Several GPUs at once: each problem is measured on one of them, and one that is lost costs no result."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_tune_measure import Workshop, project, workshop
from tune_projects import A100, Project

from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.families.base import Candidate
from bolt_build.lockfile.reading import load_lock
from bolt_build.report.diagnostics import render
from bolt_build.tuning.exchange.merging import merged
from bolt_build.tuning.exchange.results import read_results
from bolt_build.tuning.lanes.gpu import Gpu
from bolt_build.tuning.lanes.measuring import MOST_LOSSES, Ended, measure_all
from bolt_build.tuning.lanes.progress import Progress, progress_of
from bolt_build.tuning.lanes.work import INTERRUPTED, Answer, Keep, Say, Work, works_of
from bolt_build.tuning.store import TuningStore
from bolt_build.tuning.this_machine import FoundDevice

__all__ = ["project", "workshop"]  # fixtures


def test_works_are_of_several_problems_and_each_lane_has_several() -> None:
    assert [work.problems for work in works_of(3, 1, 16)] == [(0,), (1,), (2,)]
    assert [work.size for work in works_of(300, 2, 16)] == [16] * 18 + [12]
    assert [work.size for work in works_of(40, 2, 16)] == [5] * 8
    assert [work.size for work in works_of(5, 2, 1)] == [1] * 5
    assert works_of(0, 1, 16) == []


WORKS = tuple(Work((problem,)) for problem in range(6))
DONE = Answer(results="done", seconds=1.0)
LOST = Answer(results="nonsense", lost="GPU 0 is not there any more")


@dataclass
class Lane:
    """Answers what `answers` says of its next work, DONE where nothing is left to say."""

    answers: Sequence[Answer] = ()
    works: list[Work] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def measure(self, work: Work, budget: float, say: Say, keep: Keep) -> Answer:
        self.works.append(work)
        say(Progress("measuring 1 problem"))
        say(Progress(f"problem {work.problems[0]}", gpu=0, done=1))
        at = len(self.works) - 1
        return self.answers[at] if at < len(self.answers) else DONE

    def stop(self) -> None:
        self.stopped.set()


@dataclass
class Taker:
    taken: list[tuple[Work, Answer]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def measured(self, lanes: Sequence[Lane], budget: float = 100.0, works: Sequence[Work] = WORKS) -> Ended:
        return measure_all(works, lanes, budget, lambda *pair: self.taken.append(pair), self.said.append)

    @property
    def works(self) -> list[int]:
        return sorted(work.problems[0] for work, _ in self.taken)


def test_every_work_is_done_once_by_one_lane() -> None:
    lanes, taker = [Lane(), Lane(), Lane()], Taker()
    assert taker.measured(lanes) == Ended()
    assert taker.works == [0, 1, 2, 3, 4, 5]
    assert sorted(work.problems[0] for lane in lanes for work in lane.works) == taker.works
    assert taker.said[0] in [f"GPU 0  [1/6] problem {problem}" for problem in range(3)]
    assert len(taker.said) == 6, "what a driver says of its own run is left out"


def test_what_a_lost_gpu_measured_last_is_measured_elsewhere() -> None:
    gone, there = Lane([DONE, LOST]), Lane()
    taker = Taker()
    ended = taker.measured([gone, there])
    assert (ended.finished, ended.lost) == (True, (LOST.lost,))
    assert (taker.works, LOST in [answer for _, answer in taker.taken]) == ([0, 1, 2, 3, 4, 5], False)
    assert f"{LOST.lost}: what it measured last is measured again" in taker.said


@given(st.text(max_size=40), st.one_of(st.none(), st.integers(0, 15)), st.one_of(st.none(), st.integers(1, 99)))
def test_what_a_driver_says_is_read_whole(text: str, gpu: int | None, done: int | None) -> None:
    """Whatever its text is like; a line that is no object is text, and so is one that looks like a count."""
    assert progress_of(json.dumps({"text": text, "gpu": gpu, "done": done, "of": 99})) == Progress(text, gpu, done)
    assert progress_of("GPU 0  [1/2] 12.50 us") == Progress("GPU 0  [1/2] 12.50 us")
    assert progress_of('{"gpu": 1}') == Progress('{"gpu": 1}')


def test_where_every_gpu_is_lost_what_is_done_stays() -> None:
    taker = Taker()
    ended = taker.measured([Lane([DONE, DONE, LOST])])
    assert (ended.finished, ended.left, taker.works) == (False, 4, [0, 1])


def test_what_loses_every_gpu_is_given_up() -> None:
    """The others are measured on what is left."""

    class Poisoned(Lane):
        def measure(self, work: Work, budget: float, say: Say, keep: Keep) -> Answer:
            return LOST if work.problems[0] == 2 else super().measure(work, budget, say, keep)

    taker = Taker()
    ended = taker.measured([Poisoned() for _ in range(MOST_LOSSES + 1)])
    assert (ended.left, len(ended.lost), taker.works) == (1, MOST_LOSSES, [0, 1, 3, 4, 5])


def test_a_driver_that_fails_ends_the_measurement() -> None:
    failed = Answer(status=1, last_words="no memory")
    taker = Taker()
    ended = taker.measured([Lane([DONE, failed])])
    assert (ended.failed, ended.finished, taker.works) == (failed, False, [0, 1])


def test_an_error_of_a_lane_is_raised() -> None:
    class Broken(Lane):
        def measure(self, work: Work, budget: float, say: Say, keep: Keep) -> Answer:
            raise BoltError([Diagnostic("driver-unusable", "no driver")])

    with pytest.raises(BoltError, match="no driver"):
        Taker().measured([Broken()])


def test_a_lane_measures_for_as_long_as_it_may() -> None:
    taker = Taker()
    assert taker.measured([Lane()], budget=2.5).finished
    assert taker.works == [0, 1, 2]


def test_an_interruption_loses_nothing_that_came() -> None:
    """It comes while a result is taken: that is taken again, and lanes end."""
    lane, taken = Lane([DONE, Answer(INTERRUPTED, "half")]), []

    def take(work: Work, answer: Answer) -> None:
        taken.append(work.problems[0])
        if len(taken) == 1:
            raise KeyboardInterrupt

    ended = measure_all(WORKS[:2], [lane], 100.0, take, lambda text: None)
    assert ended.interrupted
    assert taken[:2] == [0, 0]
    assert lane.stopped.is_set()


@given(st.lists(st.lists(st.sampled_from([DONE, LOST]), max_size=4), min_size=1, max_size=4), st.integers(0, 8))
def test_whatever_is_lost_each_work_is_taken_once_or_left(answers: list[list[Answer]], count: int) -> None:
    works, taker = [Work((problem,)) for problem in range(count)], Taker()
    ended = taker.measured([Lane(each) for each in answers], works=works)
    assert len(set(taker.works)) == len(taker.works) == count - ended.left
    assert LOST not in [answer for _, answer in taker.taken]


DRIVER = """\
#!{python}
import json, sys
from pathlib import Path
here = Path(__file__).parent
if sys.argv[1:] == ["--devices", "--json"]:
    device = dict(uuid=(here / "there").read_text(), name="NVIDIA Test", sms=132, memory=1, power=700, driver="570.1")
    print(json.dumps(dict(index=0, device=device, line="device")))
    sys.exit(0)
results = sys.argv[sys.argv.index("--results") + 1]
Path(results).write_text('{says}')
print("a word of its own", file=sys.stderr)
"""


CRASHED = '{"status":"crashed"}'
"""However it is spaced: it is read, not searched for."""
QUOTED = '{"status": "wrong", "message": "said \\\\"status\\\\": \\\\"crashed\\\\""}'


@pytest.mark.parametrize(
    ("says", "there", "lost"),
    [
        (CRASHED, "GPU-1", ""),
        (CRASHED, "GPU-2", "GPU 0 (GPU-1) is not there any more"),
        (QUOTED, "GPU-2", ""),
    ],
)
def test_a_crash_is_the_candidates_where_the_gpu_is_still_there(
    tmp_path: Path, says: str, there: str, lost: str
) -> None:
    """A message that tells of a crash is none."""
    driver = tmp_path / "run"
    driver.write_text(DRIVER.format(python=sys.executable, says=says))
    driver.chmod(0o755)
    (tmp_path / "there").write_text(there)
    gpu = Gpu(FoundDevice(0, A100, "GPU-1", "device"), driver, tmp_path / "candidates.so", tmp_path)
    said: list[Progress] = []
    answer = gpu.measure(Work((3,)), 10.0, lambda progress, worker="": said.append(progress), unasked)
    assert (answer.lost, said, answer.last_words) == (lost, [Progress("a word of its own")], "a word of its own")
    assert json.loads(answer.results)["status"] in ("crashed", "wrong")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "there"]


def unasked(part: Answer) -> None:
    raise AssertionError("one problem has no parts")


PARTS = """\
#!{python}
import sys, time
from pathlib import Path
here = Path(__file__).parent
out = open(sys.argv[sys.argv.index("--results") + 1], "w")
def record(problem, status):
    out.write('{{"kind": "record", "problem": "%s", "status": "%s"}}\\n' % (problem, status))
    out.flush()
def done(count):
    print('{{"gpu": 0, "done": %d, "of": 3, "text": "problem"}}' % count, file=sys.stderr, flush=True)
    for _ in range(600):
        if (here / str(count)).exists(): return
        time.sleep(0.05)
    sys.exit(1)
out.write('{{"kind": "header"}}\\n')
record("p0", "ok"); done(1)
record("p1", "ok"); record("p1", "crashed"); done(2)
record("p2", "ok"); done(3)
"""


def test_a_problem_is_kept_before_the_others_of_its_work_are_done(tmp_path: Path) -> None:
    """The driver goes on only when it is. What crashed waits until it is known whether the GPU is still there."""
    driver = tmp_path / "run"
    driver.write_text(PARTS.format(python=sys.executable))
    driver.chmod(0o755)
    parts: list[list[str]] = []

    def keep(part: Answer) -> None:
        assert part.part
        parts.append([json.loads(line).get("problem", "") for line in part.results.splitlines()])
        (tmp_path / str(len(parts))).touch()

    gpu = Gpu(FoundDevice(0, A100, "GPU-1", "device"), driver, tmp_path / "candidates.so", tmp_path)
    answer = gpu.measure(Work((0, 1, 2)), 10.0, lambda progress, worker="": None, keep)
    assert parts == [["", "p0"], ["", "p0"], ["", "p0", "p2"]]
    assert (answer.status, answer.results.count("p1")) == (0, 2)


def gpus_of(project: Project) -> dict[str, set[str]]:
    """Of each problem the GPUs that its candidates were measured on."""
    with TuningStore(project.path / "cache" / "tuning").records() as records:
        found: dict[str, set[str]] = {}
        for _, record in records.all(p.problem.digest for p in project.plan().problems.problems):
            found.setdefault(record.problem, set()).add(record.gpu)
        return found


def kernels_of(project: Project) -> list[tuple[str, Candidate]]:
    return [(entry.problem, entry.winner) for entry in load_lock(project.lock).targets[0].entries]


def test_one_gpu_and_two_give_the_same_lock(project: Project, workshop: Workshop) -> None:
    """But for how much two GPUs of a kind differ. Records say which one measured."""
    project.tune()
    one = project.lock.read_bytes()
    assert set.union(*gpus_of(project).values()) == {"GPU-0"}
    (project.path / "cache" / "tuning" / "records.sqlite").unlink()
    project.lock.unlink()
    workshop.devices = (A100, A100)
    project.tune()
    assert project.lock.read_bytes() == one
    assert all(len(used) == 1 and used <= {"GPU-0", "GPU-1"} for used in gpus_of(project).values())
    workshop.noise = 0.01
    project.tune(remeasure=True)
    noisy = kernels_of(project)
    project.lock.write_bytes(one)
    assert kernels_of(project) == noisy


def test_a_record_is_kept_as_soon_as_its_problem_comes_back(project: Project, workshop: Workshop) -> None:
    """The driver of the second problem waits until the first one's record is there."""
    records = project.path / "cache" / "tuning" / "records.sqlite"
    workshop.stop = (1, 0)
    workshop.then = f"""
            import sqlite3, time
            for _ in range(600):
                if sqlite3.connect({str(records)!r}).execute("SELECT count(*) FROM records").fetchone()[0]: break
                time.sleep(0.05)
            else: sys.exit("no record came")
            """.strip()
    assert project.tune().exit_code is ExitCode.OK


def test_a_gpu_that_falls_out_leaves_no_record_of_a_crash(project: Project, workshop: Workshop) -> None:
    """Where it was the only one, what was measured before stays, and what to do is said."""
    workshop.stop = (1, 1)
    workshop.then = """
            line(kind="record", problem=problem["digest"], candidate=candidate, device=0, status="crashed",
                 message="unspecified launch failure", statistics=None, error=None)
            (here / "gone").touch()
            sys.exit(0)
            """.strip()
    result = project.tune()
    assert (result.exit_code, result.measured_now) == (ExitCode.TASK_FAILED, 1)
    assert render(result.diagnostics[-1:], color=False) == (
        "error[gpus-lost]: 3 were not measured: GPU 0 (GPU-0) is not there any more\n"
        "  hint: tune again: what was measured stays\n"
    )
    (project.path / "generated" / "tiny" / "a100.tuning" / "gone").unlink()
    workshop.stop = None
    assert project.tune().measured_now == 5


def test_pieces_of_results_are_one_file(project: Project, workshop: Workshop) -> None:
    workshop.devices = (A100, A100)
    project.tune()
    results = read_results(project.path / "generated" / "tiny" / "a100.tuning" / "results.jsonl")
    assert (results.complete, len(results.rows)) == (True, 6)
    assert set(results.uuids) <= {"GPU-0", "GPU-1"}
    assert {results.uuid(row) for row in results.rows} == set(results.uuids)
    assert merged([results]) == results
