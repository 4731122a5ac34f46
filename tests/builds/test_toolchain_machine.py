"""Which targets' engines run on this machine."""

from __future__ import annotations

import dataclasses

import pytest

from bolt_build.targets import HOST, Target, target_named
from bolt_build.toolchain import machine
from bolt_build.toolchain.machine import FoundGpu, why_not_here


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[FoundGpu]:
    """The GPUs of the machine, for a test to fill in."""
    found: list[FoundGpu] = []
    monkeypatch.setattr(machine, "found_gpus", lambda: tuple(found))
    return found


def test_what_runs_where_it_is_built_needs_no_gpu(gpus: list[FoundGpu]) -> None:
    assert why_not_here(HOST) is None


def test_a_machine_without_a_gpu_runs_no_cuda_engine(gpus: list[FoundGpu]) -> None:
    assert why_not_here(target_named("h200")) == "this machine has no GPU that CUDA can use"


@pytest.mark.parametrize(
    ("target", "sm", "runs"),
    [
        ("h200", 90, True),
        ("h100", 90, True),
        ("h200", 100, False),  # sm_90a runs on Hopper alone
        ("h200", 80, False),
        ("a100", 80, True),
        ("a100", 86, True),
        ("a100", 90, True),  # through PTX
        ("a10", 80, False),
        ("t4", 89, True),
    ],
)
def test_code_runs_on_its_own_kind_and_later_ones_that_it_is_embedded_for(
    gpus: list[FoundGpu], target: str, sm: int, runs: bool
) -> None:
    gpus.append(FoundGpu("Some GPU", sm))
    row = target_named(target)
    wanted = None if runs else f"the GPU here is Some GPU, which does not run code for {row.arch}"
    assert why_not_here(row) == wanted


def test_a_target_of_another_kind_says_that_it_runs_elsewhere() -> None:
    other: Target = dataclasses.replace(HOST, name="board", runs_where_built=False)
    assert why_not_here(other) == "engines for board run elsewhere"
