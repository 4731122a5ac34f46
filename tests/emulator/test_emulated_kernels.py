"""Kernels of most kinds agree with NumPy on the emulated GPU, in whatever order warps, copies and products proceed.

`python -m bolt_build.emulator python -m pytest -m gpu tests/gpu/test_gpu_kernels.py` asks the same of all of them.
"""

from __future__ import annotations

import emulated
import numpy as np
import pytest
from emulated_further import FURTHER, FURTHER_IN_BF16
from emulated_labels import IN_BF16, LABELS
from emulated_library import chosen, of_every_run
from families_harness import Layer, values_of
from gpu_harness import Library
from hard_rows import KINDS, kinds, row
from hypothesis import example, given, settings
from shared_folders import SharedFolder

from bolt_build.graph.ir import Array


@pytest.fixture(scope="module")
def library(shared_folder: SharedFolder) -> Library:
    return of_every_run(shared_folder)


@pytest.fixture(scope="module")
def further(shared_folder: SharedFolder) -> Library:
    # The long run has kernels as engines have them.
    return emulated.kernel_library("further-kernels", lambda: chosen(FURTHER, FURTHER_IN_BF16), shared_folder)


RUNS = [
    pytest.param(index, seed, id=f"{label}-{seed}", marks=[pytest.mark.large] if seed is None and index % 5 else [])
    for index, label in enumerate((*LABELS, *(f"bf16-{x}" for x in IN_BF16)))
    for seed in (None, 1)
]
"""In a random order all, one after the other some: what is right in the first is hardly wrong in the second."""


@pytest.mark.parametrize(("index", "seed"), RUNS)
def test_agrees_with_numpy(library: Library, monkeypatch: pytest.MonkeyPatch, index: int, seed: int | None) -> None:
    assert_agrees(library, monkeypatch, index, seed)


@pytest.mark.large
@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize(
    "index", range(len(FURTHER) + len(FURTHER_IN_BF16)), ids=[*FURTHER, *(f"bf16-{x}" for x in FURTHER_IN_BF16)]
)
def test_so_do_others_of_the_same_forms(
    further: Library, monkeypatch: pytest.MonkeyPatch, index: int, seed: int | None
) -> None:
    assert_agrees(further, monkeypatch, index, seed)


@pytest.mark.large
@pytest.mark.parametrize(
    ("label", "seed"), [("strips-2x2s2", 12), ("strips-2x2s2", 33), ("mean-late", 6), ("mean-late", 9)]
)
def test_copies_that_no_result_needs_come_before_sums_take_their_place(
    further: Library, monkeypatch: pytest.MonkeyPatch, label: str, seed: int
) -> None:
    """In these orders they came behind."""
    assert_agrees(further, monkeypatch, next(i for i, x in enumerate(FURTHER) if x.startswith(label)), seed)


def assert_agrees(library: Library, monkeypatch: pytest.MonkeyPatch, index: int, seed: int | None) -> None:
    if seed is not None:
        # So few that each works through several tiles. Blocks that wait for each other are no whole groups.
        stated = dict(library.trials[index].candidate.parameters)
        few = 3 * int(stated["norm"]) - 1 if stated.get("through") == "memory" else 3
        monkeypatch.setenv("EMULATED_MULTIPROCESSORS", str(few))
        monkeypatch.setenv("EMULATED_SEED", str(seed))
    outcome = library.run(index)
    assert outcome.message == ""
    assert outcome.error <= 1.0


@pytest.mark.parametrize(
    "index", [i for i, label in enumerate(LABELS) if label.startswith(("slide-", "wide-quantise-", "fold-"))]
)
def test_what_is_no_number_infinities_and_zeros_of_both_signs_are_where_numpy_has_them(
    library: Library, index: int
) -> None:
    def values(layer: Layer) -> list[Array]:
        return emulated.with_numbers_that_are_none(values_of(layer), index, (0.2, 0.13, 0.06, 0.04, 0.02))

    outcome = emulated.outcome_of(library, index, values)
    assert outcome.message == ""
    assert outcome.error <= 1.0


def test_blocks_that_wait_for_each_other_are_refused_where_they_have_no_room(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMULATED_MULTIPROCESSORS", "2")
    outcome = library.run(next(index for index, label in enumerate(LABELS) if label.startswith("memory-norm-384")))
    assert outcome.message == (
        "could not launch a normalised product: 3 blocks wait for each other, and the device runs one on each of 2"
        " multiprocessors"
    )


NORMALISES = next(index for index, label in enumerate(LABELS) if label.startswith("prenorm-far"))


@given(kinds)
@example([(kind, distance, seed) for seed, kind in enumerate(KINDS) for distance in (1000.0, -30.0, 0.5)])
@settings(max_examples=10, deadline=None)
def test_rows_are_normalised_as_they_are_loaded_wherever_they_lie(
    library: Library, rows: list[tuple[str, float, int]]
) -> None:
    """Also where the first step of a row, which the pivot is of, lies far from all others."""

    def values(layer: Layer) -> list[Array]:
        found = values_of(layer)
        shape = found[0].shape
        made = [row(kind, shape[-1], 64, distance, seed) for kind, distance, seed in rows]
        found[0] = np.resize(np.stack(made), shape).astype(found[0].dtype)
        return found

    outcome = emulated.outcome_of(library, NORMALISES, values)
    assert outcome.message == ""
    assert outcome.error <= 1.0
