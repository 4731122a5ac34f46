"""Measurements on workers of Dask that own a GPU: the lock of this machine's GPU, and what a loss costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

pytest.importorskip("distributed", reason="pip install 'bolt-build[dask,test]'")

from dask_graphs import DaskProcesses, answers, free_port
from test_tune_measure import Workshop, project, workshop
from tune_projects import Project

from bolt_build.build.remote import dask
from bolt_build.errors import BoltError, ExitCode
from bolt_build.report.diagnostics import render
from bolt_build.report.progress import QuietProgress
from bolt_build.tuning import lab
from bolt_build.tuning.lanes.workers import declared
from bolt_build.tuning.outcome import TuneResult
from bolt_build.tuning.run import TuneOptions, tune

__all__ = ["project", "workshop"]  # fixtures

NO_GPU = "this machine has no GPU that CUDA can use"
OWNS = ("--resources", "gpu_a100=1")


class Said(QuietProgress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskProcesses]:
    """A scheduler, and two workers with a GPU each."""
    found = DaskProcesses(tmp_path_factory.mktemp("dask"), free_port())
    found.start("scheduler")
    answers(found.port)
    for name in ("one", "two"):
        found.start(name, *OWNS)
    wait_until(lambda: declared(found.address, "a100") == 2)
    yield found
    found.stop()


@pytest.fixture
def reference(project: Project, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The lock that this machine's GPU gives. It has none any more afterwards."""
    project.tune()
    lock = project.lock.read_bytes()
    project.lock.unlink()
    (project.path / "cache" / "tuning" / "records.sqlite").unlink()
    monkeypatch.setattr(lab, "why_not_here", lambda target: NO_GPU)
    return lock


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def tuned(project: Project, address: str) -> tuple[TuneResult, list[str]]:
    said = Said()
    return tune(project.recipe, TuneOptions(replace(project.build, scheduler=address)), said), said.lines


def behind(condition: Callable[[], object], act: Callable[[], None]) -> threading.Thread:
    """Act once something is so."""

    def wait() -> None:
        wait_until(condition)
        act()

    found = threading.Thread(target=wait)
    found.start()
    return found


def test_workers_give_the_lock_of_this_machines_gpu(
    fleet: DaskProcesses, project: Project, workshop: Workshop, reference: bytes
) -> None:
    result, said = tuned(project, fleet.address)
    assert (result.exit_code, result.measured_now, result.played_now) == (ExitCode.OK, 6, 1)
    assert project.lock.read_bytes() == reference
    assert said[0] == f"measurements are for 2 workers of {fleet.address} with gpu_a100"
    measured = [line for line in said if line.startswith("GPU 0 of tcp://127.0.0.1:")]
    assert [line.split("  ")[1] for line in measured] == [f"[{count}/4] measured" for count in (1, 2, 3, 4)]
    again, _ = tuned(project, fleet.address)
    assert (again.measured_now, again.played_now) == (0, 0)


@pytest.mark.large
def test_a_worker_that_dies_costs_a_retry(
    fleet: DaskProcesses, project: Project, workshop: Workshop, reference: bytes
) -> None:
    """It is killed while it measures the convolution; the other one, or what comes in its place, does it again."""
    begun = project.path / "begun"
    workshop.stop = (1, 1)
    workshop.then = f"Path({str(begun)!r}).open('a').write('x'); import time; time.sleep(3)"

    def kill() -> None:
        for name in ("one", "two"):
            fleet.kill(name)
        for name in ("one", "two"):
            fleet.start(name, *OWNS)

    killer = behind(begun.exists, kill)
    result, _ = tuned(project, fleet.address)
    killer.join()
    assert (result.exit_code, result.measured_now) == (ExitCode.OK, 6)
    assert project.lock.read_bytes() == reference
    assert begun.read_text() == "xx"


def test_a_gpu_that_falls_out_costs_a_retry_on_another(
    fleet: DaskProcesses, project: Project, workshop: Workshop, reference: bytes
) -> None:
    once = project.path / "once"
    workshop.stop = (1, 1)
    workshop.then = f"""
            if not Path({str(once)!r}).exists():
                Path({str(once)!r}).touch()
                (here / "gone").touch()
                line(kind="record", problem=problem["digest"], candidate=candidate, device=0, status="crashed",
                     message="unspecified launch failure", statistics=None, error=None)
                sys.exit(0)
            """.strip()
    try:
        result, said = tuned(project, fleet.address)
    finally:
        for gone in fleet.folder.glob("**/gone"):
            gone.unlink()
    assert (result.exit_code, result.measured_now) == (ExitCode.OK, 6)
    assert project.lock.read_bytes() == reference
    (lost,) = [line for line in said if "has lost its GPU" in line]
    assert lost.endswith(" has lost its GPU (GPU 0 (GPU-0) is not there any more): it measures nothing more")


@pytest.mark.large
def test_a_scheduler_that_restarts_costs_a_retry(
    fleet: DaskProcesses, project: Project, workshop: Workshop, reference: bytes
) -> None:
    begun = project.path / "begun"
    workshop.stop = (1, 1)
    workshop.then = f"Path({str(begun)!r}).open('a').write('x'); import time; time.sleep(2)"

    def restart() -> None:
        for name in ("scheduler", "one", "two"):
            fleet.kill(name)
        fleet.start("scheduler")
        for name in ("one", "two"):
            fleet.start(name, *OWNS)

    killer = behind(begun.exists, restart)
    result, _ = tuned(project, fleet.address)
    killer.join()
    assert (result.exit_code, result.measured_now) == (ExitCode.OK, 6)
    assert project.lock.read_bytes() == reference


def test_where_no_worker_declares_the_gpu(
    fleet: DaskProcesses, project: Project, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This machine's GPUs measure. Where there is none it is said before anything is compiled, and what to do."""
    project.write(("a100", "h200"))
    monkeypatch.setattr(lab, "why_not_here", lambda target: NO_GPU)
    options = TuneOptions(replace(project.build, scheduler=fleet.address, targets=("h200",)))
    with pytest.raises(BoltError) as caught:
        tune(project.recipe, options, QuietProgress())
    assert (caught.value.exit_code, workshop.asked) == (ExitCode.TOOL_MISSING, [])
    assert render(caught.value.diagnostics, color=False).replace(f"{project.path}/", "") == (
        f"tiny.yaml:4:11: error[no-gpu-worker]: candidates for h200 cannot be measured: no worker of {fleet.address} "
        "declares gpu_h200, and this machine has no GPU that CUDA can use\n"
        "  4 | targets: {h200: {precision: fp16}}\n"
        "    |           ^^^^ start a worker for each GPU, on the machine that has it: CUDA_VISIBLE_DEVICES=0 dask "
        f"worker {fleet.address} --nthreads 1 --resources gpu_h200=1\n"
    )


def test_a_scheduler_that_does_not_answer_measures_nothing(
    project: Project, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask, "_FIRST_SECONDS", 0.2)
    address = f"tcp://127.0.0.1:{free_port()}"
    result, said = tuned(project, address)
    assert said[0] == f"the scheduler {address} does not answer: the GPUs of this machine measure"
    assert result.measured_now == 6
