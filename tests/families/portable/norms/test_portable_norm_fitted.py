"""Slabs in clusters of other sizes, all of which a GPU holds at once: what is offered, what is refused, and that they
are normalised."""

from __future__ import annotations

from collections.abc import Mapping

import emulated
import pytest
from gpu_harness import Library, Trial
from gpu_images import image_trials
from gpu_slabs import slabs
from shared_folders import SharedFolder
from test_portable_norm_ahead import AT, FAMILY, H200, problem

from bolt_build.families.base import Candidate
from bolt_build.families.common.clusters import clusters_at_once
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.norms.norm_fitted import FORM, tiles, turns
from bolt_build.families.portable.kernels.norms.norm_held import HeldTile
from bolt_build.families.portable.kernels.norms.norm_held_nest import held_nest_for
from bolt_build.graph.ir import Layout
from bolt_build.targets import Gpu, target_named


def candidate(tile: HeldTile) -> Candidate:
    return candidate_of("portable", "fitted", tile)


def gpu() -> Gpu:
    assert H200.gpu is not None
    return H200.gpu


def test_clusters_do_not_fill_their_groups_of_multiprocessors() -> None:
    """132 multiprocessors are 16 times eight, 33 times four and 44 times three, and hold fewer clusters of these."""
    assert [clusters_at_once(each, 1, gpu()) for each in (1, 2, 3, 4, 7, 8)] == [132, 66, 39, 30, 15, 15]
    assert [clusters_at_once(7, each, gpu()) for each in (2, 4)] == [32, 64]


def test_a_candidate_names_the_kernel_that_holds_slabs() -> None:
    stated = candidate(HeldTile(8, 7, 256, 14, 2))
    assert str(stated) == "portable algorithm=fitted threads=256 loads=14 across=8 cluster=7 resident=2"
    assert FORM.tile_of(stated) == HeldTile(8, 7, 256, 14, 2)
    code = FAMILY.emit(problem(32, 64, 56, 56, groups=1), stated, H200, AT)
    assert code.call.startswith("bolt::portable::norm_in_registers<bolt::portable::HeldShape<14, 256, 8, 7, 448, 64, ")


def test_32_images_are_held_at_once_in_clusters_that_fit() -> None:
    """Of clusters of eight blocks, two blocks a multiprocessor, the last ones would begin when others have ended."""
    asked = problem(32, 64, 56, 56, groups=1)
    nest = held_nest_for(asked)
    found = list(tiles(nest, 2, gpu()))
    assert HeldTile(8, 7, 256, 14, 2) in found
    assert len(found) == len({(each.across, each.cluster) for each in found})
    assert all(turns(each, nest, gpu()) <= 1 for each in found)
    assert "algorithm=fitted" in str(
        min(FAMILY.candidates(asked, H200)[0], key=lambda c: FAMILY.predict(asked, c, H200))
    )


def test_more_slabs_than_are_there_at_once_are_left_to_others() -> None:
    asked = problem(32, 320, 64, 64, groups=32)
    assert list(tiles(held_nest_for(asked), 2, gpu())) == []
    assert not any("algorithm=fitted" in str(each) for each in FAMILY.candidates(asked, H200)[0])


REFUSED: Mapping[HeldTile, tuple[str, str]] = {
    HeldTile(10, 8, 512, 11, 1): (
        "h200",
        "there are kernels of 3, 5, 6 or 7 blocks, and of 32 to 512 threads in whole warps",
    ),
    HeldTile(10, 7, 512, 11, 1): ("h200", "586 positions of a block are 12 loads of a thread, not 11"),
    HeldTile(10, 7, 512, 12, 1): ("a100", "fitted: blocks form clusters from sm_90 on"),
}


@pytest.mark.parametrize("tile", REFUSED)
def test_what_does_not_fit_has_a_reason(tile: HeldTile) -> None:
    """Of 32 images of 64 x 64 positions and 320 channels, in 32 groups."""
    target, reason = REFUSED[tile]
    asked = problem(32, 320, 64, 64, groups=32, target=target)
    assert FAMILY.refuse(asked, candidate(tile), target_named(target)) == reason


def test_planes_are_left_to_single_blocks_that_hold_them() -> None:
    """A plane of 64 x 64 elements is little for a cluster."""
    asked = problem(32, 256, 64, 64, groups=0, layout=Layout.ROW)
    first = min(FAMILY.candidates(asked, H200)[0], key=lambda each: FAMILY.predict(asked, each, H200))
    assert "algorithm=held" in str(first)


def trials(*labels: str) -> list[Trial]:
    known = [each for each in (*slabs(), *image_trials()) if "-fittedx" in each.label]
    return [next(each for each in known if each.label.startswith(label)) for label in labels]


RARELY = (
    "slab-2-portable-fittedx128", "slab-2-portable-fittedx256", "slab-groups-portable", "slab-one-group",
    "slab-groups-chain", "registers-90", "registers-odd-chain",
)  # fmt: skip


@pytest.fixture(scope="module")
def rarely(shared_folder: SharedFolder) -> Library:
    return emulated.kernel_library("more-fitted-norms", lambda: trials(*RARELY), shared_folder)


def assert_agree(library: Library, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the GPU holds one or two of the clusters."""
    monkeypatch.setenv("EMULATED_MULTIPROCESSORS", "8")
    monkeypatch.setenv("EMULATED_SEED", str(seed))
    for index in range(len(library.trials)):
        outcome = library.run(index)
        assert (outcome.message, outcome.error <= 1.0) == ("", True), outcome


@pytest.mark.large
@pytest.mark.parametrize("seed", [1, 2])
def test_clusters_of_three_to_seven_blocks_normalise_slabs_of_all_kinds(
    rarely: Library, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    assert_agree(rarely, seed, monkeypatch)
