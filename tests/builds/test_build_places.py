"""Where a build writes: locks, full disks, directories that are not ours."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from build_graphs import shell, write_plan

from bolt_build.build import builder
from bolt_build.build import claim as claim_module
from bolt_build.build.claim import directory_claim
from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.files import told, trouble, write_named, write_text
from bolt_build.build.layout import TargetDirectory
from bolt_build.build.planning.plan_file import load_plan_file
from bolt_build.build.result import verification_passed
from bolt_build.build.running.session import SessionOptions, SessionPart, run_session
from bolt_build.build.staleness.receipt import load_receipt
from bolt_build.errors import BoltError, ExitCode
from bolt_build.user_files import UnfitFile, stands_for_stream


def test_a_second_build_is_refused_where_it_may_not_wait(tmp_path: Path) -> None:
    place = tmp_path / "toy"
    with (
        directory_claim(place, wait=True, say=print),
        pytest.raises(BoltError) as caught,
        directory_claim(place, wait=False, say=print),
    ):
        pass
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message == f"another build (process {os.getpid()}) is at work in {place}"
    assert diagnostic.hint == "leave out --no-wait to wait for it"
    assert caught.value.exit_code is ExitCode.TASK_FAILED


def test_a_holder_that_has_not_said_yet_who_it_is(tmp_path: Path) -> None:
    place = tmp_path / "toy"
    with directory_claim(place, wait=True, say=print):
        (place / ".lock").write_text("")
        with pytest.raises(BoltError) as caught, directory_claim(place, wait=False, say=print):
            pass
    assert [each.message for each in caught.value.diagnostics] == [f"another build is at work in {place}"]


def test_a_lock_is_free_again_after_its_holder(tmp_path: Path) -> None:
    for _ in range(2):
        with directory_claim(tmp_path / "toy", wait=False, say=print):
            pass


def test_a_lock_that_its_holder_removed_keeps_nobody_out(tmp_path: Path) -> None:
    """A build waits for a cleaning, which removes the directory: the lock that it waited for is none any more."""
    place = tmp_path / "toy"
    cleaning = contextlib.ExitStack()
    cleaning.enter_context(directory_claim(place, wait=True, say=print))

    def removed(text: str) -> None:
        (place / ".lock").unlink()
        place.rmdir()
        cleaning.close()

    with (
        directory_claim(place, wait=True, say=removed),
        pytest.raises(BoltError, match=r"another build \(process \d+\) is at work in "),
        directory_claim(place, wait=False, say=print),
    ):
        pass


def test_a_wait_for_another_build_is_counted_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 seconds pass before the other build ends, 2 while this one is at work."""
    clock = [100.0]
    monkeypatch.setattr(claim_module.time, "monotonic", lambda: clock[0])
    other = contextlib.ExitStack()
    other.enter_context(directory_claim(tmp_path / "toy", wait=True, say=print))

    def say(text: str) -> None:
        said.append(text)
        clock[0] += 40
        other.close()

    def plan(*args: object) -> tuple[tuple[()], dict[str, str], ExitCode]:
        clock[0] += 2
        return (), {}, ExitCode.OK

    said: list[str] = []
    monkeypatch.setattr(builder, "_plan", plan)
    recipe = SimpleNamespace(name="toy")
    listener = SimpleNamespace(say=lambda text: say(text), start=lambda outlook: None, stop=lambda: None)
    result = builder.build(recipe, builder.BuildOptions(output=tmp_path), listener)  # type: ignore[arg-type]
    assert (result.waited, result.seconds) == (40.0, 2.0)
    assert said == [f"waiting for another build (process {os.getpid()}) in {tmp_path}/toy"]
    again = builder.build(recipe, builder.BuildOptions(output=tmp_path), listener)  # type: ignore[arg-type]
    assert (again.waited, again.seconds) == (0.0, 2.0)


def test_what_came_of_a_build_is_read_while_its_directory_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right behind a build another one may write there, or a cleaning remove what it made."""
    real, asked = builder._result, []

    def result(*job: object) -> object:
        with (
            pytest.raises(BoltError, match="another build"),
            directory_claim(tmp_path / "toy", wait=False, say=print),
        ):
            pass
        asked.append(job)
        return real(*job)  # type: ignore[arg-type]

    monkeypatch.setattr(builder, "_plan", lambda *args: ((), {}, ExitCode.OK))
    monkeypatch.setattr(builder, "_result", result)
    listener = SimpleNamespace(say=print, start=lambda outlook: None, stop=lambda: None)
    builder.build(SimpleNamespace(name="toy"), builder.BuildOptions(output=tmp_path), listener)  # type: ignore[arg-type]
    assert len(asked) == 1


def test_a_place_that_is_a_file_is_a_diagnostic(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BoltError) as caught, directory_claim(tmp_path / "file" / "toy", wait=True, say=print):
        pass
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message == f"cannot make a directory {tmp_path}/file/toy: a file stands in the way"
    assert diagnostic.hint == "build into another directory with --output DIR"
    assert caught.value.exit_code is ExitCode.INVALID


@pytest.mark.parametrize(
    ("number", "code", "exit_code"),
    [
        (errno.ENOSPC, "disk-full", ExitCode.TASK_FAILED),
        (errno.EACCES, "not-writable", ExitCode.INVALID),
        (errno.EROFS, "not-writable", ExitCode.INVALID),
        (errno.ENOTDIR, "not-a-directory", ExitCode.INVALID),
        (errno.EIO, "file-trouble", ExitCode.TASK_FAILED),
    ],
)
def test_what_the_system_refuses_is_said_with_the_place(number: int, code: str, exit_code: ExitCode) -> None:
    with pytest.raises(BoltError) as caught, told(Path("/somewhere")):
        raise OSError(number, os.strerror(number), "/somewhere/plan.json")
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.subject, caught.value.exit_code) == (code, "/somewhere/plan.json", exit_code)


def test_a_full_disk_says_what_to_do() -> None:
    diagnostic = trouble(OSError(errno.ENOSPC, "No space left on device", "/x/a"))
    assert diagnostic.message == "no space left to write /x/a"
    assert diagnostic.hint == "free some space, or build elsewhere with --output DIR; what is finished is kept"


def test_what_a_verb_says_to_do_about_a_place_is_no_help_alone_where_the_disk_is_full() -> None:
    for number, hint in ((errno.ENOSPC, "free some space, or name another"), (errno.EACCES, "name another")):
        with pytest.raises(BoltError) as caught, told(Path("/x/page.html"), "name another"):
            raise OSError(number, os.strerror(number), "/x/page.html")
        assert caught.value.diagnostics[0].hint == hint


@pytest.mark.parametrize(
    ("number", "reason", "hint"),
    [
        (errno.EISDIR, "a directory stands where a file is to be", "move it away, or use another directory"),
        (errno.ELOOP, "a symbolic link leads to itself", "remove the link"),
        (errno.EMFILE, "this process has too many files open", "allow it more: ulimit -n 4096"),
        (errno.EIO, "Input/output error", None),
    ],
)
def test_what_stands_in_the_way_is_said_with_what_to_do(number: int, reason: str, hint: str | None) -> None:
    diagnostic = trouble(OSError(number, os.strerror(number), "/x/a"))
    assert (diagnostic.message, diagnostic.hint) == (f"/x/a: {reason}", hint)


def test_a_directory_that_is_removed_before_its_tasks_start_is_no_bug(tmp_path: Path) -> None:
    place = tmp_path / "toy"
    with directory_claim(place, wait=True, say=print) as lock:
        (place / ".lock").unlink()
        place.rmdir()
        with pytest.raises(BoltError) as caught:
            run_session([SessionPart(place, ("host",), lock)], SessionOptions(1, True, None, 0), print)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message == f"{place}: no such file or directory"
    assert diagnostic.hint == "do it again, and let nothing else remove files there meanwhile"
    assert caught.value.exit_code is ExitCode.TASK_FAILED


def test_a_pipe_among_what_a_build_left_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("task.json", "plan.json", "verify.json"):
        os.mkfifo(tmp_path / name)
    diagnostic = trouble(UnfitFile(tmp_path / "task.json", "a pipe, not a file", "a pipe"))
    assert diagnostic.message == f"{tmp_path}/task.json: a pipe, not a file"
    assert diagnostic.hint == "move it away, or use another directory"
    assert load_receipt(tmp_path, "task") is None
    assert load_plan_file(tmp_path / "plan.json") is None
    assert verification_passed(TargetDirectory(tmp_path)) is None


@pytest.mark.parametrize("text", ["[]", "null", "3", '{"ok"'])
def test_a_verification_that_is_none_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "verify.json").write_text(text)
    assert verification_passed(TargetDirectory(tmp_path)) is None


def test_what_a_person_names_is_written_where_its_link_leads(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "report.json"
    link.symlink_to(tmp_path / "there" / "real.json")
    for text in ("first", "second"):
        write_named(link, text)
        assert link.is_symlink()
        assert (tmp_path / "there" / "real.json").read_text() == text
    assert [entry.name for entry in (tmp_path / "there").iterdir()] == ["real.json"]


def test_a_pipe_that_a_person_names_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_named(pipe, "a report")
    assert os.read(reading, 100) == b"a report"
    os.close(reading)
    assert pipe.is_fifo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]


def test_what_a_process_has_open_is_written_to(tmp_path: Path) -> None:
    """As `--report /dev/stdout > log` does: a file put in its place would be another than the shell has open."""
    with (tmp_path / "log").open("w+") as log:
        log.write("before, ")
        log.flush()
        write_named(Path(f"/dev/fd/{log.fileno()}"), "a report")
        assert (tmp_path / "log").read_text() == "before, a report"
        assert os.path.samestat(os.fstat(log.fileno()), (tmp_path / "log").stat())


@pytest.mark.parametrize("name", ["/dev/null", "/dev/stdout", "/dev/new", "/proc/self/fd/1", "/proc/1/fd/1"])
def test_names_of_streams(name: str) -> None:
    """Root could put a file in the place of each."""
    assert stands_for_stream(Path(name))


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    write_text(path, "old")

    def refuse(self: Path, to: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", str(place)]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("a small file system cannot be mounted here: that needs root")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def build(root: Path) -> tuple[list[TaskEvent], str]:
    told_events: list[TaskEvent] = []
    with directory_claim(root / "toy", wait=True, say=print) as lock:
        options = SessionOptions(1, True, str(root / "cache"), 1 << 30)
        result = run_session([SessionPart(root / "toy", ("host",), lock)], options, told_events.append)
    return told_events, result.trouble


def test_a_task_on_a_full_disk_fails_with_that_reason_and_leaves_nothing(small_disk: Path) -> None:
    big = shell("big", 'dd if=/dev/zero of="$out/big" bs=64k count=64', ("big",))
    small = shell("small", 'echo > "$out/small"', ("small",))
    recipe = write_plan(small_disk, big, small)
    events, _ = build(small_disk)
    (failed,) = [event for event in events if event.kind is EventKind.FAILED]
    assert failed.text == "exit status 1: no space left on the device"
    assert not (recipe.target("host").path / "big").exists()
    assert list(recipe.target("host").temporary.iterdir()) == []
    assert [event.task for event in events if event.kind is EventKind.FINISHED] == ["small"]

    write_plan(small_disk, shell("big", 'echo fits > "$out/big"', ("big",)), small)
    assert [event.task for event in build(small_disk)[0] if event.kind is EventKind.FINISHED] == ["big"]


def test_a_task_that_fails_silently_on_an_almost_full_disk_is_told_what_is_left(small_disk: Path) -> None:
    """What filled the disk is gone when the failure is looked at, as a compiler's temporary file is."""
    write_plan(small_disk, shell("silent", "exit 1", ("out",)))
    (failed,) = [event for event in build(small_disk)[0] if event.kind is EventKind.FAILED]
    assert re.fullmatch(r"exit status 1: nothing was said, and \d+ KiB are left on the device", failed.text)


def test_a_cache_that_cannot_grow_is_no_failure(small_disk: Path, tmp_path: Path) -> None:
    """The outputs fit where they are built; only the cache has no room for them, which is said once."""
    make = 'dd if=/dev/zero of="$out/{0}" bs=64k count=64'
    tasks = [shell(name, make.format(name), (name,)) for name in ("big", "huge")]
    recipe = write_plan(tmp_path, *tasks)
    (tmp_path / "cache").symlink_to(small_disk)
    events, trouble_text = build(tmp_path)
    assert [event.kind for event in events if event.kind is not EventKind.STARTED] == [
        EventKind.NOTE, EventKind.FINISHED, EventKind.FINISHED,
    ]  # fmt: skip
    assert [event.text for event in events if event.kind is EventKind.NOTE] == [
        f"the cache in {tmp_path}/cache cannot be written (No space left on device): what is built is not kept there"
    ]
    assert trouble_text == ""
    assert (recipe.target("host").path / "big").stat().st_size == 64 * 65536
