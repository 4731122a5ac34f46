"""Slabs that registers and shared memory hold together: what is offered, what is refused, and that they are
normalised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import emulated
import pytest
from gpu_harness import Library, Trial
from gpu_images import image_trials
from gpu_slabs import slabs
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_folders import SharedFolder
from test_portable_norm_ahead import AT, FAMILY, H200, problem

from bolt_build.families.base import Candidate
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.norms.norm_both import FORM, ROOM, BothTile, tiles, turns
from bolt_build.families.portable.kernels.norms.norm_held import HeldTile, resident, room
from bolt_build.families.portable.kernels.norms.norm_held_nest import HeldNest, held_nest, held_nest_for
from bolt_build.graph.ir import EpilogueOp
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.targets import Gpu, target_named


def candidate(tile: BothTile) -> Candidate:
    return candidate_of("portable", "both", tile)


def gpu() -> Gpu:
    assert H200.gpu is not None
    return H200.gpu


def test_a_candidate_says_how_many_loads_shared_memory_keeps() -> None:
    tile = BothTile(HeldTile(33, 7, 384, 21, 2), 16)
    stated = candidate(tile)
    assert str(stated) == "portable algorithm=both threads=384 loads=21 across=33 cluster=7 resident=2 kept=16"
    assert FORM.tile_of(stated) == tile
    code = FAMILY.emit(problem(32, 33, 112, 112, groups=3), stated, H200, AT)
    shape = "bolt::portable::HeldShape<21, 384, 33, 7, 224, 11, 1568, 264, 1, 2, 33, 0>"
    assert code.call.startswith(f"bolt::portable::norm_in_both<{shape}, bolt::portable::InShared<16>, ")


def test_32_images_that_registers_do_not_hold_are_there_at_once() -> None:
    """Registers have room for 15 of them in clusters of eight blocks, one of a multiprocessor: the last two images
    begin when 30 have ended."""
    asked = problem(32, 33, 112, 112, groups=3)
    nest = held_nest_for(asked)
    found = [each for each in tiles(nest, 2, gpu()) if turns(each.held, nest, gpu()) <= 1]
    assert BothTile(HeldTile(33, 7, 256, 32, 2), 17) in found
    first = min(FAMILY.candidates(asked, H200)[0], key=lambda each: FAMILY.predict(asked, each, H200))
    assert "algorithm=both" in str(first)


def test_what_is_offered_leaves_registers_enough_and_room_in_the_l1_cache() -> None:
    """Of 256 slabs of 80 channels at 32 x 32 positions an H200 took 25 us in pairs of blocks. With so many threads and
    loads that some wait in memory, or that shared memory is full, it took up to 32."""
    asked = problem(32, 640, 32, 32, groups=32)
    nest = held_nest_for(asked)
    found = {(each.held.across, each.held.cluster, each.held.resident): each for each in tiles(nest, 2, gpu())}
    assert found[10, 2, 2] == BothTile(HeldTile(10, 2, 256, 21, 2), 6)
    first = min(FAMILY.candidates(asked, H200)[0], key=lambda each: FAMILY.predict(asked, each, H200))
    assert first == candidate(found[10, 2, 2])
    full = BothTile(HeldTile(10, 1, 320, 32, 2), 21)
    assert FAMILY.refuse(asked, candidate(full), H200) is None
    assert FAMILY.predict(asked, candidate(full), H200) > 1.1 * FAMILY.predict(asked, first, H200)


def test_functions_behind_take_instructions() -> None:
    plain = problem(32, 640, 32, 32, groups=32)
    other = replace(plain, epilogue=(EpilogueOp(Activation("silu")),))
    for each in FAMILY.candidates(plain, H200)[0]:
        if dict(each.parameters)["algorithm"] in ("both", "held"):
            assert FAMILY.predict(other, each, H200) > 1.1 * FAMILY.predict(plain, each, H200)


def test_slabs_that_registers_hold_all_at_once_are_left_to_held() -> None:
    asked = problem(2, 64, 28, 28, groups=0)
    assert list(tiles(held_nest_for(asked), 2, gpu())) == []


REFUSED: Mapping[BothTile, tuple[str, str]] = {
    BothTile(HeldTile(10, 9, 512, 9, 2), 3): (
        "h200",
        "there are kernels of 1 to 8 blocks, and of 32 to 512 threads in whole warps",
    ),
    BothTile(HeldTile(10, 8, 512, 10, 2), 3): ("h200", "512 positions of a block are 11 loads of a thread, not 10"),
    BothTile(HeldTile(10, 8, 512, 11, 2), 11): (
        "h200",
        "of 11 loads one to all but two are kept in shared memory, not 11",
    ),
    BothTile(HeldTile(10, 8, 512, 11, 2), 2): (
        "h200",
        "registers of a multiprocessor hold 9 loads of each of 512 threads 1 times, not 2",
    ),
    BothTile(HeldTile(10, 4, 320, 32, 2), 28): (
        "h200",
        "2 blocks take 299936 bytes of shared memory, a multiprocessor has 233472",
    ),
    BothTile(HeldTile(10, 1, 32, 1366, 2), 1364): ("h200", "threads have 48 loads at most, not 1366"),
    BothTile(HeldTile(10, 8, 512, 11, 2), 7): ("a100", "blocks form clusters from sm_90 on"),
    BothTile(HeldTile(10, 1, 512, 81, 2), 7): (
        "t4",
        "both: copies to shared memory run beside a block's work from sm_80 on",
    ),
}


@pytest.mark.parametrize("tile", REFUSED)
def test_what_does_not_fit_has_a_reason(tile: BothTile) -> None:
    """Of 32 images of 64 x 64 positions and 320 channels, in 32 groups."""
    target, reason = REFUSED[tile]
    asked = problem(32, 320, 64, 64, groups=32, target=target)
    assert FAMILY.refuse(asked, candidate(tile), target_named(target)) == reason


@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 300), st.integers(20, 90))
@settings(max_examples=15, deadline=None)
def test_what_is_offered_is_legal_and_has_room_for_each_element(each: int, groups: int, images: int, side: int) -> None:
    asked = problem(images, each * groups, side, side, groups=groups)
    nest = held_nest(asked)
    if not isinstance(nest, HeldNest):
        return
    for tile in tiles(nest, 2, gpu()):
        assert FAMILY.refuse(asked, candidate(tile), H200) is None
        held = tile.held
        assert held.threads // held.across * held.loads * held.cluster >= nest.many
        assert held.resident * (tile.shared(nest, 2) + 1024) <= 228 << 10
        assert held.resident * held.threads * (4 * tile.own + 52) <= 65536
        assert tile.own == room(held.threads, held.resident, 2, gpu(), ROOM)


@given(st.integers(1, 16), st.integers(2, 6), st.sampled_from((2, 4)), st.sampled_from((48, 60)))
@settings(max_examples=50, deadline=None)
def test_registers_have_room_for_no_load_more(warps: int, blocks: int, element: int, beside: int) -> None:
    threads, most = 32 * warps, room(32 * warps, blocks, element, gpu(), beside)
    if most and blocks * warps > 8:  # of fewer, a thread has all registers that there are for one
        assert resident(threads, most, element, gpu(), beside) >= blocks
        assert resident(threads, most + 1, element, gpu(), beside) < blocks


def trials(*labels: str) -> list[Trial]:
    known = [each for each in (*slabs(), *image_trials()) if "-bothx" in each.label]
    return [next(each for each in known if each.label.startswith(label)) for label in labels]


RARELY = (
    "slab-2-portable-bothx64", "slab-2-portable-bothx192", "slab-groups-portable", "slab-one-group", "slab-planes",
    "slab-groups-chain", "registers-33", "registers-chain", "registers-odd-chain", "registers-odd-all",
    "registers-odd-rms", "single-registers-odd-chain",
)  # fmt: skip


@pytest.fixture(scope="module")
def rarely(shared_folder: SharedFolder) -> Library:
    return emulated.kernel_library("more-norms-in-both", lambda: trials(*RARELY), shared_folder)


@pytest.mark.large
@pytest.mark.parametrize("seed", [1, 2])
def test_slabs_of_all_kinds_are_normalised(rarely: Library, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setenv("EMULATED_MULTIPROCESSORS", "8")
    monkeypatch.setenv("EMULATED_SEED", str(seed))
    for index in range(len(rarely.trials)):
        outcome = rarely.run(index)
        assert (outcome.message, outcome.error <= 1.0) == ("", True), outcome
