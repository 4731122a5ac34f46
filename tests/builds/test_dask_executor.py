"""Compilations on workers of Dask: the same bytes, and what a lost worker or scheduler costs."""

from __future__ import annotations

import argparse
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("distributed", reason="pip install 'bolt-build[dask,test]'")

from dask_graphs import DaskProcesses, Sources, answers, compile_task, free_port, notes

from bolt_build.build.builder import BuildOptions
from bolt_build.build.events import EventKind
from bolt_build.build.planning.plan_file import load_plan_file
from bolt_build.build.remote.compilations import Compilations
from bolt_build.build.remote.dask import LOCAL, DaskScheduler, Lost, Stopped, scheduler
from bolt_build.build.remote.job import Answer, Job, job_of
from bolt_build.build.remote.worker import run_job
from bolt_build.cli.common_arguments import add_jobs
from bolt_build.cli.executor_arguments import AWAY, add_executor, with_executor
from bolt_build.digest import digest_file
from bolt_build.errors import BoltError, ExitCode
from bolt_build.report.diagnostics import render
from bolt_build.scratch import PREFIX


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskProcesses]:
    """A scheduler and two workers."""
    found = DaskProcesses(tmp_path_factory.mktemp("dask"), free_port())
    for name in ("scheduler", "one", "two"):
        found.start(name)
    answers(found.port)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Digests of what a build without Dask makes."""
    sources = Sources(tmp_path_factory.mktemp("here"))
    assert sources.build(None)[0].failed == ()
    return sources.digests


def job(root: Path) -> Job:
    sources = Sources(root)
    target = sources.recipe.target("host")
    plan = load_plan_file(target.plan)
    assert plan is not None
    found = job_of(plan.graph.tasks[0], plan.places, target.path)
    assert found is not None
    return found


def test_a_job_has_all_that_its_task_reads_here(tmp_path: Path, here: dict[str, str]) -> None:
    found = job(tmp_path)
    assert [file.name for file in found.files] == ["src/a.cpp", "src/all.h"]
    assert str(tmp_path) not in repr(found)
    answer = run_job(found)
    assert (answer.status, answer.refused, [file.name for file in answer.outputs]) == (0, "", ["a.o"])
    (tmp_path / "a.o").write_bytes(answer.outputs[0].data)
    assert digest_file(tmp_path / "a.o") == here["a.o"]


def test_a_machine_with_other_tools_or_another_bolt_build_refuses(tmp_path: Path) -> None:
    found = job(tmp_path)
    assert run_job(replace(found, package="0" * 64)).refused == "has another bolt-build"
    assert run_job(replace(found, tools=(("cxx", "0" * 64),))).refused == "has another cxx"


def test_what_only_this_machine_has_stays_here(tmp_path: Path) -> None:
    sources = Sources(tmp_path)
    target = sources.recipe.target("host")
    plan = load_plan_file(target.plan)
    assert plan is not None
    task = compile_task("a")
    elsewhere = replace(plan.places, paths=(*plan.places.paths, ("family.mine", "/opt/mine")))
    assert job_of(replace(task, argv=(*task.argv, "-I${family.mine}")), elsewhere, target.path) is None
    assert job_of(replace(task, inputs=("/etc/hosts",)), plan.places, target.path) is None
    assert job_of(replace(task, rule="link"), plan.places, target.path) is None


def test_the_same_bytes_come_from_workers(cluster: DaskProcesses, tmp_path: Path, here: dict[str, str]) -> None:
    """And it was workers that compiled."""
    sources = Sources(tmp_path, wait=f"pwd > {tmp_path}/$$.where")
    result, told = sources.build(cluster.address)
    assert (result.failed, result.trouble, notes(told)) == ((), "", [])
    assert sources.digests == here
    places = [path.read_text() for path in tmp_path.glob("*.where")]
    assert [f"/{PREFIX}" in place for place in places] == [True] * len(sources.names)
    assert {event.kind for event in sources.build(cluster.address)[1]} <= {EventKind.CURRENT}


def test_what_does_not_compile_fails_with_its_own_words(cluster: DaskProcesses, tmp_path: Path) -> None:
    sources = Sources(tmp_path)
    (sources.recipe.target("host").path / "src" / "b.cpp").write_text("int b() { return nothing; }\n")
    result, _ = sources.build(cluster.address)
    (failed,) = (event for event in result.failed if event.task == "compile-b")
    assert failed.text == "exit status 1"
    assert "src/b.cpp:1:18: error: 'nothing' was not declared in this scope" in failed.log
    assert not (sources.recipe.target("host").path / "b.o").exists()


def test_a_worker_that_dies_costs_a_retry(cluster: DaskProcesses, tmp_path: Path, here: dict[str, str]) -> None:
    """It is killed while it compiles; the other worker has its task then."""
    sources = Sources(tmp_path, wait=f"echo $PPID > {tmp_path}/$$.begun; sleep 1.5")
    killed: list[str] = []

    def kill() -> None:
        while not (at_work := "".join(path.read_text() for path in tmp_path.glob("*.begun")).split()):
            time.sleep(0.02)
        killed.extend(name for name, child in cluster.running.items() if child.pid == int(at_work[0]))
        cluster.kill(killed[0])

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        result, told = sources.build(cluster.address)
    finally:
        killer.join()
        cluster.start(killed[0])
    assert (result.failed, result.trouble, notes(told)) == ((), "", [])
    assert sources.digests == here
    assert len([*tmp_path.glob("*.begun")]) == len(sources.names) + 1


@pytest.mark.large
def test_a_scheduler_that_restarts_costs_a_retry(cluster: DaskProcesses, tmp_path: Path, here: dict[str, str]) -> None:
    """It takes all that it knows along. Workers that it had end, as no nanny holds them, and others come."""
    sources = Sources(tmp_path, wait=f"touch {tmp_path}/$$.begun; sleep 1")

    def restart() -> None:
        while not [*tmp_path.glob("*.begun")]:
            time.sleep(0.02)
        for name in ("scheduler", "one", "two"):
            cluster.kill(name)
        for name in ("scheduler", "one", "two"):
            cluster.start(name)

    killer = threading.Thread(target=restart)
    killer.start()
    try:
        result, told = sources.build(cluster.address)
    finally:
        killer.join()
    assert (result.failed, result.trouble, notes(told)) == ((), "", [])
    assert sources.digests == here


def test_without_a_scheduler_the_build_goes_on_here(tmp_path: Path, here: dict[str, str]) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    sources = Sources(tmp_path, ("a", "b"))
    result, told = sources.build(address, jobs=2)
    assert (result.failed, result.trouble) == ((), "")
    assert notes(told) == [f"the scheduler {address} does not answer: what it does not do is done here"]
    assert {name: here[name] for name in ("a.o", "b.o")} == {n: d for n, d in sources.digests.items() if n != "lib.so"}


def test_a_scheduler_without_workers_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    fleet = DaskProcesses(tmp_path, free_port())
    fleet.start("scheduler")
    answers(fleet.port)
    executor = Compilations(DaskScheduler(fleet.address, lambda: False, workerless=0.5))
    said: list[str] = []
    try:
        assert executor.run(job(tmp_path), said.append) is None
    finally:
        executor.close()
        fleet.stop()
    assert said == [f"no worker of {fleet.address} can compile it: it is done here"]


class Losing(DaskScheduler):
    """A scheduler with a worker of a full disk, or one whose compilers are ended."""

    def ask(self, question: object, about: object, **how: object) -> Any:
        if self.address == "full":
            raise Lost("OSError: [Errno 28] No space left on device")
        return Answer(-9), "worker"


@pytest.mark.parametrize(
    ("what", "why"),
    [("full", "OSError: [Errno 28] No space left on device"), ("ends", "its compiler was ended")],
)
def test_why_a_compilation_was_lost_is_told(tmp_path: Path, what: str, why: str) -> None:
    said: list[str] = []
    assert Compilations(Losing(what, lambda: False)).run(job(tmp_path), said.append) is None
    assert said == [f"the scheduler {what} has lost compile-a 6 times ({why}): it is done here"]


def test_a_question_that_fails_on_every_worker_is_lost_with_its_error(
    cluster: DaskProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bolt_build.build.remote.dask._RETRY_SECONDS", 0.0)
    asked = DaskScheduler(cluster.address, lambda: False)
    with pytest.raises(Lost) as raised:
        asked.ask(int, "no number")
    asked.close()
    assert str(raised.value) == "ValueError: invalid literal for int() with base 10: 'no number'"


def test_a_build_that_ends_waits_for_no_worker(cluster: DaskProcesses, tmp_path: Path) -> None:
    ends: list[bool] = []
    executor = Compilations(DaskScheduler(cluster.address, lambda: bool(ends)))
    found = job(tmp_path)
    slow = replace(found, argv=("/bin/sh", "-c", f"touch {tmp_path}/begun; sleep 5"))

    def end() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.02)
        ends.append(True)

    ender = threading.Thread(target=end)
    ender.start()
    with pytest.raises(Stopped):
        executor.run(slow, print)
    ender.join()
    executor.close()


@pytest.mark.large
def test_workers_of_this_machine_end_with_the_build(tmp_path: Path, here: dict[str, str]) -> None:
    sources = Sources(tmp_path)
    with scheduler(LOCAL, 2) as address:
        result, told = sources.build(address)
        assert (result.failed, notes(told)) == ((), [])
        assert sources.digests == here
    with socket.socket() as asking:
        assert asking.connect_ex(("127.0.0.1", int(str(address).rpartition(":")[2]))) != 0


def options(*words: str) -> BuildOptions:
    parser = argparse.ArgumentParser()
    add_jobs(parser)
    add_executor(parser)
    return with_executor(BuildOptions(jobs=2), parser.parse_args(words))


def complaint(code: ExitCode, *words: str) -> str:
    with pytest.raises(BoltError) as raised:
        options(*words)
    assert raised.value.exit_code is code
    return render(raised.value.diagnostics, color=False)


def test_which_scheduler_and_how_many_tasks() -> None:
    assert (options().scheduler, options("-j", "3").jobs) == (None, 3)
    assert options("--executor", "dask") == replace(BuildOptions(jobs=2), scheduler=LOCAL)
    named = options("--executor", "dask", "--scheduler", "tls://build.example:8786")
    assert (named.scheduler, named.jobs) == ("tls://build.example:8786", AWAY)
    for address in ("tcp://127.0.0.1:8786", "localhost:8786"):
        assert options("--executor", "dask", "--scheduler", address, "-j", "5").jobs == 5


def test_a_scheduler_outside_this_machine_needs_tls() -> None:
    asked = ("--executor", "dask", "--scheduler", "tcp://build.example:8786")
    assert complaint(ExitCode.USAGE, *asked) == (
        "error[open-scheduler]: the scheduler tcp://build.example:8786 is reached without TLS: whoever is on the way "
        "can put code into engines\n"
        "  hint: start it with --protocol tls, and name it as tls://HOST:PORT; certificates are those of Dask's "
        "configuration\n"
    )
    assert complaint(ExitCode.USAGE, "--scheduler", "tls://build.example:8786") == (
        "error[wrong-arguments]: --scheduler is for --executor dask\n"
        "  hint: --executor dask --scheduler tls://build.example:8786\n"
    )


def test_a_library_that_is_too_old_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distributed.__version__", "2024.12.1")
    assert complaint(ExitCode.TOOL_MISSING, "--executor", "dask") == (
        "error[old-library]: the executor dask needs distributed 2025.4 or newer, and 2024.12.1 is installed\n"
        "  hint: python -m pip install distributed --upgrade\n"
    )


def test_the_library_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert complaint(ExitCode.TOOL_MISSING, "--executor", "dask") == (
        "error[missing-library]: the executor dask needs distributed, which is not installed\n"
        "  hint: python -m pip install distributed\n"
    )
