"""The driver's supervisor: whatever a worker does is a status of one candidate, and no process is left behind."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tuning_fakes import Act, Measurement, alive, lock_path, wait_until

from bolt_build.lockfile.fingerprint import Device
from bolt_build.tuning.records.kernel_record import Status

Make = Callable[..., Measurement]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Measurement] = []

    def one(trials: Sequence[Sequence[int]], acts: dict[str, dict[str, Act]] | None = None, **more: int) -> Measurement:
        measurement = Measurement(tmp_path / str(len(made)), trials, acts or {}, **more)
        made.append(measurement)
        return measurement

    yield one
    for measurement in made:
        measurement.remove_locks()


FIRST = [-1, -1, -1]


def test_every_candidate_has_a_record(make: Make) -> None:
    measurement = make([FIRST, [-1]], {"0": {"0": 12.5}})
    done = measurement.run()
    assert done.returncode == 0
    results = measurement.results
    assert results.complete
    assert (results.bundle, results.target) == ("bundle", "h200")
    assert results.devices == (Device("NVIDIA Test", 132, 1 << 37, 700, "570.1"),)
    assert [(row.problem, row.candidate, row.status) for row in results.rows] == [
        ("p0", "c0.0", Status.OK), ("p0", "c0.1", Status.OK), ("p0", "c0.2", Status.OK), ("p1", "c1.0", Status.OK),
    ]  # fmt: skip
    row = measurement.row("c0.0")
    assert row.statistics is not None
    assert (row.statistics.median, row.statistics.repeats, row.statistics.launches, row.error) == (12.5, 8, 16, 0.25)
    assert done.stderr.splitlines()[:3] == [
        f"measuring 2 problems on 1 GPU (NVIDIA Test), results in {measurement.folder}/results.jsonl",
        "GPU 0  [1/2] 12.50 us kernel 0; 3 tried: conv 0",
        "GPU 0  [2/2] 100.00 us kernel 0; 1 tried: conv 1",
    ]


def test_a_program_is_told_of_progress_in_json(make: Make) -> None:
    """What the lanes of a tuning read."""
    measurement = make([FIRST, [-1]], {"0": {"0": 12.5}})
    said = [json.loads(line) for line in measurement.run("--json").stderr.splitlines()]
    assert said[1:3] == [
        {"gpu": 0, "done": 1, "of": 2, "text": "12.50 us kernel 0; 3 tried: conv 0"},
        {"gpu": 0, "done": 2, "of": 2, "text": "100.00 us kernel 0; 1 tried: conv 1"},
    ]
    assert [sorted(each) for each in (said[0], *said[3:])] == [["text"], ["text"]]


def test_problems_share_a_process_while_nothing_goes_wrong(make: Make) -> None:
    """A process takes longer until it has the GPU than most candidates take."""
    measurement = make([FIRST, FIRST, FIRST], {"1": {"1": "wrong"}})
    measurement.run()
    (gpu,) = measurement.uuids
    assert [line for line in measurement.log if not line.startswith("measure")] == [
        f"start 0 on {gpu} with reference",
        f"go on with 1 on {gpu} with reference",
        f"start 2 on {gpu} with reference",
    ]


@pytest.mark.parametrize("act", ["broken", "no-memory", "exit"])
def test_what_cannot_be_prepared_behind_other_problems_has_a_process_of_its_own(make: Make, act: str) -> None:
    """They may have left something behind."""
    measurement = make([FIRST, [-1]], {"1": {"prepare again": act}})
    measurement.run()
    (gpu,) = measurement.uuids
    assert measurement.log[-3:] == [
        f"go on with 1 on {gpu} with reference", f"start 1 on {gpu} with reference", "measure 1 0",
    ]  # fmt: skip
    assert measurement.row("c1.0").status is Status.OK


def test_launches_that_wait_for_each_other(make: Make) -> None:
    measurement = make([FIRST])
    assert measurement.run("--no-overlap").returncode == 0
    (gpu,) = measurement.uuids
    assert measurement.starts == [f"start 0 on {gpu} with reference, without overlap"]
    assert not measurement.results.overlap
    measurement.run()
    assert measurement.results.overlap


# Of each way to fail: what the worker does, the status and the message. Another worker has to go on.
FAILURES = [
    ("segfault", Status.CRASHED, "its process was ended by signal 11 (Segmentation fault)"),
    ("exit", Status.CRASHED, "its process ended with exit status 9"),
    ("hang", Status.TIMED_OUT, "took longer than 0.5 s"),
    ("garbage", Status.CRASHED, "its process said what is no result: 'Hello from a kernel'"),
    ("endless", Status.CRASHED, f"its process said what is no result: '{'x' * 80}'"),
    ("lost", Status.CRASHED, "the kernel: an illegal memory access was encountered"),
    ("wrong", Status.WRONG, "element 3 is 1, the reference has 2"),
]


@pytest.mark.parametrize(("act", "status", "message"), FAILURES, ids=[f[0] for f in FAILURES])
def test_a_failure_is_a_status_of_its_candidate_alone(make: Make, act: str, status: Status, message: str) -> None:
    measurement = make([FIRST, [-1]], {"0": {"1": act}})
    done = measurement.run("--limit", "0.5")
    assert done.returncode == 0
    row = measurement.row("c0.1")
    assert (row.status, row.message, row.statistics) == (status, message, None)
    others = [row for row in measurement.results.rows if row.candidate != "c0.1"]
    assert [(row.candidate, row.status) for row in others] == [
        ("c0.0", Status.OK), ("c0.2", Status.OK), ("c1.0", Status.OK),
    ]  # fmt: skip
    assert measurement.results.complete
    assert len(measurement.starts) == 2
    wait_until(lambda: not any(alive(process) for process in measurement.sleepers))
    assert f"GPU 0      {status.value}: kernel 1: {message}" in done.stderr.splitlines()


def test_an_answer_about_another_candidate_is_none(make: Make) -> None:
    measurement = make([FIRST], {"0": {"0": "other-trial"}})
    measurement.run()
    assert measurement.row("c0.0").status is Status.CRASHED
    assert measurement.row("c0.1").status is Status.OK


def test_the_last_candidate_may_crash(make: Make) -> None:
    measurement = make([FIRST], {"0": {"2": "segfault"}})
    assert measurement.run().returncode == 0
    assert [row.status for row in measurement.results.rows] == [Status.OK, Status.OK, Status.CRASHED]
    assert len(measurement.starts) == 1


def test_all_candidates_may_crash(make: Make) -> None:
    measurement = make([FIRST], {"0": {"0": "exit", "1": "segfault", "2": "exit"}})
    done = measurement.run()
    assert done.returncode == 0
    assert [row.status for row in measurement.results.rows] == [Status.CRASHED] * 3
    assert "GPU 0  [1/1] no candidate did it; 3 tried, 3 failed: conv 0" in done.stderr.splitlines()


@pytest.mark.parametrize("act", ["reference-segfault", "reference-broken"])
def test_a_reference_that_crashes_is_left_out(make: Make, act: str) -> None:
    measurement = make([FIRST], {"0": {"prepare": act}})
    measurement.run()
    (gpu,) = measurement.uuids
    assert measurement.starts == [f"start 0 on {gpu} with reference", f"start 0 on {gpu}"]
    assert [row.status for row in measurement.results.rows] == [Status.OK] * 3


@pytest.mark.parametrize(
    ("act", "status", "message"),
    [
        ("exit", Status.CRASHED, "preparing the problem failed: its process ended with exit status 9"),
        ("hang", Status.CRASHED, "preparing the problem failed: took longer than 0.5 s"),
        (
            "broken",
            Status.CRASHED,
            "preparing the problem failed: the reference: an illegal memory access was encountered",
        ),
        ("no-memory", Status.OUT_OF_MEMORY, "no memory is left"),
    ],
)
def test_a_problem_that_cannot_be_prepared_costs_no_other(make: Make, act: str, status: Status, message: str) -> None:
    measurement = make([[-1, -1, 0], [-1]], {"0": {"prepare": act}})
    assert measurement.run("--preparing-limit", "0.5").returncode == 0
    found = [(row.candidate, row.status, row.message) for row in measurement.results.rows]
    assert found == [("c0.0", status, message), ("c0.1", status, message), ("c1.0", Status.OK, "")]
    wait_until(lambda: not any(alive(process) for process in measurement.sleepers))


def test_only_leaders_are_varied(make: Make) -> None:
    # 0 and 2 are the best two, 3 comes within a tenth of the best, 1 does not; 4 crashed.
    acts: dict[str, Act] = {"0": 100.0, "1": 120.0, "2": 104.0, "3": 109.0, "4": "exit"}
    measurement = make([[-1, -1, -1, -1, -1, 0, 0, 1, 2, 3, 4]], {"0": acts})
    measurement.run()
    assert [row.candidate for row in measurement.results.rows] == [
        "c0.0", "c0.1", "c0.2", "c0.3", "c0.4", "c0.5", "c0.6", "c0.8", "c0.9",
    ]  # fmt: skip
    assert measurement.results.unmeasured == ()


def test_the_best_two_are_varied_however_far_apart(make: Make) -> None:
    measurement = make([[-1, -1, -1, 0, 1, 2]], {"0": {"0": 10.0, "1": 90.0, "2": 50.0}})
    measurement.run()
    assert [row.candidate for row in measurement.results.rows][3:] == ["c0.3", "c0.5"]


def test_what_the_budget_does_not_reach_is_named(make: Make) -> None:
    measurement = make([FIRST, FIRST], {"0": {"0": "slow", "1": "slow"}})
    done = measurement.run("--budget", "0.6")
    assert done.returncode == 0
    results = measurement.results
    assert results.complete
    measured = [row.candidate for row in results.rows]
    left = [(left.problem, left.candidate, left.message) for left in results.unmeasured]
    assert measured[:1] == ["c0.0"]
    assert "c0.2" not in measured
    assert sorted(measured + [candidate for _, candidate, _ in left]) == sorted(
        f"c{problem}.{trial}" for problem in (0, 1) for trial in (0, 1, 2)
    )
    assert left[-3:] == [("p1", f"c1.{trial}", "the budget was used up") for trial in (0, 1, 2)]
    assert f"{len(left)} are not measured, because the budget was used up" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_workers_and_leaves_whole_lines(make: Make, number: signal.Signals) -> None:
    measurement = make([[-1, -1]], {"0": {"1": "hang"}})
    with measurement.start() as running:
        wait_until(lambda: len(measurement.sleepers) == 2)
        running.send_signal(number)
        assert running.wait(20) == 130
        assert running.stderr is not None
        assert running.stderr.read().splitlines()[-1] == "run: interrupted: results hold what was measured"
    wait_until(lambda: not any(alive(process) for process in measurement.sleepers))
    assert not measurement.results.complete
    assert [row.candidate for row in measurement.results.rows] == ["c0.0"]


def test_a_killed_supervisor_leaves_no_worker(make: Make) -> None:
    measurement = make([[-1, -1]], {"0": {"1": "hang"}})
    with measurement.start() as running:
        wait_until(lambda: len(measurement.sleepers) == 2)
        running.kill()
        running.wait(20)
    worker, child = measurement.sleepers
    wait_until(lambda: not alive(worker))
    assert [row.candidate for row in measurement.results.rows] == ["c0.0"]
    # What a worker starts is not the driver's: no kernel does. The test ends it.
    subprocess.run(["kill", "-9", str(child)], check=False)


def test_it_ends_with_its_input(make: Make) -> None:
    measurement = make([[-1, -1]], {"0": {"1": "hang"}})
    argv = measurement.argv("--with-input")
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        wait_until(lambda: len(measurement.sleepers) == 2)
        assert running.stdin is not None
        running.stdin.close()
        assert running.wait(20) == 130
    wait_until(lambda: not any(alive(process) for process in measurement.sleepers))


def test_all_gpus_measure_at_once(make: Make) -> None:
    slow: dict[str, Act] = {"0": "slow"}
    measurement = make([[-1]] * 4, {str(problem): slow for problem in range(4)}, gpus=2)
    measurement.run()
    used = {line.split()[3] for line in measurement.starts}
    assert used == set(measurement.uuids)
    assert {row.device for row in measurement.results.rows} == {0, 1}
    assert len(measurement.results.devices) == 2


def test_only_the_problems_that_are_asked_for(make: Make) -> None:
    measurement = make([[-1]] * 3)
    done = measurement.run("--problems", "2,0")
    assert [row.problem for row in measurement.results.rows] == ["p2", "p0"]
    assert done.stderr.splitlines()[0].startswith("measuring 2 problems on 1 GPU ")
    none = measurement.run("--problems", "3")
    assert (none.returncode, none.stderr) == (2, "run: there is no problem 3: there are 3, counted from 0\n")


def test_a_gpu_that_is_named_is_not_looked_for(make: Make) -> None:
    measurement = make([[-1]], device_error="nobody asks")
    line = f"device\t1\t{measurement.uuids[0]}\tNVIDIA Test\t132\t1\t700\t570.1\t90"
    assert measurement.run("--device", line).returncode == 0
    assert measurement.results.uuids == (measurement.uuids[0],)
    wrong = measurement.run("--device", "one")
    assert (wrong.returncode, wrong.stderr) == (2, "run: --device takes a line of run --devices, not 'one'\n")


def test_only_the_gpus_that_are_asked_for(make: Make) -> None:
    measurement = make([[-1]] * 3, gpus=3)
    measurement.run("--gpus", "1")
    assert {line.split()[3] for line in measurement.starts} == {measurement.uuids[1]}


def test_a_gpu_is_measured_on_by_one_program_at_a_time(make: Make) -> None:
    measurement = make([[-1]])
    path = lock_path(measurement.uuids[0])
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with measurement.start() as running:
            assert running.stderr is not None
            running.stderr.readline()
            assert running.stderr.readline() == f"GPU 0  waiting: another program measures on it ({path})\n"
            assert measurement.log == []
            fcntl.flock(held, fcntl.LOCK_UN)
            assert running.wait(20) == 0
    assert measurement.results.complete


def test_a_gpu_that_others_hold_keeps_no_other_from_working(make: Make) -> None:
    measurement = make([[-1]] * 3, gpus=2)
    with lock_path(measurement.uuids[0]).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert measurement.run().returncode == 0
    assert {line.split()[3] for line in measurement.starts} == {measurement.uuids[1]}


def test_other_users_can_take_the_lock_too(make: Make) -> None:
    measurement = make([[-1]])
    measurement.run()
    assert lock_path(measurement.uuids[0]).stat().st_mode & 0o777 == 0o444


def test_no_driver(make: Make) -> None:
    measurement = make([[-1]], gpus=0)
    measurement.device_error = "no NVIDIA driver is installed"
    measurement.__post_init__()
    done = measurement.run()
    assert (done.returncode, done.stderr) == (7, "run: no NVIDIA driver is installed\n")
    assert not (measurement.folder / "results.jsonl").exists()


def test_a_gpu_of_another_architecture(make: Make) -> None:
    measurement = make([[-1]], capability=100)
    done = measurement.run()
    assert done.returncode == 7
    assert done.stderr == (
        "run: no GPU here can run these candidates, which were compiled for compute capability 9.0 alone: "
        "GPU 0 is a NVIDIA Test with compute capability 10.0\n"
    )


def test_a_gpu_that_does_not_exist(make: Make) -> None:
    measurement = make([[-1]])
    done = measurement.run("--gpus", "0,4")
    assert (done.returncode, done.stderr) == (7, "run: GPU 4 does not exist: CUDA sees 1, counted from 0\n")


def test_results_that_cannot_be_written(make: Make) -> None:
    measurement = make([[-1]])
    done = measurement.run("--results", "/nowhere/results.jsonl")
    expected = "run: results cannot be written to '/nowhere/results.jsonl': No such file or directory\n"
    assert (done.returncode, done.stderr) == (4, expected)
