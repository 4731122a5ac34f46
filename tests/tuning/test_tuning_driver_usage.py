"""The driver's command line, and candidates that are none of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tuning_fakes import candidates, supervisor


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    argv = [str(word) for word in (supervisor(), *arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def test_candidates_of_another_version(tmp_path: Path) -> None:
    made = candidates(tmp_path, [[-1]], version="7")
    done = run("--candidates", made)
    expected = f"run: '{made}' has format version 7, this program measures version 4: take both from one bundle\n"
    assert (done.returncode, done.stderr) == (3, expected)


def test_what_is_no_library_of_candidates(tmp_path: Path) -> None:
    done = run("--candidates", tmp_path / "missing.so")
    assert (done.returncode, done.stderr) == (3, f"run: there is no library of candidates at '{tmp_path}/missing.so'\n")
    (tmp_path / "text.so").write_text("text")
    done = run("--candidates", tmp_path / "text.so")
    assert done.returncode == 3
    assert done.stderr.startswith("run: the candidates cannot be loaded: ")


def test_list_needs_no_gpu(tmp_path: Path) -> None:
    made = candidates(tmp_path, [[-1, 0]])
    done = run("--candidates", made, "--list")
    assert done.returncode == 0
    assert done.stdout == (
        "bundle bundle for h200 (sm_90 alone): 1 problem, 2 candidates\n"
        "\n"
        "[1] p0  conv 0\n"
        "    at batch 1: /conv\n"
        "        10.00 us predicted  kernel 0\n"
        "          10.00 us predicted  kernel 1\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "0"], "--budget takes a positive number of seconds, not '0'"),
        (["--budget"], "--budget needs a value"),
        (["--gpus", "0,x"], "--gpus takes whole numbers from 0 to 1023, not 'x'"),
        (["--what"], "unknown argument '--what'; see run --help"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stderr) == (2, f"run: {message}\n")


def test_help() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert done.stdout.startswith(
        "run: measures the candidates of candidates.so on every GPU of this machine, each by itself, and then the "
        "engines\nof engines.tsv with the fastest of them and with others in their place.\n"
    )
