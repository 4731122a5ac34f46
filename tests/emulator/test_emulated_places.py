"""Places of several elements in order agree with NumPy on the emulated GPU, sorted and selected: random lines, counts,
directions, types and cuts, with many elements alike, infinities, zeros of both signs and NaN."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import emulated
import pytest
from families_harness import Layer, values_of
from gpu_folds import folded
from gpu_harness import TARGET, Library, Trial, trials_of
from shared_folders import SharedFolder

from bolt_build.dtypes import DType
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Array
from bolt_build.graph.ops.lines import Places

pytestmark = pytest.mark.large
COUNT = 24


def drawn(seed: int) -> Trial:
    """Two in three are selected. Of a draw that has no such kernel another one."""
    random, form = Random(seed), ("selected", "selected", "sorted")[seed % 3]
    family = Portable()
    while True:
        extent = random.choice((random.randint(20, 120), random.randint(100, 1100), random.randint(1000, 5000)))
        shape = (random.randint(1, 5), extent, *((random.randint(1, 4),) if random.random() < 0.3 else ()))
        op = Places(1, random.randint(2, min(extent, 500)), random.random() < 0.6, random.random() < 0.4)
        dtype = random.choice((DType.F16, DType.F16, DType.F32, DType.BF16, DType.I8, DType.I32, DType.U16, DType.BOOL))
        layer = folded(f"drawn-{seed}", op, *shape, dtype=dtype, span=1 if dtype is DType.BOOL else 5)
        for trial in trials_of(layer, "portable"):
            offered = family.candidates(trial.step.problem, TARGET)[0]
            tiles = [each for each in offered if dict(each.parameters)["algorithm"] == form]
            if tiles:
                return replace(trial, candidate=random.choice(tiles))


def with_numbers_that_are_none(layer: Layer) -> list[Array]:
    if not (layer.inputs[0].dtype or layer.precision).is_float:
        return values_of(layer)
    return emulated.with_numbers_that_are_none(values_of(layer), 1, (0.5, 0.35, 0.2, 0.12, 0.06))


@pytest.fixture(scope="module")
def library(shared_folder: SharedFolder) -> Library:
    return emulated.kernel_library("emulated-places", lambda: [drawn(seed) for seed in range(COUNT)], shared_folder)


@pytest.mark.parametrize("values", [values_of, with_numbers_that_are_none], ids=["numbers", "and none"])
@pytest.mark.parametrize("index", range(COUNT))
def test_agrees_with_numpy(library: Library, index: int, values: Callable[[Layer], list[Array]]) -> None:
    outcome = emulated.outcome_of(library, index, values)
    assert outcome.message == ""
    assert outcome.error == 0.0
