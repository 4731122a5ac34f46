"""Depthwise convolutions whose blocks put the means of images together agree with NumPy on the emulated GPU, in
whatever order blocks, warps and copies proceed, and always with the same bits: random windows, channels, extents, tiles
and runs, with a product in front or without; as the last block to end, or as clusters."""

from __future__ import annotations

from random import Random

import emulated
import pytest
from emulated_orders import assert_agrees
from gpu_averages import alone, step_of
from gpu_bf16 import in_bf16
from gpu_depthwise_chains import averaged_step, expanded
from gpu_harness import TARGET, Library, Trial
from gpu_products import SILU, conv
from shared_folders import SharedFolder

from bolt_build.families.base import Candidate
from bolt_build.families.common.means import LAST
from bolt_build.families.grouped.chain import chain_shape, tiles
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.kind import candidate_of
from bolt_build.families.grouped.means import CLUSTER, joined
from bolt_build.families.grouped.registry import kinds_for
from bolt_build.families.grouped.shape import shape_of

IN_EVERY_RUN, ALL = 4, 24
FAMILY = Grouped()
KINDS = ("rows", "depthwise", "sliding", "expanded")


def drawn(seed: int) -> Trial:
    """A kernel for a random problem. It runs twice: the second launch finds counters as the first left them."""
    random = Random(seed)
    wanted, way = KINDS[seed % len(KINDS)], (CLUSTER, LAST)[(seed // 2 + seed // 4) % 2]
    assert TARGET.gpu is not None
    while True:
        window, stride = random.randint(2, 5), random.choice((1, 1, 2))
        channels, batch = random.choice((13, 16, 30, 35, 48, 104)), random.randint(1, 4)
        # Where images are small, blocks of windows that slide have several.
        most = 12 if wanted == "sliding" and seed % 2 else 30
        extent = (random.randint(8, most), random.randint(8, most))
        if wanted == "expanded":
            layer = expanded(f"means-{seed}", (batch, 8, *extent), channels, window | 1, stride, epilogue=SILU)
            whole, step = averaged_step(layer)
            chain = chain_shape(step.problem)
            convs = [
                Candidate("grouped", tile.parameters) for tile in tiles(chain) if tile.refuse(chain, TARGET.gpu) is None
            ]
        else:
            layer = conv(
                f"means-{seed}", (batch, channels, *extent), channels, (window, window), stride, groups=channels,
                epilogue=SILU,
            )  # fmt: skip
            whole, step = step_of(layer)
            shape = shape_of(alone(layer))
            convs = [
                candidate_of(tile, random.choice((1, 2, 2, 4)) if wanted == "depthwise" else 1)
                for kind in kinds_for(shape)
                for tile in kind.tiles(shape)
                if kind.header == wanted
            ]
        legal = [c for c in (joined(c, way) for c in convs) if FAMILY.refuse(step.problem, c, TARGET) is None]
        several = [c for c in legal if most < 30 and dict(c.parameters).get("images", 1) != 1]
        if legal := several or legal:
            found = Trial(whole, step, random.choice(legal), launches=2)
            return in_bf16(found) if random.random() < 0.2 else found


def compiled(shared_folder: SharedFolder, name: str, seeds: range) -> Library:
    # The long run has kernels as engines have them.
    calls = emulated.SOON_COMPILED if seeds.start == 0 else ()
    return emulated.kernel_library(name, lambda: [drawn(seed) for seed in seeds], shared_folder, calls)


@pytest.fixture(scope="module")
def library(shared_folder: SharedFolder) -> Library:
    return compiled(shared_folder, "emulated-means", range(IN_EVERY_RUN))


@pytest.fixture(scope="module")
def further(shared_folder: SharedFolder) -> Library:
    return compiled(shared_folder, "further-means", range(IN_EVERY_RUN, ALL))


@pytest.mark.parametrize("index", range(IN_EVERY_RUN))
def test_agrees_with_numpy_and_itself(library: Library, monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    assert_agrees(library, monkeypatch, index, (1,))


@pytest.mark.large
@pytest.mark.parametrize("index", range(ALL - IN_EVERY_RUN))
def test_so_do_further_ones(further: Library, monkeypatch: pytest.MonkeyPatch, index: int) -> None:
    assert_agrees(further, monkeypatch, index, (1, 2, 3))
