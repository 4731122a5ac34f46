"""Planes that are pooled through shared memory agree with NumPy on the emulated GPU: random extents, windows, paddings
and tiles, and what is no number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import emulated
import pytest
from families_harness import Layer, values_of
from gpu_harness import TARGET, Library, Trial, trials_of
from gpu_pools import pooled
from legal_cuts import cuts_of
from shared_folders import SharedFolder

from bolt_build.dtypes import DType
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.images.pool_staged import JOINED
from bolt_build.graph.ir import Array, Layout, Op
from bolt_build.graph.ops.images.lp_pool import LpPool
from bolt_build.graph.ops.images.pool import Pool

pytestmark = pytest.mark.large
COUNT = 36
FORMS = ("staged", "streamed", "joined")


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
    random, form = Random(seed), FORMS[seed % 3]
    while True:
        axes = random.choice((1, 2, 2, 2, 3))
        most = 40 if axes < 3 else 16
        shape = [random.randint(1, 2), random.randint(1, 7), *(random.randint(9, most) for _ in range(axes))]
        if form == "joined" and random.random() < 0.6:
            shape[-1] = random.randint(100, 600)
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
            if form == "joined" and (cuts := cuts_of(JOINED, problem)):
                return replace(trial, candidate=random.choice(cuts))
            offered = family.candidates(problem, TARGET)[0]
            tiles = [each for each in offered if dict(each.parameters)["algorithm"] == form]
            if tiles:
                tile = random.choice(tiles)
                return replace(trial, candidate=random.choice([tile, *family.variants(problem, tile, TARGET)]))


def with_numbers_that_are_none(layer: Layer) -> list[Array]:
    return emulated.with_numbers_that_are_none(values_of(layer), 1, (0.1, 0.07, 0.04, 0.03, 0.02))


@pytest.fixture(scope="module")
def library(shared_folder: SharedFolder) -> Library:
    return emulated.kernel_library("emulated-pools", lambda: [drawn(seed) for seed in range(COUNT)], shared_folder)


@pytest.mark.parametrize("values", [values_of, with_numbers_that_are_none], ids=["numbers", "and none"])
@pytest.mark.parametrize("index", range(COUNT))
def test_agrees_with_numpy(library: Library, index: int, values: Callable[[Layer], list[Array]]) -> None:
    outcome = emulated.outcome_of(library, index, values)
    assert outcome.message == ""
    assert outcome.error <= 1.0
