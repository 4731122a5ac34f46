"""Verbs, exit codes, and what happens when something goes wrong."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bolt_build
from bolt_build.cli import check
from bolt_build.cli.bug_reports import keep_report
from bolt_build.cli.main import VERBS, main, verb_named
from bolt_build.errors import BoltError, Diagnostic, ExitCode

ROOT = Path(__file__).parents[2]


def replace_check(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let `check` do nothing but raise `error`."""

    def run(args: argparse.Namespace) -> int:
        raise error

    monkeypatch.setattr(check, "run", run)


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_is_a_module_of_its_own(name: str) -> None:
    verb = verb_named(name)
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    assert parser.format_help()


def test_every_module_with_a_run_is_a_verb() -> None:
    modules = (ROOT / "bolt_build/cli").glob("*.py")
    assert {module.stem for module in modules if "\ndef run(" in module.read_text()} == set(VERBS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"bolt-build {bolt_build.__version__}\n"


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [tuple(line.split(maxsplit=1)) for line in lines[6:]] == list(VERBS.items())
    assert {len(re.match(r"  \w+ +", line)[0]) for line in lines[6:]} == {14}  # type: ignore[index]


def test_help_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("bolt_build.cli.main.sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["--help"]) == 0
    first, second = capsys.readouterr().out.splitlines()[6:8]
    assert (first, second) == (
        "  init        write a first recipe for an ONNX file, a zoo",
        "              model or a PyTorch module, and say what would",
    )


def test_help_imports_no_verb() -> None:
    script = (
        "import sys; from bolt_build.cli.main import main; main(['--help']); sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = set(done.stderr.split())
    assert "bolt_build.cli.verbs" in modules
    assert not modules & ({f"bolt_build.cli.{verb}" for verb in VERBS} | {"numpy", "onnx", "rich", "jinja2", "yaml"})


def test_no_words_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith("usage: bolt-build [VERB] RECIPE... [options]\n")


def test_a_misspelt_verb(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["chekc", "x.yaml"]) == ExitCode.USAGE
    assert capsys.readouterr().err == (
        "bolt-build: error: 'chekc' is neither a verb nor a recipe; did you mean 'check'?\n"
    )


def test_a_recipe_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gone.yaml"]) == ExitCode.INVALID
    assert capsys.readouterr().err == "gone.yaml: error[no-such-file]: no such recipe\n"


@pytest.mark.parametrize("verb", ["check", "plan", "build", "clean", "why", "tune", "bench"])
def test_a_recipe_whose_name_is_too_long(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = "a" * 300 + ".yaml"
    assert main([verb, name]) == ExitCode.INVALID
    assert capsys.readouterr().err == f"{name}: error[unreadable]: cannot be read: file name too long\n"


def test_a_word_that_is_too_long_for_a_name_is_no_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["a" * 300]) == ExitCode.USAGE
    assert "is neither a verb nor a recipe" in capsys.readouterr().err


def test_diagnostics_and_their_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    error = BoltError([Diagnostic("missing-tool", "no compiler", hint="install one")], ExitCode.TOOL_MISSING)
    replace_check(monkeypatch, error)
    assert main(["check", "x.yaml"]) == ExitCode.TOOL_MISSING
    assert capsys.readouterr().err == "error[missing-tool]: no compiler\n  hint: install one\n"


def test_an_interruption(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    replace_check(monkeypatch, KeyboardInterrupt())
    assert main(["check", "x.yaml"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr().err == "\nbolt-build: interrupted\n"


def test_a_package_that_pip_was_told_to_leave_out_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_check(monkeypatch, ModuleNotFoundError("No module named 'absent_yaml'", name="absent_yaml.nodes"))
    assert main(["check", "x.yaml"]) == ExitCode.TOOL_MISSING
    assert capsys.readouterr().err == (
        "error[package-missing]: the Python package 'absent_yaml' is not installed, and bolt-build needs it\n"
        "  hint: install bolt-build again, with what it depends on; "
        f"'{sys.executable} -m pip check' says what is missing\n"
    )


@pytest.mark.parametrize("name", ["bolt_build.gone", "json.gone"])
def test_a_module_that_bolt_build_itself_or_an_installed_package_lacks_is_a_bug(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    replace_check(monkeypatch, ModuleNotFoundError(f"No module named '{name}'", name=name))
    assert main(["check", "x.yaml"]) == ExitCode.INTERNAL
    assert "this is a bug in bolt-build" in capsys.readouterr().err


def test_a_bug_is_one_paragraph_with_the_traceback_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    replace_check(monkeypatch, ZeroDivisionError("division by zero"))
    assert main(["check", "x.yaml"]) == ExitCode.INTERNAL
    (log,) = (tmp_path / "bolt-build" / "bugs").iterdir()
    assert capsys.readouterr().err == (
        "bolt-build: this is a bug in bolt-build, not in your recipe (ZeroDivisionError: division by zero). "
        f"The traceback is in {log}: please send it with the recipe that shows this.\n"
    )
    text = log.read_text()
    assert "arguments: ['check', 'x.yaml']" in text
    assert "Traceback (most recent call last)" in text


def test_the_last_ten_tracebacks_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    paths = [Path(keep_report(f"number {each}")) for each in range(12)]
    assert {path.parent for path in paths} == {tmp_path / "bolt-build" / "bugs"}
    assert sorted(path.read_text() for path in paths[0].parent.iterdir()) == sorted(
        f"number {each}" for each in range(2, 12)
    )


def test_a_traceback_is_a_temporary_file_where_the_user_has_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert Path(keep_report("text")).parent == tmp_path


@pytest.mark.parametrize("words", [["net.yaml"], ["check", "net.yaml"], ["plan", "net.yaml"], ["clean", "net.yaml"]])
def test_a_directory_that_is_removed_beneath_it(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    code = main(words)
    said = capsys.readouterr().err
    monkeypatch.chdir(tmp_path)  # pytest wants to stand somewhere
    assert code == ExitCode.TASK_FAILED
    assert said == (
        "error[no-directory]: the directory that the command was called in is gone\n"
        "  hint: call it in one that is there\n"
    )


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    recipe = tmp_path / "net.yaml"
    recipe.write_text("bolt: 1\nmodel: {zoo: resnet50}\ntargets: {host: }\n")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "bolt_build", "check", str(recipe)],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=ROOT,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_checking_a_recipe_imports_nothing_heavy(tmp_path: Path) -> None:
    """A build with nothing to do has a second; these take much of it."""
    recipe = tmp_path / "net.yaml"
    (tmp_path / "m.onnx").touch()
    recipe.write_text("bolt: 1\nmodel: {onnx: m.onnx}\ntargets: {host: }\n")
    program = (
        "import sys; from bolt_build.cli.main import main; code = main(['check', sys.argv[1]]); "
        "print(sorted({'onnx', 'numpy', 'rich', 'SCons', 'jinja2'} & set(sys.modules))); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(recipe)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "[]"
