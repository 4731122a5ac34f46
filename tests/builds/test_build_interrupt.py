"""Builds ended from outside: nothing half-written, nobody left behind, and the next build goes on from there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from build_graphs import shell, write_plan

from bolt_build.build.claim import directory_claim
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.staleness.receipt import load_receipt

_CHILD = Path(__file__).parents[1] / "support" / "build_child.py"
_PATIENCE_SECONDS = 120

QUICK = shell("quick", 'echo done > "$out/quick.txt"', ("quick.txt",))
# The grandchild stays in the group when its parent is killed: it is what an orphan would be.
SLOW = shell(
    "slow",
    'echo half > "$out/slow.txt"; sleep 600 & echo $! > grandchild; echo $$ > child; wait',
    ("slow.txt",),
    ("quick.txt",),
)


def start(recipe: RecipeDirectory, jobs: int = 2) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(_CHILD.parent), str(_CHILD.parents[2])])
    return subprocess.Popen(
        [sys.executable, str(_CHILD), str(recipe.path), str(jobs)], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": paths}, start_new_session=True,
    )  # fmt: skip


def until(condition: object, what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def number_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().strip(), f"{path} was never written")
    return int(path.read_text())


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


@pytest.fixture
def recipe(tmp_path: Path) -> RecipeDirectory:
    return write_plan(tmp_path, QUICK, SLOW)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_signal_ends_every_process_and_leaves_what_is_finished(
    recipe: RecipeDirectory, number: signal.Signals, jobs: int
) -> None:
    host = recipe.target("host")
    build = start(recipe, jobs)
    child, grandchild = number_in(host.path / "child"), number_in(host.path / "grandchild")
    build.send_signal(number)
    out, _ = build.communicate(timeout=_PATIENCE_SECONDS)
    assert build.returncode == 130
    assert "finished quick" in out
    assert "failed" not in out
    until(lambda: not is_alive(child) and not is_alive(grandchild), "a process was left behind")
    assert not (host.path / "slow.txt").exists()
    assert list(host.temporary.iterdir()) == []
    assert load_receipt(host.receipts, "quick") is not None
    assert load_receipt(host.receipts, "slow") is None


def test_a_task_that_ignores_signals_is_killed(tmp_path: Path) -> None:
    stubborn = shell("slow", "trap '' TERM INT HUP; echo $$ > child; while :; do sleep 600; done", ("slow.txt",))
    recipe = write_plan(tmp_path, stubborn)
    build = start(recipe)
    child = number_in(recipe.target("host").path / "child")
    build.send_signal(signal.SIGINT)
    build.communicate(timeout=_PATIENCE_SECONDS)
    assert build.returncode == 130
    until(lambda: not is_alive(child), "the task was left behind")


def test_after_sigkill_nobody_is_left_and_the_next_build_goes_on(recipe: RecipeDirectory) -> None:
    host = recipe.target("host")
    build = start(recipe)
    child, grandchild = number_in(host.path / "child"), number_in(host.path / "grandchild")
    build.kill()
    build.communicate(timeout=_PATIENCE_SECONDS)
    until(lambda: not is_alive(child) and not is_alive(grandchild), "a process was left behind")
    assert not (host.path / "slow.txt").exists()
    assert list(host.temporary.iterdir()) != []
    (host.path / ".plan.json.123.tmp").write_text("half")

    write_plan(recipe.path.parent, QUICK, shell("slow", 'cp quick.txt "$out/slow.txt"', ("slow.txt",), ("quick.txt",)))
    again = start(recipe)
    out, _ = again.communicate(timeout=_PATIENCE_SECONDS)
    assert again.returncode == 0
    assert "current quick" in out
    assert (host.path / "slow.txt").read_text() == "done\n"
    assert list(host.temporary.iterdir()) == []
    assert not (host.path / ".plan.json.123.tmp").exists()


def test_the_lock_outlives_a_killed_build_no_longer_than_its_processes(recipe: RecipeDirectory) -> None:
    build = start(recipe)
    number_in(recipe.target("host").path / "child")
    build.kill()
    build.communicate(timeout=_PATIENCE_SECONDS)
    with directory_claim(recipe.path, wait=True, say=print):
        assert (recipe.path / ".lock").read_text() == f"{os.getpid()}\n"


def test_two_builds_at_once_take_turns(tmp_path: Path) -> None:
    """The first goes on when the second has said that it waits."""
    wait = 'touch here; until [ -e go ]; do sleep 0.05; done; echo done > "$out/slow.txt"'
    recipe = write_plan(tmp_path, shell("slow", wait, ("slow.txt",)))
    host = recipe.target("host").path
    first = start(recipe)
    until((host / "here").exists, "the first build never began")
    second = start(recipe)
    assert second.stdout is not None
    patience = threading.Timer(_PATIENCE_SECONDS, (host / "go").touch)
    patience.start()
    said = second.stdout.readline()
    patience.cancel()
    (host / "go").touch()
    out, _ = second.communicate(timeout=_PATIENCE_SECONDS)
    first_out, _ = first.communicate(timeout=_PATIENCE_SECONDS)
    assert (first.returncode, second.returncode) == (0, 0)
    assert said == f"waiting for another build (process {first.pid}) in {recipe.path}\n"
    assert "finished slow" in first_out
    assert "slow" not in out
