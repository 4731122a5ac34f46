"""Whole builds through SCons, of shell commands: what runs, what does not run again, what is left after a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from build_graphs import shell, write_plan

from bolt_build.build.claim import directory_claim
from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.files import FileStamp, stamp
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.running.session import SessionOptions, SessionPart, SessionResult, run_session
from bolt_build.build.task_environment import task_environment
from bolt_build.build.tasks import Task, Value, ValueKind

COPY = shell("copy", 'cat in.txt > "$out/a.txt"', ("a.txt",), ("in.txt",))
TWICE = shell("twice", 'cat a.txt a.txt > "$out/b.txt"', ("b.txt",), ("a.txt",))
ALONE = shell("alone", 'echo alone > "$out/c.txt"', ("c.txt",))
IN_LATE = shell("late", 'cat in.txt > "$out/b.txt"', ("b.txt",), ("a.txt", "in.txt"))


@dataclass
class Built:
    """A build directory with one target, and everything that its builds told."""

    root: Path
    recipe: RecipeDirectory = field(init=False)

    def plan(self, *tasks: Task, places: tuple[tuple[str, str], ...] = (), model: tuple[FileStamp, ...] = ()) -> Built:
        self.recipe = write_plan(self.root, *tasks, places=places, model=model)
        return self

    def path(self, name: str) -> Path:
        return self.recipe.target("host").path / name

    def run(self, *, keep_going: bool = False, cache: bool = True, jobs: int = 2) -> tuple[list[str], SessionResult]:
        """What ran (`task`), was fetched (`task*`), noted (`task!`) or failed (`task-`); starts are left out."""
        told: list[TaskEvent] = []
        options = SessionOptions(jobs, keep_going, str(self.root / "cache") if cache else None, 1 << 30)
        with directory_claim(self.recipe.path, wait=True, say=print) as lock:
            result = run_session([SessionPart(self.recipe.path, ("host",), lock)], options, told.append)
        marks = {EventKind.FINISHED: "", EventKind.FAILED: "-", EventKind.NOTE: "!", EventKind.CURRENT: "="}
        seen = [e.task + ("*" if e.cached else marks[e.kind]) for e in told if e.kind in marks]
        return sorted(seen), result


@pytest.fixture
def built(tmp_path: Path) -> Built:
    place = Built(tmp_path).plan(COPY, TWICE, ALONE)
    place.path("in.txt").write_text("one\n")
    return place


def test_everything_runs_once_and_then_nothing(built: Built) -> None:
    assert built.run()[0] == ["alone", "copy", "twice"]
    assert built.path("b.txt").read_text() == "one\none\n"
    assert built.run()[0] == []


def test_an_edit_runs_what_depends_on_it(built: Built) -> None:
    built.run()
    built.path("in.txt").write_text("two\n")
    assert built.run()[0] == ["copy", "twice"]
    assert built.path("b.txt").read_text() == "two\ntwo\n"


def test_an_edit_that_changes_no_result_stops_there(built: Built) -> None:
    first = shell("copy", 'head -n 1 in.txt > "$out/a.txt"', ("a.txt",), ("in.txt",))
    built.plan(first, TWICE)
    built.run()
    built.path("in.txt").write_text("one\nmore\n")
    assert built.run()[0] == ["copy"]


def test_a_changed_value_runs_its_task_alone(built: Built) -> None:
    built.run()
    built.plan(
        COPY,
        TWICE,
        shell("alone", 'echo alone > "$out/c.txt"', ("c.txt",), values=(Value(ValueKind.TOOL, "cxx", "2"),)),
    )
    assert built.run()[0] == ["alone"]


def test_results_come_back_from_the_cache(built: Built) -> None:
    built.run()
    built.plan(COPY, TWICE)
    for name in ("a.txt", "b.txt"):
        built.path(name).unlink()
    assert built.run()[0] == ["copy*", "twice*"]
    assert built.path("b.txt").read_text() == "one\none\n"


def test_another_checkout_gets_the_same_results_from_the_cache(built: Built, tmp_path: Path) -> None:
    built.run()
    other = Built(tmp_path / "other")
    other.plan(COPY, TWICE, ALONE).path("in.txt").write_text("one\n")
    (tmp_path / "other" / "cache").symlink_to(tmp_path / "cache")
    assert other.run()[0] == ["alone*", "copy*", "twice*"]


def test_a_result_changed_by_hand_is_noticed_and_made_again(built: Built) -> None:
    built.run(cache=False)
    built.path("a.txt").write_text("by hand\n")
    seen, _ = built.run(cache=False)
    assert seen == ["copy", "copy!"]
    assert built.path("a.txt").read_text() == "one\n"


@pytest.mark.parametrize("name", ["a $HOME b", "${directory} $$ (c)", "a$(b) $) #c", "ä ß 日本 'q\" #;%"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    place = Built(tmp_path / name).plan(COPY, TWICE, ALONE)
    place.path("in.txt").write_text("one\n")
    assert place.run()[0] == ["alone", "copy", "twice"]
    assert place.path("b.txt").read_text() == "one\none\n"
    assert place.run()[0] == []
    assert place.recipe.signature_file.is_file()
    assert [path.name for path in tmp_path.iterdir()] == [name]


INCLUDED = Task(
    "compile", "compile", "compile",
    ("/bin/sh", "-c", 'cat headers/*.h > "$1/o"', "sh", "${out}", "-I${package}/headers"),
    ("in.txt",), ("o",),
)  # fmt: skip


@pytest.mark.parametrize("edit", ["echo new > headers/b.h", "echo more > headers/c.h", "rm headers/b.h"])
def test_a_header_that_is_edited_while_tasks_run_is_in_no_object(built: Built, edit: str) -> None:
    """The object's key has the digest of the header that planning saw. What needs no header is kept."""
    meddling = shell("copy", f'{edit}; cat in.txt > "$out/a.txt"', ("a.txt",), ("in.txt",))
    behind = replace(INCLUDED, inputs=("a.txt",))
    place = built.path("headers")
    built.plan(meddling, behind, places=(("package", str(place.parent)),))
    place.mkdir()
    for name in ("a.h", "b.h"):
        (place / name).write_text("old\n")
    seen, result = built.run()
    assert seen == ["compile-", "copy"]
    (failed,) = result.failed
    changed = place / ("c.h" if "c.h" in edit else "b.h")
    assert failed.text == f"{changed} changed while the build ran: build again"
    assert not built.path("o").exists()


def test_a_compiler_that_stumbles_over_an_edit_is_not_blamed(built: Built) -> None:
    """nvcc reads each header for the device and again for the host."""
    edited = built.path("headers") / "a.h"
    argv = ("/bin/sh", "-c", "echo new > headers/a.h; exit 1", "sh", "${out}", "-I${package}/headers")
    built.plan(replace(INCLUDED, argv=argv), places=(("package", str(edited.parents[1])),))
    edited.parent.mkdir()
    edited.write_text("old\n")
    _, result = built.run()
    (failed,) = result.failed
    assert failed.text == f"exit status 1: {edited} changed while the build ran: build again"


def test_a_model_that_is_replaced_while_tasks_run_is_not_compared(built: Built) -> None:
    """The engine is of the model that was planned: what a comparison with another would say is no fault of it."""
    model = built.path("net.onnx")
    model.write_text("old\n")
    meddling = shell("copy", f'echo new > {model}; cat in.txt > "$out/a.txt"', ("a.txt",), ("in.txt",))
    verify = shell("verify", 'cat a.txt > "$out/v"', ("v",), ("a.txt", "${model}"))
    built.plan(meddling, verify, places=(("model", str(model)),), model=(stamp(model),))
    seen, result = built.run()
    assert seen == ["copy", "verify-"]
    (failed,) = result.failed
    assert failed.text == f"{model} changed since it was planned: build again"


def test_a_touched_result_is_left_alone(built: Built) -> None:
    built.run()
    os.utime(built.path("a.txt"))
    assert [task for task in built.run()[0] if not task.endswith("=")] == []


def test_a_lost_signature_file_costs_no_work(built: Built) -> None:
    built.run(cache=False)
    built.recipe.signature_file.unlink()
    assert built.run(cache=False)[0] == ["alone=", "copy=", "twice="]


def test_signatures_of_another_state_are_not_believed(built: Built) -> None:
    """As after SIGKILL: results of a newer plan, SCons's signatures of an older one, and the older plan again."""
    built.run(cache=False)
    old = built.recipe.signature_file.read_bytes()
    built.path("in.txt").write_text("two\n")
    built.run(cache=False)
    built.path("in.txt").write_text("one\n")
    built.recipe.signature_file.unlink()
    assert built.run(cache=False)[0] == ["alone=", "copy", "twice"]
    assert built.path("b.txt").read_text() == "one\none\n"
    assert old


def test_the_signature_file_is_gone_while_tasks_run(built: Built) -> None:
    built.run()
    watching = shell("watch", 'ls -A .. > "$out/seen.txt"', ("seen.txt",))
    built.plan(watching)
    built.run()
    assert ".sconsign.dblite" not in built.path("seen.txt").read_text().split()
    assert built.recipe.signature_file.exists()


def test_a_failure_leaves_nothing_of_its_task_and_says_how_to_repeat_it(built: Built) -> None:
    built.run()
    script = 'echo half > "$out/a.txt"; echo "no such thing"; exit 3'
    built.plan(shell("copy", script, ("a.txt",), ("in.txt",)), TWICE, ALONE)
    seen, result = built.run()
    assert seen == ["copy-"]
    assert not built.path("a.txt").exists()
    (failure,) = result.failed
    assert (failure.text, failure.log) == ("exit status 3", "no such thing")
    assert failure.command.startswith(f"cd {built.path('')} && /bin/sh -c ")
    assert Path(failure.log_file).read_text() == "no such thing\n"


def test_a_failed_task_is_tried_again(built: Built) -> None:
    built.plan(shell("copy", 'test -e ok && echo fine > "$out/a.txt"', ("a.txt",), ("in.txt",)))
    assert built.run()[0] == ["copy-"]
    built.path("ok").touch()
    assert built.run()[0] == ["copy"]


def test_keep_going_does_what_the_failure_does_not_touch(built: Built) -> None:
    broken = shell("copy", "exit 1", ("a.txt",), ("in.txt",))
    built.plan(broken, TWICE, ALONE)
    assert built.run(keep_going=True, jobs=1)[0] == ["alone", "copy-"]


def test_a_task_that_makes_less_than_it_said_fails(built: Built) -> None:
    built.plan(shell("copy", ":", ("a.txt",), ("in.txt",)))
    _, result = built.run()
    assert result.failed[0].text == "succeeded without making a.txt"


def test_a_missing_input_is_a_failure_with_its_path(built: Built) -> None:
    built.path("in.txt").unlink()
    built.plan(COPY)
    seen, result = built.run()
    assert seen == [] or seen == ["copy-"]
    assert "in.txt" in (result.trouble or result.failed[0].text)


def test_a_directory_that_is_removed_while_tasks_run_is_said(built: Built) -> None:
    gone = built.path("in.txt").parent
    built.plan(shell("copy", f'echo > "$out/a.txt"; rm {gone}/plan.json {gone}/in.txt', ("a.txt",)), IN_LATE)
    _, result = built.run(jobs=1)
    assert result.trouble == f"{gone}/plan.json was removed while it was needed: build again"


def test_tasks_on_a_small_machine_run_one_by_one(built: Built) -> None:
    """Each claims more memory than any machine has; the file tells when two of them overlap."""
    script = 'test ! -e running && touch running && sleep 0.1 && rm running && echo > "$out/{0}.txt"'
    tasks = [shell(f"t{n}", script.format(f"t{n}"), (f"t{n}.txt",), memory_mb=1 << 40) for n in range(3)]
    built.plan(*tasks)
    assert built.run(jobs=3)[0] == ["t0", "t1", "t2"]


def test_results_are_the_same_whatever_the_environment_says(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    """A header found through CPATH would go into the cache under a key that knows nothing of it."""
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("CPATH", "/elsewhere/include")
    said = 'echo "$LC_ALL $PYTHONHASHSEED $SOURCE_DATE_EPOCH ${CPATH-unset}" > "$out/a.txt"'
    built.plan(shell("copy", said, ("a.txt",)))
    built.run()
    assert built.path("a.txt").read_text() == "C 0 0 unset\n"


def test_without_a_path_tasks_have_the_systems() -> None:
    """g++ finds its linker there: below `env -i` it compiled, and then could not link."""
    assert task_environment({})["PATH"] == os.defpath
    assert task_environment({"PATH": "/opt/bin"})["PATH"] == "/opt/bin"


def test_the_process_of_scons_does_not_read_what_is_installed() -> None:
    """Every build starts it: what asks other packages for what they add is imported where a job is sent alone."""
    heavy = "{'importlib.metadata', 'bolt_build.plugins', 'bolt_build.toolchain', 'jsonschema', 'numpy', 'onnx'}"
    code = (
        f"import sys, bolt_build.build.running.scons_session; assert not (found := {heavy} & sys.modules.keys()), found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
