"""Two engines of convolutional networks in one C program: two models, four threads, weights swapped without a build."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from checked_memory import under_valgrind
from engine_builds import Built, build_engine
from nets import pooling_net, residual_net

from bolt_build import runtime

PROGRAMS = Path(__file__).resolve().parents[1] / "data" / "runtime"


@pytest.fixture(scope="module")
def engines(
    right_engines: tuple[Built, Built], tmp_path_factory: pytest.TempPathFactory, cache: Path
) -> tuple[list[Built], list[Built]]:
    """The residual and the pooling net, and the same engines from other weights."""
    folder = tmp_path_factory.mktemp("programs")
    nets = {"residual": residual_net, "pooling": pooling_net}
    other = [build_engine(folder, name, net(seed=2), cache, batch=[2]) for name, net in nets.items()]
    assert [built.complaints for built in other] == [[], []]
    return [*right_engines], other


@pytest.fixture(scope="module")
def command(engines: tuple[list[Built], list[Built]], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The program over both engines, each with its own and the other's weights."""
    program = tmp_path_factory.mktemp("program") / "two_engines"
    subprocess.run(
        ["gcc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-I", runtime.include_dir(),
         PROGRAMS / "two_engines.c", "-o", program, "-lpthread", "-ldl"],
        check=True,
    )  # fmt: skip
    files = [f for first, other in zip(*engines, strict=True) for f in (first.library, first.weights, other.weights)]
    return [str(program), *map(str, files)]


def test_other_weights_make_no_other_engine(engines: tuple[list[Built], list[Built]]) -> None:
    for first, other in zip(*engines, strict=True):
        assert first.plan.layout_digest == other.plan.layout_digest
        assert first.weights.read_bytes() != other.weights.read_bytes()


def test_two_engines_four_threads_and_swapped_weights(command: list[str]) -> None:
    done = subprocess.run([*command, "1000"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.large
def test_the_same_under_valgrind(command: list[str]) -> None:
    """No error and no definite leak in engines, runtime, oneDNN or OpenMP. The suppressions say why they are there."""
    checked = under_valgrind([*command, "2"], PROGRAMS / "valgrind.supp")
    if checked is None:
        pytest.skip("valgrind is not installed")
    done = subprocess.run(checked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
