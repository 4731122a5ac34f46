"""Planes that are pooled through shared memory agree with NumPy on the emulated GPU: random extents, windows, paddings
and tiles, and what is no number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from unittest import mock

import emulated
import gpu_harness
import numpy as np
import pytest
from families_harness import Layer, values_of
from gpu_harness import TARGET, Library, Trial, compile_all, trials_of, write
from gpu_pools import pooled
from shared_folders import SharedFolder

from bolt_build.dtypes import DType
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Array, Layout, Op
from bolt_build.graph.ops.lp_pool import LpPool
from bolt_build.graph.ops.pool import Pool
from bolt_build.toolchain import probe

pytestmark = pytest.mark.large
COUNT = 24


def window(random: Random, axes: int) -> Op:
    """One in five is a norm. Paddings leave a cell of every window."""
    kernel, strides, dilations, begins, ends = [], [], [], [], []
    for _ in range(axes):
        kernel.append(random.choice((1, 2, 3, 3, 4, 5)))
        strides.append(random.randint(1, kernel[-1]))
        dilations.append(random.choice((1, 1, 1, 2)))
        begins.append(random.randrange((kernel[-1] + 1) // 2))
        ends.append(random.randrange((kernel[-1] + 1) // 2))
    shape = (tuple(kernel), tuple(strides), tuple(begins), tuple(ends), tuple(dilations))
    ceil_mode = random.random() < 0.3
    if random.random() < 0.2:
        return LpPool(random.choice((1, 2)), *shape, ceil_mode)
    return Pool(random.choice(("max", "max", "average")), *shape, ceil_mode, random.random() < 0.3)


def drawn(seed: int) -> Trial:
    """One in four in bf16, one in four in fp32; of a draw that has no such kernel, or is no pooling, another one."""
    random = Random(seed)
    while True:
        axes = random.choice((1, 2, 2, 2))
        shape = (random.randint(1, 2), random.randint(1, 7), *(random.randint(4, 40) for _ in range(axes)))
        precision = random.choice((DType.F16, DType.F16, DType.BF16, DType.F32))
        op = window(random, axes)
        if isinstance(op, Pool) and op.mode == "max":
            op = replace(op, count_include_pad=False)
        tolerance = {DType.F16: 1e-3, DType.BF16: 2e-2, DType.F32: 4e-6}[precision]
        layer = replace(pooled(f"drawn-{seed}", op, *shape), precision=precision, tolerance=tolerance)
        planes = [
            each for each in trials_of(layer, "portable") if each.step.problem.inputs[0].format.layout is Layout.ROW
        ]
        for trial in planes:
            family, problem = Portable(), trial.step.problem
            offered = family.candidates(problem, TARGET)[0]
            tiles = [each for each in offered if dict(each.parameters)["algorithm"] == "staged"]
            if tiles:
                tile = random.choice(tiles)
                return replace(trial, candidate=random.choice([tile, *family.variants(problem, tile, TARGET)]))


def with_numbers_that_are_none(layer: Layer) -> list[Array]:
    found = values_of(layer)
    chance = np.random.default_rng(1).random(found[0].shape)
    for value, below in ((0.0, 0.1), (-0.0, 0.07), (np.nan, 0.04), (np.inf, 0.03), (-np.inf, 0.02)):
        found[0] = np.where(chance < below, value, found[0]).astype(found[0].dtype)
    return found


@pytest.fixture(scope="module")
def library(shared_folder: SharedFolder) -> Library:
    chain = probe(("cxx", "nvcc", "cutlass"))
    nvcc, cutlass = chain.tool("nvcc").path, chain.tool("cutlass").path
    if nvcc is None or cutlass is None:
        pytest.skip(f"needs nvcc and CUTLASS: {[diagnostic.message for diagnostic in chain.diagnostics()]}")
    with shared_folder("emulated-pools") as folder:
        if not (folder / "kernels.so").exists():
            write([drawn(seed) for seed in range(COUNT)], folder, few=True)
            compile_all(folder, Path(nvcc), Path(cutlass).parent, emulated.compile_flags(), emulated.link_flags())
    return Library(folder)


@pytest.mark.parametrize("values", [values_of, with_numbers_that_are_none], ids=["numbers", "and none"])
@pytest.mark.parametrize("index", range(COUNT))
def test_agrees_with_numpy(library: Library, index: int, values: object) -> None:
    library.forget()
    with mock.patch.object(gpu_harness, "values_of", values), np.errstate(invalid="ignore"):
        outcome = library.run(index)
    library.forget()
    assert outcome.message == ""
    assert outcome.error <= 1.0
