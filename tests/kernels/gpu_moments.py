"""Convolutions on WGMMA whose images are normalised behind them, as they are tried on a GPU: 1x1 ones, windows, bands,
weights in registers and sums that roll; every schedule; images of many tiles and several of one; channels and groups;
what is normalised stored too, or not."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Input, Layer, graph_with
from gpu_asked import asked
from gpu_bands import pairs as band_pairs
from gpu_bands import together as band_together
from gpu_bands import turns as band_turns
from gpu_forms import FAMILY, pairs, single, together, turns
from gpu_harness import TARGET, Trial
from gpu_image_numbers import ADDED, GATED_SUM, gated
from gpu_products import GELU, RESIDUAL, SILU, conv
from gpu_volumes import of_volume, volume

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, ProposedStep, TensorFormat
from bolt_build.families.common.chains import chained, kept
from bolt_build.families.common.chains import normed as of_norm
from bolt_build.families.cutlass.kinds.norms.moment_tiles import with_moments
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import WgmmaTile
from bolt_build.families.cutlass.kinds.windows.band import BandTile
from bolt_build.families.cutlass.kinds.windows.resident import ResidentTile
from bolt_build.families.cutlass.kinds.windows.rolling import RollingTile
from bolt_build.families.cutlass.settings import Settings
from bolt_build.graph.ir import EpilogueOp, Layout
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.stack import UnfoldDepth
from bolt_build.graph.ops.norms.norm import Norm

Tile = WgmmaTile | BandTile | ResidentTile | RollingTile
STRIP = 5
"""Rows of a strip."""
LEAKY = (EpilogueOp(Activation("leaky_relu", 0.01)),)
ADD_BEHIND = (EpilogueOp(Activation("relu")), EpilogueOp(Binary("add"), 3), EpilogueOp(Activation("relu")))
"""A residual behind the normalisation, and activations on both sides of it."""


def step_of(
    layer: Layer, groups: int, *, behind: tuple[EpilogueOp, ...] = (), keeps: bool = False
) -> tuple[Layer, ProposedStep]:
    """The convolution of a layer and the normalisation of its images in one step, and as one layer. `groups` of
    channels have a statistic each, 0: each channel. A stage `behind` with an operand reads input 3 of the
    normalisation. With what is normalised if it `keeps` that."""
    graph, node = graph_with(layer)
    step = FAMILY.propose(graph, node, TARGET, layer.precision)[0][0].steps[0]
    (y,) = step.problem.outputs
    rank = len(y.shape)
    op = Norm("variance", tuple(range(1 if groups else 2, rank)), 1e-5, groups or 1)
    of_channels = Operand((y.shape[1], *(1,) * (rank - 2)), TensorFormat(DType.F32, Layout.ROW), constant=True)
    more = [y for stage in behind if stage.operand is not None]
    norm = KernelProblem(op, (y, of_channels, of_channels, *more), (y,), behind, DType.F32, TARGET.name)
    both = kept(step.problem, norm) if keeps else chained(step.problem, norm)
    names = tuple(f"x{index}" for index in range(len(both.inputs)))
    found = ProposedStep(both, names, ("y", "z") if keeps else ("z",), reads_apart=step.reads_apart)
    inputs = (*layer.inputs, Input(of_channels.shape, True, 0.5, 1.5), Input(of_channels.shape, True, -0.5, 0.5))
    inputs += tuple(Input(y.shape) for _ in more)
    how = f"groups{groups}" if groups else "channels"
    label = f"{layer.label}-{how}{'-behind' if behind else ''}{'-kept' if keeps else ''}"
    return replace(layer, label=label, op=both.op, inputs=inputs, epilogue=both.epilogue), found


def normed(
    layer: Layer, groups: int, *tiles: Tile, behind: tuple[EpilogueOp, ...] = (), keeps: bool = False
) -> list[Trial]:
    """The layer and its normalisation in kernels of these tiles."""
    if not asked([layer]):
        return []
    whole, step = step_of(layer, groups, behind=behind, keeps=keeps)
    return [Trial(whole, step, _candidate(tile)) for tile in tiles]


def _candidate(tile: Tile) -> Candidate:
    settings = Settings(strip=STRIP).named if isinstance(tile, RollingTile) else ()
    return Candidate("cutlass", with_moments(tile).parameters, settings)


def normed_volume(
    made: tuple[Layer, ProposedStep], groups: int, behind: tuple[EpilogueOp, ...] = ()
) -> tuple[Layer, ProposedStep]:
    """A convolution of volumes, as `volume` makes it, and the normalisation of what it leaves."""
    layer, step = made
    (y,), depths = step.problem.outputs, step.problem.outputs[0].shape[0] // layer.inputs[0].shape[0]
    move = UnfoldDepth(depths)
    (shape,) = (each.shape for each in move.infer([y.type]))
    op = Norm("variance", tuple(range(1 if groups else 2, 5)), 1e-5, groups or 1)
    of_channels = Operand((shape[1], 1, 1, 1), TensorFormat(DType.F32, Layout.ROW), constant=True)
    z = replace(y, shape=shape)
    norm = KernelProblem(op, (z, of_channels, of_channels), (z,), behind, DType.F32, TARGET.name)
    both = of_norm(step.problem, norm, move)
    inputs = (*layer.inputs, Input(of_channels.shape, True, 0.5, 1.5), Input(of_channels.shape, True, -0.5, 0.5))
    names = tuple(f"x{index}" for index in range(len(inputs)))
    found = ProposedStep(both, names, ("z",), reads_apart=step.reads_apart)
    return replace(layer, op=both.op, inputs=inputs, epilogue=both.epilogue), found


def moment_trials() -> list[Trial]:
    """In the order in which they run."""
    found = [
        *normed(conv("moments-head", (5, 72, 7, 7), 136, (1, 1), epilogue=()), 0,
                turns(64, 64, 64), turns(128, 96, 64), single(64, 96, 64), turns(64, 64, 64, (2, 1)),
                turns(128, 16, 32), together(256, 64, 64), behind=LEAKY),
        *normed(conv("moments-groups", (2, 72, 19, 23), 96, (1, 1), epilogue=SILU), 8,
                turns(128, 96, 64), together(128, 32, 64), pairs(256, 32, 32), behind=SILU),
        *normed(conv("moments-kept", (3, 72, 9, 13), 40, (1, 1), epilogue=RESIDUAL), 4,
                turns(128, 64, 64), together(192, 32, 64), keeps=True),
        *normed(conv("moments-small", (9, 40, 3, 7), 40, (1, 1), epilogue=GELU), 0, turns(64, 32, 32)),
        *normed(conv("moments-whole", (2, 64, 17, 23), 64, (3, 3), 2), 1, turns(128, 64, 64), behind=ADD_BEHIND),
        *normed(conv("moments-1d", (2, 64, 1000), 64, (1,), epilogue=LEAKY), 1, turns(64, 64, 64)),
        *normed(conv("moments-3x3", (4, 64, 9, 7), 72, (3, 3), epilogue=()), 0, turns(64, 96, 64), band_turns(64, 64),
                band_turns(128, 96, cluster=2), band_together(256, 64), band_pairs(256, 64), behind=ADD_BEHIND),
        *normed(conv("moments-bands", (2, 64, 30, 27), 64, (3, 3), epilogue=RESIDUAL), 16, band_turns(128, 64),
                band_together(256, 64), keeps=True),
        *normed(conv("moments-resident", (2, 40, 21, 19), 72, (3, 3), epilogue=()), 0, ResidentTile(8, 3, False),
                ResidentTile(14, 3, True), behind=LEAKY),
        *normed(conv("moments-resident-8", (3, 16, 30, 33), 64, (3, 3), epilogue=RESIDUAL), 8,
                ResidentTile(14, 1, False), keeps=True),
        *normed(conv("moments-rolling", (3, 32, 17, 41), 32, (3, 3), epilogue=()), 0, RollingTile(32, 32, 2),
                RollingTile(16, 32, 3), RollingTile(64, 32, 2), behind=ADD_BEHIND),
        *normed(conv("moments-rolling-24", (2, 40, 12, 20), 24, (3, 3), epilogue=RESIDUAL), 3, RollingTile(16, 64, 1),
                keeps=True),
        *normed(gated("moments-time", (3, 40, 19, 10), 72, (ADDED,), 3), 8, turns(128, 96, 64), together(256, 32, 64),
                band_turns(128, 96), behind=SILU),
        *normed(gated("moments-gate", (5, 64, 7, 9), 64, GATED_SUM, 3), 0, band_pairs(128, 64), keeps=True),
        *of_volume(normed_volume(volume("moments-volume", (2, 64, 5, 13, 11), 64, (3, 3, 3), epilogue=()), 0, LEAKY),
                   ("m=64", "warpgroups=pingpong"), ("bands", "warpgroups=pingpong"),
                   ("bands", "warpgroups=cooperative")),
        *of_volume(normed_volume(volume("moments-volume-2", (2, 32, 7, 14, 15), 40, (3, 3, 3), (2, 2), epilogue=()), 8),
                   ("bands", "warpgroups=pingpong")),
    ]  # fmt: skip
    return found + [replace(trial, pitch=trial.step.problem.outputs[0].row + 96, between=24) for trial in found[-3:]]
