"""Temporary folders go with the process that has them, or with the next one that makes one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from build_graphs import shell, write_plan
from test_build_interrupt import is_alive, number_in, start, until

from bolt_build.build.layout import RecipeDirectory
from bolt_build.scratch import PREFIX, make_scratch, scratch_folder

ROOT = Path(__file__).parents[2]
OWNER = "from bolt_build.scratch import make_scratch\nprint(make_scratch().path, flush=True)\ninput()\n"
SLOW = shell(
    "slow", 'echo half > "$TMPDIR/cc.s"; echo "$TMPDIR" > place; echo $$ > child; sleep 600 & wait', ("slow.txt",)
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def recipe(tmp_path: Path) -> RecipeDirectory:
    return write_plan(tmp_path, SLOW)


def owner() -> tuple[subprocess.Popen[str], Path]:
    """Another process with a folder, in which there is a file."""
    child = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    made = Path(child.stdout.readline().strip())
    (made / "cc.s").touch()
    return child, made


def test_a_folder_goes_with_its_block(place: Path) -> None:
    def use() -> None:
        with scratch_folder() as made:
            (made / "a").mkdir()
            assert made.parent == place
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()
    assert list(place.iterdir()) == []


def test_a_folder_of_whoever_lives_stays_and_that_of_whoever_was_killed_goes(place: Path) -> None:
    (killed, left), (living, kept) = owner(), owner()
    killed.kill()
    killed.communicate()
    assert left.is_dir()
    with scratch_folder() as made:
        assert set(place.iterdir()) == {kept, made}
    living.kill()
    living.communicate()


def test_a_process_keeps_all_the_folders_that_it_has(place: Path) -> None:
    first, second = make_scratch(), make_scratch()
    assert set(place.iterdir()) == {first.path, second.path}
    first.remove()
    second.remove()


def test_what_another_start_of_the_machine_left_goes_when_it_is_a_week_old(place: Path) -> None:
    """And nothing that is not a folder of this name."""
    old, new, link = (place / f"{PREFIX}00000000-{name}" for name in ("old", "new", "link"))
    other = place / "bolt-other"
    for folder in (old, new, other):
        folder.mkdir()
        (folder / "file").touch()
    link.symlink_to(other)
    week = time.time() - 8 * 24 * 3600
    for folder in (old, other):
        os.utime(folder, (week, week))
    with scratch_folder() as made:
        assert set(place.iterdir()) == {new, other, link, made}
    assert (other / "file").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_build_that_ends_leaves_no_temporary_file_of_its_compilers(
    place: Path, recipe: RecipeDirectory, number: signal.Signals
) -> None:
    """SIGKILL too: what outlives the build by a moment removes them."""
    build = start(recipe)
    host = recipe.target("host").path
    child = number_in(host / "child")
    own = Path((host / "place").read_text().strip())
    assert own.parent == place
    assert (own / "cc.s").exists()
    build.send_signal(number)
    build.communicate()
    until(lambda: not is_alive(child), "a process was left behind")
    until(lambda: not list(place.iterdir()), "a temporary file was left behind")
