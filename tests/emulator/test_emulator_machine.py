"""The emulated GPU computes as PTX says, and finds what a real one shows in few orders of warps and copies alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import emulated
import pytest
from shared_folders import SharedFolder

SEEDS = [None, *range(1, 9)]


@pytest.fixture(scope="module")
def program(shared_folder: SharedFolder) -> Path:
    return emulated.probe_program("machine", shared_folder)


def said(program: Path, part: str, seed: int | None = None) -> str:
    around = {**os.environ, **({} if seed is None else {"EMULATED_SEED": str(seed)})}
    done = subprocess.run([program, part], capture_output=True, text=True, check=True, env=around)
    return done.stderr or done.stdout


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        ("exchange", "0 wrong\n"), ("ring", "0 wrong\n"), ("paths", "0 wrong\n"), ("arithmetic", "compared\n"),
        ("follow", "ended\n"), ("neighbour", "0 wrong\n"), ("copy", "0 wrong\n"), ("multiply", "0 wrong\n"),
        ("cluster", "0 wrong\n"), ("scalars", "0 wrong\n"), ("gather", "0 wrong\n"), ("generic", "0 wrong\n"),
        ("displace", "0 wrong\n"), ("run", "0 wrong\n"), ("reduce", "0 wrong\n"), ("registers", "ended\n"),
        ("registers of two blocks", "ended\n"), ("write over a copy", "0 wrong\n"),
        ("follow two", "ended\n"),
    ],
)  # fmt: skip
def test_right_kernels_are_right_in_every_order(program: Path, part: str, wanted: str, seed: int | None) -> None:
    assert said(program, part, seed) == wanted


@pytest.mark.parametrize(
    "part",
    [
        "neighbour without a barrier", "copy without waiting", "multiply without waiting", "cluster without waiting",
        "write over a copy without waiting",
    ],
)  # fmt: skip
def test_a_wait_that_is_missing_shows_in_some_order_alone(program: Path, part: str) -> None:
    assert said(program, part) == "0 wrong\n"
    assert any(said(program, part, seed) != "0 wrong\n" for seed in range(1, 33))


@pytest.mark.parametrize(
    "part",
    ["exchange without a barrier", "ring without waiting", "gather without waiting", "run without waiting"],
)
def test_a_wait_that_is_missing_may_show_in_every_order(program: Path, part: str) -> None:
    assert {said(program, part, seed) for seed in SEEDS} - {"0 wrong\n"}


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize(
    ("part", "why"),
    [
        ("alone", "nothing can proceed\n  block (0, 0, 0), warp 0: lanes ffffffff at line"),
        ("gather and stay away", "nothing can proceed\n  block ("),
        ("gather one after the other", "nothing can proceed\n  block ("),
        ("more registers than there are", "nothing can proceed\n  block (0, 0, 0), warp"),
        ("more registers than two blocks have", "nothing can proceed\n  block (0, 0, 0), warp"),
        ("never begun", "no barrier was begun at 1024 of shared memory"),
        ("beyond global", "4 bytes of global memory written at 0x"),
        ("beyond shared", "4 bytes at 1152 of shared memory that ends at 1152"),
        ("follow and read too early", "a kernel reads what one in front has written, before it has waited for it"),
        (
            "follow two that let go too early",
            "a kernel reads what one in front has written, before it has waited for it",
        ),
        ("follow and write too early", "a kernel writes before it has waited for the one in front"),
        ("a run beyond global", "512 bytes of global memory read at 0x"),
        ("a run of no chunks", "a bulk copy of 8 bytes from address "),
        ("over a barrier", "something was written over the barrier at 1024"),
        ("misaligned", "an address that is not a multiple of 4; block (0, 0, 0), warp 0: lanes 00000001 at line"),
    ],
)
def test_what_a_gpu_would_stop_with_is_said(program: Path, part: str, why: str, seed: int | None) -> None:
    text = said(program, part, seed)
    assert text.startswith("emulated GPU: ")
    assert why in text


def test_a_grid_whose_blocks_wait_for_each_other_is_no_larger_than_what_runs_at_once(program: Path) -> None:
    assert said(program, "gather too many").startswith("cudaErrorCooperativeLaunchTooLarge\n")
