"""Convolutions on WGMMA that leave means of images, as they are tried on a GPU: 1x1 ones, windows, bands and groups;
every schedule; tiles of one image and of several; what is averaged stored, apart too, or not."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Layer, graph_with
from gpu_asked import asked
from gpu_bands import pairs as band_pairs
from gpu_bands import together as band_together
from gpu_bands import turns as band_turns
from gpu_forms import FAMILY, pairs, single, together, turns
from gpu_harness import TARGET, Trial
from gpu_products import GELU, RESIDUAL, SILU, conv

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, ProposedStep, TensorFormat
from bolt_build.families.common.chains import averaged, chained
from bolt_build.families.common.stated import Stated
from bolt_build.families.cutlass.kinds.norms.mean_tiles import of_bands, of_groups, of_wgmma
from bolt_build.families.cutlass.kinds.warpgroups.grouped_wgmma import GroupTile
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import WgmmaTile
from bolt_build.families.cutlass.kinds.windows.band import BandTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.lines.reduce import Reduce

Tile = WgmmaTile | BandTile | GroupTile


def step_of(layer: Layer, *, keeps: bool) -> tuple[Layer, ProposedStep]:
    """The convolution of a layer and its means as one step, and as one layer; with the results if it `keeps` them."""
    graph, node = graph_with(layer)
    step = FAMILY.propose(graph, node, TARGET, layer.precision)[0][0].steps[0]
    (y,) = step.problem.outputs
    axes = tuple(range(2, len(y.shape)))
    m = Operand((*y.shape[:2], *(1 for _ in axes)), TensorFormat(layer.precision, Layout.CHANNELS_LAST))
    mean = KernelProblem(Reduce("mean", axes), (y,), (m,), (), DType.F32, TARGET.name)
    both = averaged(step.problem, mean) if keeps else chained(step.problem, mean)
    names = tuple(f"x{index}" for index in range(len(both.inputs)))
    found = ProposedStep(both, names, ("y", "m") if keeps else ("m",), reads_apart=step.reads_apart)
    label = f"{layer.label}{'-kept' if keeps else ''}"
    return replace(layer, label=label, op=both.op, epilogue=()), found


def with_means(layer: Layer, *tiles: Tile, keeps: bool = False) -> list[Trial]:
    """The layer in kernels of these tiles."""
    if not asked([layer]):
        return []
    whole, step = step_of(layer, keeps=keeps)
    return [Trial(whole, step, Candidate("cutlass", _mean(tile).parameters)) for tile in tiles]


def _mean(tile: Tile) -> Stated:
    if isinstance(tile, GroupTile):
        return of_groups(tile)
    return of_bands(tile) if isinstance(tile, BandTile) else of_wgmma(tile)


def mean_trials() -> list[Trial]:
    """In the order in which they run."""
    found = [
        *with_means(
            conv("means-head", (5, 72, 7, 7), 136, (1, 1), epilogue=SILU),
            turns(64, 64, 64), turns(128, 96, 64), single(64, 96, 64), single(128, 32, 64), turns(64, 64, 64, (2, 1)),
            turns(128, 64, 64, (1, 2)),
        ),
        *with_means(conv("means-whole", (3, 72, 9, 13), 96, (1, 1), epilogue=RESIDUAL),
                    turns(128, 64, 64), turns(128, 32, 64), keeps=True),
        *with_means(conv("means-small", (70, 40, 1, 3), 40, (1, 1), epilogue=GELU), turns(64, 32, 32)),
        *with_means(conv("means-3x3", (4, 64, 9, 7), 72, (3, 3), epilogue=SILU), turns(64, 96, 64), turns(128, 64, 64)),
        *with_means(conv("means-3x3s2", (2, 64, 17, 23), 64, (3, 3), 2), turns(128, 64, 64), keeps=True),
        *with_means(conv("means-1d", (3, 64, 120), 64, (1,), epilogue=()), turns(128, 64, 64), turns(128, 16, 32)),
        *with_means(conv("means-groups-1x1", (3, 144, 7, 9), 144, (1, 1), groups=2, epilogue=SILU),
                    GroupTile(turns(64, 96, 64), 1)),
        *with_means(conv("means-together", (3, 72, 14, 14), 136, (1, 1), epilogue=RESIDUAL),
                    together(256, 64, 64), pairs(256, 32, 32), together(256, 96, 64), keeps=True),
        *with_means(conv("means-together-3x3", (5, 64, 12, 11), 72, (3, 3), epilogue=SILU),
                    together(192, 96, 64), pairs(256, 64, 64), together(192, 32, 64, (2, 1))),
        *with_means(conv("means-bands-7", (5, 64, 7, 7), 72, (3, 3), epilogue=SILU), band_turns(128, 64),
                    band_turns(64, 64), keeps=True),
        *with_means(conv("means-groups", (3, 224, 10, 9), 160, (3, 3), groups=2, epilogue=SILU),
                    GroupTile(turns(128, 96, 64), 1), GroupTile(single(128, 64, 64), 1)),
        *with_means(conv("means-bands-8", (5, 64, 9, 7), 72, (3, 3), epilogue=SILU),
                    band_turns(128, 64), band_turns(128, 96, cluster=2)),
        *with_means(conv("means-bands-14", (3, 64, 14, 14), 72, (3, 3), epilogue=RESIDUAL),
                    band_together(256, 64), band_pairs(256, 64), keeps=True),
        *with_means(conv("means-groups-bands-14", (3, 144, 14, 13), 96, (3, 3), groups=2, epilogue=SILU),
                    GroupTile(band_together(256, 64), 1), GroupTile(band_pairs(256, 64), 1)),
        *with_means(conv("means-groups-14", (3, 224, 14, 14), 160, (3, 3), groups=2, epilogue=SILU),
                    GroupTile(together(256, 64, 64), 1), GroupTile(pairs(256, 64, 64), 1), keeps=True),
        *with_means(conv("means-groups-7", (3, 112, 7, 7), 112, (3, 3), groups=2, epilogue=SILU),
                    GroupTile(band_turns(64, 64), 1), keeps=True),
    ]  # fmt: skip
    kept = [trial for trial in found if len(trial.step.outputs) > 1]
    return found + [replace(trial, pitch=trial.step.problem.outputs[0].row + 96, between=24) for trial in kept]
