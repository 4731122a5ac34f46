"""Slabs in as many clusters as a GPU holds at once: what is offered, what is refused, and that all slabs are normalised
however many clusters that is."""

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
from bolt_build.families.portable.kernels.clusters import clusters_at_once
from bolt_build.families.portable.kernels.norm_fitted import FORM, FittedTile, tiles
from bolt_build.families.portable.kernels.norm_held import HeldTile
from bolt_build.families.portable.kernels.norm_held_nest import held_nest_for
from bolt_build.graph.ir import Layout
from bolt_build.targets import Gpu, target_named


def candidate(tile: FittedTile) -> Candidate:
    return Candidate("portable", (("algorithm", "fitted"), *tile.parameters), tile.settings)


def gpu() -> Gpu:
    assert H200.gpu is not None
    return H200.gpu


def test_clusters_do_not_fill_their_groups_of_multiprocessors() -> None:
    """132 multiprocessors are 16 times eight, but for a group of 14, and for two that each group of 18 has left."""
    assert [clusters_at_once(each, 1, gpu()) for each in (1, 2, 4, 7, 8)] == [132, 66, 31, 16, 15]
    assert clusters_at_once(7, 2, gpu()) == 32


def test_a_candidate_says_whether_clusters_have_one_slab_or_many() -> None:
    """Which is compiled. How many clusters there are, the GPU is asked at the launch."""
    tile = FittedTile(HeldTile(10, 7, 512, 12, 1), many=True)
    stated = candidate(tile)
    assert str(stated) == "portable algorithm=fitted threads=512 loads=12 across=10 cluster=7 resident=1 slabs=many"
    assert FORM.tile_of(stated) == tile
    code = FAMILY.emit(problem(32, 320, 64, 64, groups=32), stated, H200, AT)
    shape = "bolt::portable::HeldShape<12, 512, 10, 7, 586, 10, 4096, 320, 1, 1>"
    assert code.call.startswith(f"bolt::portable::norm_in_registers_ahead<{shape}, ")
    assert ", 0, x, r.weight(1), r.weight(2), y, " in code.call
    one = candidate(FittedTile(HeldTile(8, 7, 256, 14, 2), many=False))
    code = FAMILY.emit(problem(32, 64, 56, 56, groups=1), one, H200, AT)
    assert code.call.startswith("bolt::portable::norm_in_registers<bolt::portable::HeldShape<14, 256, 8, 7, 448, 64, ")


def test_32_images_are_held_at_once_in_clusters_that_fit() -> None:
    """Of clusters of eight blocks, two blocks a multiprocessor, the last ones would begin when others have ended."""
    nest = held_nest_for(problem(32, 64, 56, 56, groups=1))
    found = list(tiles(nest, 2, gpu()))
    assert FittedTile(HeldTile(8, 7, 256, 14, 2), many=False) in found
    assert len(found) == len({(each.held.across, each.held.cluster, each.many) for each in found})
    assert all(each.turns(nest, gpu()) <= 1 for each in found if not each.many)
    assert all(each.turns(nest, gpu()) > 1 for each in found if each.many)
    assert not [each for each in found if not each.many and each.held.cluster in (4, 8)], "held has them"


def test_what_held_and_ahead_offer_is_offered_beside_it() -> None:
    """Tuning measures three kernels of each."""
    offered = [str(each) for each in FAMILY.candidates(problem(32, 320, 64, 64, groups=32), H200)[0]]
    for algorithm in ("held", "ahead", "fitted"):
        assert len([each for each in offered if f"algorithm={algorithm} " in each]) == 3


REFUSED: Mapping[FittedTile, tuple[str, str]] = {
    FittedTile(HeldTile(10, 2, 512, 41, 1), many=True): (
        "h200",
        "there are kernels of 3 to 8 blocks, and of 32 to 512 threads in whole warps",
    ),
    FittedTile(HeldTile(10, 7, 512, 11, 1), many=True): (
        "h200",
        "586 positions of a block are 12 loads of a thread, not 11",
    ),
    FittedTile(HeldTile(10, 7, 512, 12, 1), many=True): ("a100", "fitted: blocks form clusters from sm_90 on"),
}


@pytest.mark.parametrize("tile", REFUSED)
def test_what_does_not_fit_has_a_reason(tile: FittedTile) -> None:
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


OFTEN = ("registers-odd-chain-portable-fittedx96x2", "slab-2-portable-fittedx128")
RARELY = (
    "slab-2-portable-fittedx256", "slab-groups-portable", "slab-one-group", "slab-groups-chain", "registers-33",
    "registers-90", "registers-odd-chain-portable-fittedx96x1", "registers-planes", "single-registers-planes",
)  # fmt: skip


@pytest.fixture(scope="module")
def often(shared_folder: SharedFolder) -> Library:
    return emulated.kernel_library("fitted-norms", lambda: trials(*OFTEN), shared_folder, emulated.SOON_COMPILED)


@pytest.fixture(scope="module")
def rarely(shared_folder: SharedFolder) -> Library:
    return emulated.kernel_library("more-fitted-norms", lambda: trials(*RARELY), shared_folder)


def assert_agree(library: Library, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the GPU holds two or three clusters, which take several slabs each."""
    monkeypatch.setenv("EMULATED_MULTIPROCESSORS", "8")
    monkeypatch.setenv("EMULATED_SEED", str(seed))
    for index in range(len(library.trials)):
        outcome = library.run(index)
        assert (outcome.message, outcome.error <= 1.0) == ("", True), outcome


def test_few_clusters_take_all_slabs(often: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_agree(often, 1, monkeypatch)


@pytest.mark.large
@pytest.mark.parametrize("seed", [1, 2])
def test_few_clusters_take_slabs_of_all_kinds(rarely: Library, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    assert_agree(rarely, seed, monkeypatch)
