"""Measuring from Python: progress is passed on, and the driver ends with the call."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tuning_fakes import Measurement, alive, supervisor, wait_until

from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.tuning.driver_process import measure


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Measurement]:
    measurement = Measurement(tmp_path / "hanging", [[-1, -1]], {"0": {"1": "hang"}})
    yield measurement
    measurement.remove_locks()


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Measurement]:
    measurement = Measurement(tmp_path / "quick", [[-1, -1]])
    yield measurement
    measurement.remove_locks()


def test_progress_and_results(quick: Measurement) -> None:
    lines: list[str] = []
    results = quick.folder / "results.jsonl"
    worker = ("--worker-program", str(quick.folder / "worker.py"))
    code = measure(supervisor(), quick.folder / "candidates.so", results, 60.0, on_line=lines.append, options=worker)
    assert code == 0
    assert lines[:2] == [
        f"measuring 1 problem on 1 GPU (NVIDIA Test), results in {results}",
        "GPU 0  [1/1] 100.00 us kernel 0; 2 tried: conv 0",
    ]
    assert [row.candidate for row in quick.results.rows] == ["c0.0", "c0.1"]


def test_the_drivers_exit_status(tmp_path: Path) -> None:
    lines: list[str] = []
    assert measure(supervisor(), tmp_path / "none.so", tmp_path / "r.jsonl", 1.0, on_line=lines.append) == 3
    assert lines == [f"run: there is no library of candidates at '{tmp_path}/none.so'"]


def test_a_driver_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(BoltError) as raised:
        measure(tmp_path / "run", tmp_path / "candidates.so", tmp_path / "results.jsonl", 1.0)
    message = f"the driver '{tmp_path}/run' cannot be started: No such file or directory"
    assert raised.value.diagnostics == (Diagnostic("driver-unusable", message),)
    assert raised.value.exit_code is ExitCode.TASK_FAILED


_PROGRAM = """
import sys
from pathlib import Path
from bolt_build.tuning.driver_process import measure
driver, folder = sys.argv[1:]
measure(Path(driver), Path(folder, "candidates.so"), Path(folder, "results.jsonl"), 60.0,
        options=("--worker-program", folder + "/worker.py"))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_program_that_measures(hanging: Measurement, number: signal.Signals) -> None:
    argv = [sys.executable, "-c", _PROGRAM, str(supervisor()), str(hanging.folder)]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as program:
        wait_until(lambda: len(hanging.sleepers) == 2)
        program.send_signal(number)
        assert program.wait(20) != 0
    wait_until(lambda: not any(alive(process) for process in hanging.sleepers))
    assert [row.candidate for row in hanging.results.rows] == ["c0.0"]
