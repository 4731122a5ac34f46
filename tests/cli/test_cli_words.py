"""What is mistyped on the command line, and what bolt-build says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bolt_build.cli.main import main
from bolt_build.cli.verbs import VERBS
from bolt_build.errors import ExitCode

WITHOUT_JSON = (
    "completion",
    "diff",
    "init",
    "run",
    "graph",
    "report",
    "package",
    "clean",
    "cache",
    "operators",
    "schema",
    "doctor",
)
"""Verbs without --format json, or without one recipe that they need."""

GOOD = "bolt: 1\nmodel: {zoo: resnet50}\ntargets: {host: }\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.yaml").write_text(GOOD)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What is said of a command line that cannot be read."""
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == ExitCode.USAGE
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("completion", "schema")])
def test_every_verb_says_which_option_was_meant(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    option = "--formt" if verb not in ("run", "graph", "report", "package", "clean", "init") else "--targt"
    meant = {"--formt": "--format", "--targt": "--target"}[option]
    assert refused(capsys, verb, option, "x") == (
        f"bolt-build {verb}: error: there is no option '{option}'; did you mean '{meant}'?\n"
        f"'bolt-build {verb} --help' lists what it takes.\n"
    )


def test_all_mistyped_options_at_once_each_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "net.yaml", "--targt=host", "--targt", "t4", "--locked", "-zk") == (
        "bolt-build build: error: there is no option '--targt'; did you mean '--target'?\n"
        "bolt-build build: error: there is no option '-zk'; did you mean '-k'?\n"
        "'bolt-build build --help' lists what it takes.\n"
    )


def test_an_option_of_another_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, "plan", "net.yaml", "--locked").startswith(
        "bolt-build plan: error: there is no option '--locked': build has it\n"
    )


def test_a_mistyped_option_is_the_only_cause_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """`run` needs --input: that it is missing follows from the slip."""
    assert refused(capsys, "run", "net.yaml", "--inptu", "x.npy") == (
        "bolt-build run: error: there is no option '--inptu'; did you mean '--input'?\n"
        "'bolt-build run --help' lists what it takes.\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("check", "net.yaml", "--format", "jsn"), "argument --format: 'jsn' is no choice; did you mean 'json'?"),
        (("check", "net.yaml", "--format", "q"), "argument --format: 'q' is no choice; it is one of: text, json"),
        (("graph", "net.yaml", "--stage", "import"), "--stage: 'import' is no choice; did you mean 'imported'?"),
        (("net.yaml", "-j", "0"), "argument -j/--jobs: '0' is no whole number of at least 1"),
        (("net.yaml", "-j", "two"), "argument -j/--jobs: 'two' is no whole number of at least 1"),
        (("bench", "net.yaml", "--batch", "-1"), "argument --batch: '-1' is no whole number of at least 1"),
        (("bench", "net.yaml", "--threads", "9" * 5000), f"argument --threads: '{20 * '9'}' has more than nine digits"),
        (("bench", "net.yaml", "--seconds", "nan"), "argument --seconds: 'nan' is no number of seconds above 0"),
        (("explore", "net.yaml", "--seconds", "-3"), "argument --seconds: '-3' is no number of seconds above 0"),
        (("net.yaml", "--output", ""), "argument --output: the name is empty"),
        (("net.yaml", "--cache="), "argument --cache: the name is empty"),
        (("check", ""), "argument RECIPE: the name is empty"),
        (("run", "net.yaml", "b.yaml", "--input", "x"), "bolt-build run: error: 'b.yaml' is one word too many"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_meant(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in refused(capsys, *words)


def test_options_may_stand_between_recipes(capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.yaml").write_text(GOOD)
    assert main(["check", "net.yaml", "--format", "text", "other.yaml"]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["net.yaml", "other.yaml"]


def test_a_recipe_called_like_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    Path("-net.yaml").write_text("name: net\n" + GOOD)
    assert main(["check", "--", "-net.yaml"]) == 0
    assert capsys.readouterr().out.startswith("-net.yaml: ok: net, ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nett.yaml",), "nett.yaml: error[no-such-file]: no such recipe\n  hint: did you mean 'net.yaml'?\n"),
        (("check", "net"), "net: error[no-such-file]: no such recipe\n  hint: did you mean 'net.yaml'?\n"),
        (
            ("net.yaml", "plan"),
            (
                "plan: error[no-such-file]: no such recipe\n"
                "  hint: 'plan' is a verb, and stands first: bolt-build plan RECIPE\n"
            ),
        ),
    ],
)
def test_a_recipe_that_is_not_there(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == ExitCode.INVALID
    assert capsys.readouterr().err == said


def test_a_mistyped_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["net.yaml", "--target", "hots", "--target", "t4"]) == ExitCode.USAGE
    assert capsys.readouterr().err == (
        "error[unknown-target]: net.yaml has no target 'hots'\n  hint: did you mean 'host'?\n"
        "error[unknown-target]: net.yaml has no target 't4'\n  hint: its targets: host\n"
    )


@pytest.mark.parametrize("word", ["verfy", "re-build", "Check"])
def test_a_mistyped_verb(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    meant = {"verfy": "verify", "re-build": "build", "Check": "check"}[word]
    assert main([word, "net.yaml"]) == ExitCode.USAGE
    said = f"bolt-build: error: '{word}' is neither a verb nor a recipe; did you mean '{meant}'?\n"
    assert capsys.readouterr().err == said


def test_help_and_version_by_the_words_that_people_try(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["help"], ["-h"], ["--help"]):
        assert main(words) == 0
        assert capsys.readouterr().out.startswith("usage: bolt-build [VERB] RECIPE... [options]\n")
    assert main(["-V"]) == 0
    assert capsys.readouterr().out.startswith("bolt-build ")
    with pytest.raises(SystemExit) as left:
        main(["help", "plan"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith("usage: bolt-build plan ")


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in WITHOUT_JSON])
def test_what_is_refused_is_json_where_that_was_asked_for(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "gone.yaml", "--format", "json"]) == ExitCode.INVALID
    shown = capsys.readouterr()
    assert shown.err == ""
    (diagnostic,) = json.loads(shown.out)["diagnostics"]
    assert (diagnostic["code"], diagnostic["subject"]) == ("no-such-file", "gone.yaml")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan"], "bolt-build plan: error: the following arguments are required: RECIPE\n"),
        (
            ["net.yaml", "-j", "0"],
            "bolt-build build: error: argument -j/--jobs: '0' is no whole number of at least 1\n",
        ),
    ],
)
def test_what_is_wrong_stands_without_every_option(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    verb = said.split()[1].removesuffix(":")
    assert (ended.value.code, capsys.readouterr().err) == (
        2,
        f"{said}'bolt-build {verb} --help' lists what it takes.\n",
    )


def test_a_recipe_is_not_read_from_standard_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-"]) == ExitCode.INVALID
    assert capsys.readouterr().err == (
        "-: error[no-such-file]: no such recipe\n"
        "  hint: standard input is not read: what a recipe names is relative to its file\n"
    )
