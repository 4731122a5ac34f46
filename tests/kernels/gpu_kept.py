"""Convolutions that store their results and an activation of them, as they are tried on a GPU."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Layer, graph_with
from gpu_asked import asked
from gpu_bands import pairs as band_pairs
from gpu_bands import together as band_together
from gpu_bands import turns as band_turns
from gpu_forms import pairs, together, turns
from gpu_harness import TARGET, Trial
from gpu_products import RESIDUAL, conv

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, ProposedStep
from bolt_build.families.common.chains import kept
from bolt_build.families.common.problems import problem_of
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.warpgroups.kept import KeptTile
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import WgmmaTile
from bolt_build.families.cutlass.kinds.windows.band import BandTile
from bolt_build.graph.ir import Layout, Node, graph_of
from bolt_build.graph.ops.elementwise.activation import Activation

FAMILY = Cutlass()
LEAKY, SILU = Activation("leaky_relu", 0.1), Activation("silu")


def with_activation(first: Layer, function: Activation = LEAKY) -> tuple[Layer, ProposedStep]:
    """The convolution and an activation of what it leaves, as one problem of two results."""
    graph, node = graph_with(first)
    values = (*graph.values, replace(graph.values[-1], name="z"))
    second = Node("second", function, ("y",), ("z",))
    both = graph_of("two", 1, graph.inputs, ["y", "z"], values, [node, second])
    last = Layout.CHANNELS_LAST
    rank = both.type("y").rank
    layouts = tuple(last if both.type(name).rank == rank else Layout.ROW for name in node.inputs)
    front = problem_of(both, node, TARGET, DType.F16, layouts, last)
    problem = kept(front, problem_of(both, second, TARGET, DType.F16, (last,), last))
    label = f"{first.label}+{function.function}"
    layer = Layer(label, problem.op, first.inputs, (), first.precision, first.tolerance)
    return layer, ProposedStep(problem, node.inputs, ("y", "z"), pitched=(0, 1), reads_apart=(0,))


def of_two(first: Layer, *tiles: WgmmaTile | BandTile, function: Activation = LEAKY) -> list[Trial]:
    """The layer with each tile, whether it suits the layer or not."""
    if not asked([replace(first, label=f"{first.label}+{function.function}")]):
        return []
    layer, step = with_activation(first, function)
    return [Trial(layer, step, Candidate("cutlass", KeptTile(tile).parameters)) for tile in tiles]


def kept_trials() -> list[Trial]:
    """Matrix products and windows, with bands and without, in every schedule, with residuals; lines, and rows of the
    first result that lie apart."""
    found = of_two(conv("kept-1x1", (2, 72, 9, 7), 136, (1, 1)), turns(64, 128, 64), pairs(128, 64, 64), function=SILU)
    found += of_two(conv("kept-row", (3, 64, 50), 96, (1,), epilogue=RESIDUAL), together(128, 96, 64))
    found += of_two(
        conv("kept-3x3", (2, 64, 11, 9), 72, (3, 3), epilogue=RESIDUAL), turns(64, 64, 64), band_turns(64, 64),
        band_together(128, 96), band_pairs(128, 64),
    )  # fmt: skip
    found += of_two(
        conv("kept-line", (2, 48, 37), 48, (7,), dilation=3, epilogue=RESIDUAL), turns(64, 32, 32), band_turns(64, 64)
    )
    found += of_two(conv("kept-3x3s2", (2, 32, 12, 10), 64, (3, 3), 2, epilogue=()), band_turns(64, 64, 32))
    apart = [trial for trial in found if trial.layer.label.startswith(("kept-1x1", "kept-3x3+"))][::3]
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + 24, between=16) for t in apart]
