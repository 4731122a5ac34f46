"""Places of several elements in order agree with NumPy on the emulated GPU, in all forms: random lines, counts,
directions, types and cuts, with many elements alike, infinities, zeros and NaN of both signs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import emulated
import numpy as np
import pytest
from families_harness import Layer, values_of
from gpu_folds import folded
from gpu_harness import TARGET, Library, Trial, trials_of
from shared_folders import SharedFolder

from bolt_build.dtypes import DType
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Array
from bolt_build.graph.ops.lines.lines import Places

pytestmark = pytest.mark.large
FORMS = ("selected", "sifted", "few", "selected", "parted", "counted", "selected", "sorted")
COUNT = 6 * len(FORMS)


def drawn(seed: int) -> Trial:
    """Three in eight are selected. Of a draw that has no such kernel another one."""
    random, form = Random(seed), FORMS[seed % len(FORMS)]
    family = Portable()
    while True:
        extent = random.choice((random.randint(20, 120), random.randint(100, 1100), random.randint(1000, 9000)))
        shape = (random.randint(1, 5), extent, *((random.randint(1, 4),) if random.random() < 0.3 else ()))
        count = random.choice((random.randint(2, 16), random.randint(2, min(extent, 500)), random.randint(2, extent)))
        op = Places(1, count, random.random() < 0.6, random.random() < 0.4)
        wide = (DType.I64, DType.F64) if form == "counted" else ()
        halves = (DType.F16, DType.F16, DType.F32, DType.BF16)
        dtype = random.choice((*halves, DType.I8, DType.I32, DType.U16, DType.BOOL, *wide))
        layer = folded(
            f"drawn-{seed}", op, *shape, dtype=dtype, span=1 if dtype is DType.BOOL else random.choice((5, 100))
        )
        for trial in trials_of(layer, "portable"):
            offered = family.candidates(trial.step.problem, TARGET)[0]
            tiles = [each for each in offered if dict(each.parameters)["algorithm"] == form]
            if tiles:
                return replace(trial, candidate=random.choice(tiles))


def with_numbers_that_are_none(layer: Layer) -> list[Array]:
    if not (layer.inputs[0].dtype or layer.precision).is_float:
        return values_of(layer)
    (x,) = emulated.with_numbers_that_are_none(values_of(layer), 1, (0.5, 0.35, 0.2, 0.12, 0.06))
    return [np.where(np.isnan(x) & (np.arange(x.size).reshape(x.shape) % 2 == 0), -x, x)]


ALIKE = ("selected", "sifted", "few", "parted", "sorted")
"""Forms of which one kernel each meets every number of elements that stand in front of all others alike."""


def alike(form: str) -> Trial:
    """Of 64 lines: 20 elements of each are wanted, or few of them where the form takes no more."""
    count, extent = 12 if form == "few" else 20, 4001 if form == "parted" else 245
    dtype = DType.BF16 if form == "selected" else DType.F16  # whose numbers of NaN and infinity begin alike
    layer = folded(f"alike-{form}", Places(1, count), 64, extent, dtype=dtype)
    for trial in trials_of(layer, "portable"):
        for candidate in Portable().candidates(trial.step.problem, TARGET)[0]:
            if dict(candidate.parameters)["algorithm"] == form:
                return replace(trial, candidate=candidate)
    raise ValueError(f"no {form} kernel is for {layer.label}")


def with_as_many_in_front(value: float, behind: float) -> Callable[[Layer], list[Array]]:
    """Line `i` has `2 i` of `value` at random places, and so fewer than are wanted, as many, or more; and 20 of what
    stands `behind` it."""

    def values(layer: Layer) -> list[Array]:
        (x,) = values_of(layer)
        for index, line in enumerate(x):
            places = np.random.default_rng(index).permutation(line.size)
            line[places[: 2 * index]] = value
            line[places[2 * index : 2 * index + 20]] = behind
        return [x]

    return values


@pytest.fixture(scope="module")
def library(shared_folder: SharedFolder) -> Library:
    return emulated.kernel_library(
        "emulated-places", lambda: [*map(drawn, range(COUNT)), *map(alike, ALIKE)], shared_folder
    )


@pytest.mark.parametrize("values", [values_of, with_numbers_that_are_none], ids=["numbers", "and none"])
@pytest.mark.parametrize("index", range(COUNT))
def test_agrees_with_numpy(library: Library, index: int, values: Callable[[Layer], list[Array]]) -> None:
    outcome = emulated.outcome_of(library, index, values)
    assert outcome.message == ""
    assert outcome.error == 0.0


@pytest.mark.parametrize(
    ("value", "behind"), [(np.nan, np.inf), (np.inf, 3.0), (3.0, 2.5), (0.5, -np.inf), (-np.inf, 0.0)], ids=str
)
@pytest.mark.parametrize("form", ALIKE)
def test_any_number_of_elements_that_are_alike(library: Library, form: str, value: float, behind: float) -> None:
    outcome = emulated.outcome_of(library, COUNT + ALIKE.index(form), with_as_many_in_front(value, behind))
    assert outcome.message == ""
    assert outcome.error == 0.0
