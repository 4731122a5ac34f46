"""Images that are resampled by rows that slide, by rows in shared memory and on tensor cores agree with NumPy on the
emulated GPU: random extents, axes, layouts, neighbours and tiles, with tables as images have them and with others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import emulated
import numpy as np
import pytest
from families_harness import Layer, values_of
from gpu_harness import TARGET, Library, Trial, trials_of
from gpu_resample import resampled
from legal_cuts import cuts_of
from shared_folders import SharedFolder

from bolt_build.dtypes import DType
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.kernels.images.resample_staged import JOINED
from bolt_build.graph.ir import Array, Layout

pytestmark = pytest.mark.large
COUNT = 60
FORMS = ("sliding", "staged", "streamed", "tensor_cores", "joined")


def made_of(random: Random, extent: int) -> int:
    """Any number of results; of half of the axes so many times the extent, or so many in each gap."""
    times = random.randint(1, 4)
    return random.choice((random.randint(1, 26), random.randint(1, 26), times * extent, times * (extent - 1) + 1)) or 1


def drawn(seed: int) -> Trial:
    """One in five in bf16, one in five in fp32; as many of each form. Of a draw that has none of its form
    another one."""
    random, form = Random(seed), FORMS[seed % 5]
    while True:
        rank = random.choice((3, 4, 4, 4, 5))
        shape = (random.randint(1, 2), random.choice((3, 8, 12, 24)), *(random.randint(1, 12) for _ in range(rank - 2)))
        if form == "joined":
            shape = (*shape[:-1], random.randint(1, 90))
        first = random.randrange(2, rank)
        axes = (first, first + 1) if first + 1 < rank and random.random() < 0.75 else (first,)
        tables = ((axis, made_of(random, shape[axis]), random.choice((1, 2, 2, 3, 4, 4, 8))) for axis in axes)
        precision = random.choice((DType.F16, DType.F16, DType.F16, DType.BF16, DType.F32))
        layer = resampled(f"drawn-{seed}", shape, *tables, precision=precision)
        layer = replace(layer, tolerance=2e-2 if precision is DType.BF16 else layer.tolerance)
        trials = trials_of(layer, "portable")
        # Channels that lie side by side have rows that slide alone.
        planes = [each for each in trials if each.step.problem.outputs[0].format.layout is Layout.ROW]
        trial = random.choice(trials if form in ("sliding", "joined") else planes)
        family, problem = Portable(), trial.step.problem
        if form == "joined":
            if cuts := cuts_of(JOINED, problem):
                return replace(trial, candidate=random.choice(cuts))
            continue
        offered = family.candidates(problem, TARGET)[0]
        tiles = [each for each in offered if dict(each.parameters)["algorithm"] == form]
        if tiles:
            tile = random.choice(tiles)
            return replace(trial, candidate=random.choice([tile, *family.variants(problem, tile, TARGET)]))


def growing(layer: Layer) -> list[Array]:
    """Places grow, at times by less than an element and at times by more."""
    found = values_of(layer)
    for index in range(1, len(found), 2):
        found[index] = np.sort(found[index])
    return found


def evenly(layer: Layer) -> list[Array]:
    """Places are as far apart as those of an image are, and some neighbours of its edges are outside."""
    inputs = list(layer.inputs)
    for index in range(1, len(inputs), 2):
        taps, (axis, *_) = inputs[index + 1].shape[1], layer.op.axes[index // 2 :]
        extent = inputs[0].shape[axis]
        inputs[index] = replace(inputs[index], low=-taps / 2, high=extent - taps / 2, even=True)
    return values_of(replace(layer, inputs=tuple(inputs)))


@pytest.fixture(scope="module")
def library(shared_folder: SharedFolder) -> Library:
    return emulated.kernel_library("emulated-resample", lambda: [drawn(seed) for seed in range(COUNT)], shared_folder)


@pytest.mark.parametrize("values", [values_of, growing, evenly], ids=["any tables", "growing", "as images have them"])
@pytest.mark.parametrize("index", range(COUNT))
def test_agrees_with_numpy(library: Library, index: int, values: Callable[[Layer], list[Array]]) -> None:
    outcome = emulated.outcome_of(library, index, values)
    assert outcome.message == ""
    assert outcome.error <= 1.0
