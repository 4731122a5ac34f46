"""Depthwise convolutions that also leave the means of their results: ragged tiles, runs, many tiles an image, sums that
a second kernel adds up, or the last block, or a cluster."""

from __future__ import annotations

from dataclasses import replace

from families_harness import Layer, graph_with
from gpu_grouped_layers import FAMILY, FORMS
from gpu_harness import TARGET, Trial
from gpu_products import RESIDUAL, SILU, conv

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, ProposedStep, TensorFormat
from bolt_build.families.common.chains import averaged
from bolt_build.families.common.means import LAST
from bolt_build.families.grouped.kind import candidate_of
from bolt_build.families.grouped.kinds.sliding import SlidingTile
from bolt_build.families.grouped.means import CLUSTER, SECOND, WAYS, joined, split
from bolt_build.families.grouped.registry import kinds_for
from bolt_build.families.grouped.shape import shape_of
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.lines.reduce import Reduce

LAYERS = [
    conv("mean-3x3", (3, 96, 30, 29), 96, (3, 3), groups=96, epilogue=SILU),
    conv("mean-5x5s2", (2, 48, 31, 33), 48, (5, 5), 2, groups=48),
    conv("mean-odd", (2, 35, 66, 70), 35, (3, 3), groups=35, epilogue=RESIDUAL),
    conv("mean-7", (9, 72, 7, 7), 72, (5, 5), groups=72, epilogue=SILU),
    conv("mean-times-2", (2, 24, 9, 11), 48, (3, 3), groups=24),
    conv("mean-1d", (2, 24, 50), 24, (5,), groups=24, bias=False, epilogue=()),
]

LATE, LATE_TILE = conv("mean-late", (8, 32, 4, 7), 32, (2, 2), groups=32), SlidingTile(2, 8, 2, 3, 2, 1, 4)
"""The last tile has one row of results, and no row of it is waited for that only others would be made of."""


def alone(layer: Layer) -> KernelProblem:
    """The convolution alone."""
    graph, node = graph_with(layer)
    return FAMILY.propose(graph, node, TARGET, layer.precision)[0][0].steps[0].problem


def step_of(layer: Layer) -> tuple[Layer, ProposedStep]:
    """The convolution with the means of its results."""
    problem = alone(layer)
    (y,) = problem.outputs
    axes = tuple(range(2, len(y.shape)))
    format = TensorFormat(DType.F16, Layout.CHANNELS_LAST)
    m = Operand((*y.shape[:2], *(1 for _ in axes)), format)
    both = averaged(problem, KernelProblem(Reduce("mean", axes), (y,), (m,), (), DType.F32, TARGET.name))
    names = tuple(f"x{index}" for index in range(len(both.inputs)))
    return replace(layer, op=both.op, epilogue=()), ProposedStep(both, names, ("y", "m"), pitched=(0,))


def in_ways(whole: Layer, step: ProposedStep) -> list[Trial]:
    """The first kernel of each kind in each way, second kernels first. They run twice: the second run finds counters as
    the first left them."""
    found: dict[object, Candidate] = {}
    for candidate in FAMILY.candidates(step.problem, TARGET)[0]:
        stated = dict(candidate.parameters)
        found.setdefault((stated["kind"], stated.get("sums")), candidate)
    ordered = sorted(found.values(), key=lambda candidate: WAYS.index(split(candidate)[1]))
    return [Trial(whole, step, candidate, launches=2) for candidate in ordered]


def averages() -> list[Trial]:
    """Of each layer the first kernels, some in many tiles, runs and ways; and rows of the output apart."""
    found = []
    for layer in LAYERS:
        found += in_ways(*step_of(layer))
    for layer in (LAYERS[0], LAYERS[1], FORMS[0]):
        whole, step = step_of(layer)
        shape = shape_of(alone(layer))
        assert TARGET.gpu is not None
        legal = [t for kind in kinds_for(shape) for t in kind.tiles(shape) if t.refuse(shape, TARGET.gpu) is None]
        convs = enumerate(candidate_of(tile, (1, 2, 4)[index % 3]) for index, tile in enumerate(legal[::40]))
        tried = [joined(conv, way) for index, conv in convs for way in (SECOND, (LAST, CLUSTER)[index % 2])]
        found += [Trial(whole, step, c) for c in tried if FAMILY.refuse(step.problem, c, TARGET) is None]
    found += [replace(trial, pitch=trial.step.problem.outputs[0].row + 8) for trial in found[:4]]
    whole, step = step_of(LATE)
    return [*found, Trial(whole, step, joined(candidate_of(LATE_TILE, 1), LAST), launches=2)]
