"""`bolt-build completion bash`: what bash offers, asked of bash itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bolt_build.cli.main import main
from bolt_build.cli.verbs import VERBS
from bolt_build.errors import ExitCode
from bolt_build.targets import all_targets


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", "bash"]) == ExitCode.OK
    path = tmp_path / "completion.bash"
    path.write_text(capsys.readouterr().out)
    (tmp_path / "net.yaml").touch()
    (tmp_path / "my recipes").mkdir()
    return path


def offered(script: Path, *words: str) -> set[str]:
    """What bash would offer for the last of the words behind `bolt-build`."""
    command = (
        f'source "{script}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _bolt_build; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-euc", command, "bash", "bolt-build", *words], cwd=script.parent, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stderr == ""
    return set(done.stdout.splitlines()) - {""}


def test_verbs_and_files_come_first(script: Path) -> None:
    assert offered(script, "") == {*VERBS, "net.yaml", "my recipes", script.name}
    assert offered(script, "ver") == {"verify"}
    assert offered(script, "verify", "n") == {"net.yaml"}
    assert offered(script, "verify", "my") == {"my recipes"}


def test_options_are_the_verb_s_and_those_of_build_without_one(script: Path) -> None:
    assert {"--locked", "--report", "--junit"} <= offered(script, "net.yaml", "--")
    assert offered(script, "tune", "--exp") == {"--export"}
    assert offered(script, "schema", "--") == {"--help"}


def test_a_target_is_one_that_is_known_here(script: Path) -> None:
    assert offered(script, "net.yaml", "--target", "") == {target.name for target in all_targets()}


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["completion", "zsh"])
    assert "argument {bash}: 'zsh' is no choice; " in capsys.readouterr().err
