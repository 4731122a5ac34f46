"""The emulated GPU's numbers: every instruction of floats, halves and bits as PTX states it, <cmath> within CUDA's
bounds, and functions that kernels call."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import emulated
import pytest
from shared_folders import SharedFolder

from bolt_build import runtime
from bolt_build.families.portable.family import Portable

pytestmark = pytest.mark.large
"""The emulator changes rarely, and its probe takes a compiler ten seconds; kernels run on it in every run."""

HEADERS = (runtime.include_dir(), Portable().include_dir)


@pytest.fixture(scope="module")
def program(shared_folder: SharedFolder) -> Path:
    return emulated.probe_program("math", shared_folder, *(f"-I{folder}" for folder in HEADERS))


def said(program: Path, part: str, seed: int | None = None) -> str:
    around = {**os.environ, **({} if seed is None else {"EMULATED_SEED": str(seed)})}
    done = subprocess.run([program, part], capture_output=True, text=True, check=True, env=around)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "part",
    [
        "instructions of fp32", "instructions of fp64", "instructions of halves", "instructions of bits", "conversions",
    ],
)  # fmt: skip
def test_an_instruction_computes_to_the_bit_what_the_host_does(program: Path, part: str) -> None:
    assert said(program, part) == "compared\n"


@pytest.mark.parametrize("part", ["functions of fp32", "functions of fp64"])
def test_functions_of_cmath_are_within_16_units_of_the_last_place(program: Path, part: str) -> None:
    assert said(program, part) == "compared\n"


@pytest.mark.parametrize(("part", "units"), [("pairs near zero", 4), ("pairs", 14)])
def test_a_gelu_of_two_halves_errs_no_more_than_rounding_its_operand_makes_it_err(
    program: Path, part: str, units: int
) -> None:
    """That is up to 16 units in the last place, where it falls to half precision's least normal number."""
    found, end = said(program, part).splitlines()
    assert end == "compared"
    assert int(found.removesuffix(" units")) <= units


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_lanes_that_diverge_call_functions_with_structures_and_memory_of_their_own(
    program: Path, seed: int | None
) -> None:
    assert said(program, "calls", seed) == "compared\n"


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ("a function that calls itself", "): a function that calls itself: _Z12counted_downi\n"),
        ("a function without a body", "): a function that has no body here: vprintf\n"),
    ],
)
def test_a_call_that_the_machine_does_not_take_is_refused_by_name(program: Path, part: str, why: str) -> None:
    text = said(program, part)
    assert "emulated GPU: operation not supported: " in text
    assert why in text
