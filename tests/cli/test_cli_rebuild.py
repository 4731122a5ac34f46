"""`bolt-build verify --rebuild`: two builds from nothing, and what is said where they are not the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bolt_build.build.builder import BuildOptions
from bolt_build.build.result import BuildResult, TargetResult
from bolt_build.cli.main import main
from bolt_build.errors import Diagnostic, ExitCode
from bolt_build.schema.recipe import Recipe
from bolt_build.workflows import rebuilding

RECIPE = "bolt: 1\nmodel: {zoo: resnet50}\ntargets: {host: {}}\n"
FILES = ("libnet.so", "net.weights", "verify.json")

Contents = Callable[[int, str], str]
"""Of the number of a build and the name of a file."""


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Contents], list[BuildOptions]]:
    """Takes the place of compilers; gives the options of the builds that were asked for."""
    monkeypatch.chdir(tmp_path)
    Path("net.yaml").write_text(RECIPE)

    def use(contents: Contents) -> list[BuildOptions]:
        asked: list[BuildOptions] = []

        def build(recipe: Recipe, options: BuildOptions, listener: object) -> BuildResult:
            asked.append(options)
            target = options.directory(recipe).target("host")
            target.path.mkdir(parents=True)
            for name in FILES:
                (target.path / name).write_text(contents(len(asked), name))
            result = TargetResult("host", target, FILES, True)
            return BuildResult(recipe.name, ExitCode.OK, (), (result,), (), (), (), 1.0)

        monkeypatch.setattr(rebuilding, "build", build)
        return asked

    return use


def test_two_places_no_cache_and_another_number_of_tasks(
    builds: Callable[[Contents], list[BuildOptions]], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = builds(lambda build, name: f"found in {build}" if name == "verify.json" else name)
    assert main(["verify", "net.yaml", "--rebuild", "-j", "3"]) == 0
    assert capsys.readouterr().out == (
        "building net from nothing, 1 task at once\n"
        "building net from nothing, 3 tasks at once\n"
        "net/host: 2 files, the same bytes in two builds\n"
    )
    assert [options.jobs for options in asked] == [1, 3]
    assert len({len(str(options.output)) for options in asked}) == 2
    assert len({options.cache for options in asked}) == 2
    assert not any(options.output.exists() for options in asked)


def test_what_differs_is_named(
    builds: Callable[[Contents], list[BuildOptions]], capsys: pytest.CaptureFixture[str]
) -> None:
    builds(lambda build, name: f"{name} {build if name == 'libnet.so' else ''}")
    assert main(["verify", "net.yaml", "--rebuild"]) == ExitCode.VERIFY_FAILED
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "net/host: 1 of 2 files are not the same",
        "  libnet.so: first 194c9a1be21f, second b232d9022b55",
    ]


def test_what_lies_here_is_compared_too(
    builds: Callable[[Contents], list[BuildOptions]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path("generated/net/host")
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text(name)
    builds(lambda build, name: name)
    assert main(["verify", "net.yaml", "--rebuild"]) == 0
    assert capsys.readouterr().out.endswith("net/host: 2 files, the same bytes in two builds and the engine here\n")
    (folder / "net.weights").unlink()
    assert main(["verify", "net.yaml", "--rebuild", "--format", "json"]) == ExitCode.VERIFY_FAILED
    (found,) = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["here"]) for each in found["differences"]] == [("net.weights", None)]


def test_a_build_that_fails_is_no_difference(
    builds: Callable[[Contents], list[BuildOptions]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builds(lambda build, name: name)
    why = Diagnostic("disk-full", "no space left to write it")
    failed = BuildResult("net", ExitCode.TASK_FAILED, (why,), (), (), (), (), 1.0)
    monkeypatch.setattr(rebuilding, "build", lambda *words: failed)
    assert main(["verify", "net.yaml", "--rebuild"]) == ExitCode.TASK_FAILED
    assert capsys.readouterr().err == (
        "error[rebuild-failed]: net cannot be built from nothing: it ended early\n"
        "  hint: see what is wrong with: bolt-build net.yaml\n"
        "error[disk-full]: no space left to write it\n"
    )
