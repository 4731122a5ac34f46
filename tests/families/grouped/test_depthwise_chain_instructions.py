"""How many instructions kernels around depthwise convolutions take, as nvcc writes them: what bounds these kernels."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import emulated
import numpy as np
import pytest
from emulated_draws import SWISHED, SWISHED_TILE, swished
from emulated_library import first_of, of_every_run
from families_harness import Layer, values_of
from gpu_depthwise_chains import FAMILY, depthwise, step_of
from gpu_harness import TARGET
from shared_folders import SharedFolder

from bolt_build import runtime
from bolt_build.families import load
from bolt_build.families.base import Candidate
from bolt_build.families.common.text_form import Named
from bolt_build.graph.ir import Array
from bolt_build.targets import Target, target_named
from bolt_build.toolchain import probe

CHAIN: Named = (
    ("kind", "chain"), ("rows", 8), ("columns", 8), ("pairs", 2), ("across", 1), ("slab", 48), ("stages", 1),
    ("parts", 1),
)  # fmt: skip


def instructions(layer: Layer, tile: Named, folder: Path, target: Target = TARGET) -> Counter[str]:
    """Of the kernel, by the first words of their names, up to types."""
    tools = probe(("nvcc", "cutlass"))
    nvcc, cutlass = tools.tool("nvcc").path, tools.tool("cutlass").path
    if nvcc is None or cutlass is None:
        pytest.skip(f"needs nvcc and CUTLASS: {[diagnostic.message for diagnostic in tools.diagnostics()]}")
    (unit,) = FAMILY.units([(step_of(layer).problem, Candidate("grouped", tile))], target)
    (folder / "unit.cu").write_text(unit.text)
    folders = (runtime.include_dir(), Path(cutlass).parent / "include", *(each.include_dir for each in load(target)))
    flags = (*target.compile_flags, *(f"-I{each}" for each in folders))
    command = [str(nvcc), "-std=c++17", *flags, "-ptx", str(folder / "unit.cu"), "-o", str(folder / "unit.ptx")]
    subprocess.run(command, check=True)
    text = (folder / "unit.ptx").read_text()
    return Counter(re.findall(r"^\s*(?:@!?%p\d+ )?([a-z][a-z0-9_]*(?:\.[A-Za-z0-9]+)*)", text, re.M))


@pytest.mark.parametrize(
    ("stride", "sixteens", "eights", "loads"), [(1, 6, 24, 12), pytest.param(2, 12, 12, 18, marks=pytest.mark.large)]
)
def test_a_pair_of_lines_is_loaded_once_for_all_its_taps(
    stride: int, sixteens: int, eights: int, loads: int, tmp_path: Path
) -> None:
    """Of four rows of 16 channels: for each of three columns six lines of the input, or nine."""
    layer = depthwise("counted", (2, 48, 16, 16), 24, stride=stride)
    found = instructions(layer, CHAIN, tmp_path)
    product = 3 * 2  # runs of eight results, pairs of rows
    assert found["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] == sixteens + product
    assert found["mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"] == eights
    assert sum(count for name, count in found.items() if name.startswith("ldmatrix")) == loads
    # Two results at once are bounded.
    assert (found["max.NaN.f16x2"], found["max.NaN.f32"]) == (8, 0)


def test_a_sigmoid_is_one_tangent_on_hopper(tmp_path: Path) -> None:
    found = instructions(SWISHED, SWISHED_TILE, tmp_path)
    assert found["tanh.approx.f32"] > found["ex2.approx.ftz.f32"] == 0


def test_four_sigmoids_share_a_reciprocal_before_hopper(tmp_path: Path) -> None:
    found = instructions(SWISHED, SWISHED_TILE, tmp_path, target_named("a100"))
    assert found["ex2.approx.ftz.f32"] == 4 * found["rcp.approx.ftz.f32"] > 0


def test_a_nan_spoils_no_neighbour_with_which_it_shares_a_reciprocal(shared_folder: SharedFolder) -> None:
    def values(layer: Layer) -> list[Array]:
        inputs = values_of(layer)
        inputs[0][0, :, 4, 4] = np.nan
        return inputs

    outcome = emulated.outcome_of(of_every_run(shared_folder), first_of(swished), values)
    assert (outcome.message, outcome.error <= 1.0) == ("", True), outcome
