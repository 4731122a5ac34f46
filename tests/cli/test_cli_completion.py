"""`bolt-build completion`: what may end a command line, and what shells make of it, asked of the shells themselves."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bolt_build.cli.completing import Offer, offer
from bolt_build.cli.main import main
from bolt_build.cli.verbs import VERBS
from bolt_build.errors import ExitCode
from bolt_build.graph import zoo
from bolt_build.targets import all_targets

RECIPE = "bolt: 1\nmodel: {zoo: resnet18, batch: 1}\ntargets: {host: {}, t4: {}}\n"
PROGRAM = "import sys; sys.path.insert(0, {root!r}); from bolt_build.cli.main import main; sys.exit(main())"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.yaml").write_text(RECIPE)
    (tmp_path / "my recipes").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_verbs_and_files_come_first() -> None:
    assert offer([""]) == Offer(tuple(VERBS), files=True)
    assert offer(["ver"]) == Offer(("verify",), files=True)
    assert offer(["verify", ""]) == Offer((), files=True)
    assert offer(["one.yaml", ""]) == Offer((), files=True)
    assert offer(["schema", ""]) == Offer(())
    assert offer(["init", "res"]) == Offer(tuple(name for name in zoo.names() if name.startswith("res")), files=True)
    assert offer(["completion", ""]) == Offer(("bash", "zsh", "fish"))


def test_options_are_the_verb_s_and_those_of_build_without_one() -> None:
    assert {"--locked", "--report", "--junit"} <= set(offer(["net.yaml", "--"]).words)
    assert offer(["tune", "--exp"]) == Offer(("--export",))
    assert offer(["schema", "--"]) == Offer(("--help",))


def test_what_an_option_takes(place: Path) -> None:
    assert offer(["net.yaml", "--target", ""]) == Offer(("host", "t4"))
    assert offer(["--target", "h1"]) == Offer(tuple(t.name for t in all_targets() if t.name.startswith("h1")))
    assert offer(["plan", "net.yaml", "--format", ""]) == Offer(("text", "json", "mermaid", "svg"))
    assert offer(["net.yaml", "--report", ""]) == Offer((), files=True)
    assert offer(["net.yaml", "--jobs", ""]) == Offer(())
    (place / "net.yaml").write_text("bolt: 1\ntargets: [")
    assert offer(["net.yaml", "--target", ""]) == Offer(tuple(target.name for target in all_targets()))


def test_a_setting_is_a_key_of_the_recipe_and_then_its_value(place: Path) -> None:
    assert offer(["net.yaml", "--set", "policy.fusion."]).words == (
        "policy.fusion.epilogue=", "policy.fusion.persistent=",
    )  # fmt: skip
    assert offer(["net.yaml", "--set", "targets."]).words == (
        "targets.host.precision=", "targets.host.batch=", "targets.t4.precision=", "targets.t4.batch=",
    )  # fmt: skip
    assert offer(["net.yaml", "--set", "bolt"]) == Offer(())
    assert offer(["net.yaml", "--set", "policy.fusion.epilogue="]).words == (
        "policy.fusion.epilogue=true", "policy.fusion.epilogue=false",
    )  # fmt: skip
    assert offer(["net.yaml", "--set", "policy.padding.alignment=8"]).words == ("policy.padding.alignment=8",)
    assert offer(["net.yaml", "--set", "verify.seed="]) == Offer(())


ASK = {
    "bash": """source completion
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _bolt_build; printf "%s\\n" "${COMPREPLY[@]}" """,
    # Outside of its line editor zsh has no compadd, and compinit needs a terminal.
    "zsh": """compdef() {}; compadd() { print -r -- "${@[-1]}" }; _files() { print -r -- *(N) }
        source ./completion; words=("$@"); CURRENT=$#; _bolt_build""",
    "fish": "source completion; complete -C (string join ' ' -- $argv)",
}


@pytest.fixture
def ask(place: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., set[str]]:
    """What a shell offers for the last of the words behind `bolt-build`."""
    program = place / "bin" / "bolt-build"
    program.parent.mkdir()
    code = PROGRAM.format(root=str(Path(__file__).parents[2]))
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"\n')
    program.chmod(0o755)

    def asked(shell: str, *words: str) -> set[str]:
        assert main(["completion", shell]) == ExitCode.OK
        (place / "completion").write_text(capsys.readouterr().out)
        flags = ["--norc", "-euc"] if shell == "bash" else ["-fc"] if shell == "zsh" else ["--no-config", "-c"]
        behind = [shell] if shell != "fish" else []
        path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [shell, *flags, ASK[shell], *behind, "bolt-build", *words], cwd=place, check=True, capture_output=True,
            text=True, env=os.environ | {"PATH": path, "HOME": str(place)},
        )  # fmt: skip
        assert done.stderr == ""
        return set(done.stdout.splitlines()) - {""}

    return asked


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_offers_the_same(ask: Callable[..., set[str]], shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    assert ask(shell, "net.yaml", "--target", "") == {"host", "t4"}
    assert ask(shell, "tune", "--exp") == {"--export"}
    assert "verify" in ask(shell, "ver")
    assert {"policy.fusion.epilogue=", "policy.fusion.persistent="} == ask(shell, "net.yaml", "--set", "policy.fusion.")
    assert any("net.yaml" in line for line in ask(shell, "verify", "n"))


def test_bash_cuts_words_where_they_are_assigned(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It asks for what stands behind "=" alone."""
    for words, answer in (
        (("policy.fusion.epilogue", "=", ""), "true\nfalse\n:words\n"),
        (("policy.fusion.epilogue", "="), "true\nfalse\n:words\n"),
        (("policy.fusion.epilogue", "=", "t"), "true\n:words\n"),
        (("policy.fusion.ep",), "policy.fusion.epilogue=\n:words\n"),
    ):
        assert main(["completion", "bash", "--", "net.yaml", "--set", *words]) == ExitCode.OK
        assert capsys.readouterr().out == answer


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["completion", "tcsh"])
    assert "argument {bash,zsh,fish}: 'tcsh' is no choice; it is one of: bash, zsh, fish" in capsys.readouterr().err
