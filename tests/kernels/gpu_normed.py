"""Depthwise convolutions with the normalisation of their results over channels in one kernel: windows, strides,
dilations, channels moved last or not, and every way in which tiles differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from families_harness import Input, Layer, values_of
from families_layers import CLIP, RELU, stage
from gpu_asked import asked
from gpu_grouped_layers import FAMILY, NO_PADS
from gpu_harness import TARGET, Trial
from gpu_products import SILU, TOLERANCE, conv

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, ProposedStep
from bolt_build.families.common.chains import parts
from bolt_build.families.grouped.neighbours.band_tile import band_tiles
from bolt_build.families.grouped.neighbours.normed import tile_of
from bolt_build.families.grouped.shape import shape_of
from bolt_build.graph.ir import Constant, EpilogueOp, Graph, Node, TensorType, Value, graph_of
from bolt_build.graph.ops.moves.shape import Transpose
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.chain import Normed


def normed(
    label: str, x: tuple[int, ...], kernel: int = 7, stride: int = 1, behind: tuple[EpilogueOp, ...] = (), *,
    dilation: int = 1, epilogue: tuple[EpilogueOp, ...] = (), bias: bool = True, moved: bool = True,
    operands: int = 2, statistic: str = "variance", mean: float = 0.0,
    pads: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
) -> Layer:  # fmt: skip
    """A depthwise convolution, whose results are normalised over channels: moved last, or where they are. `operands`:
    scale and bias, scale or neither. The convolution's bias is `mean` and some more; stages behind may add input 7."""
    channels = x[1]
    first = conv(
        label, x, channels, (kernel,) * (len(x) - 2), stride, pads, dilation, channels, epilogue=epilogue, bias=bias
    )
    given = list(first.inputs)
    if mean:
        given[2] = Input((channels,), True, mean - 1.0, mean + 1.0)
    own = given[: 3 if bias else 2]
    (output,) = first.op.infer([TensorType(DType.F16, each.shape) for each in own])
    rank = len(output.shape)
    move = Transpose((0, *range(2, rank), 1)) if moved else None
    shape = (*output.shape[:1], *output.shape[2:], channels) if moved else output.shape
    spread = (channels,) if moved else (channels, *(1,) * (rank - 2))
    op = Normed(first.op, len(own), epilogue, Norm(statistic, (rank - 1 if moved else 1,), 1e-6), move)
    norm = [Input(spread, True, 0.5, 1.5), Input(spread, True, -1.0, 1.0)][:operands]
    joined = [Input(shape)] if any(each.operand is not None for each in behind) else []
    at = len(own) + len(norm)
    stages = tuple(each if each.operand is None else replace(each, operand=at) for each in behind)
    return Layer(label, op, (*own, *norm, *joined), stages, DType.F16, 2 * TOLERANCE)


ADDED = (stage("add", 7),)
LAYERS = [
    normed("normed-7x7", (2, 96, 13, 19)),
    normed("normed-7x7-image", (2, 40, 9, 18), moved=False),
    normed("normed-deep", (3, 384, 7, 7)),
    normed("normed-wide", (1, 768, 7, 7)),
    normed("normed-3x3-silu", (2, 48, 13, 19), 3, epilogue=SILU, behind=(RELU,)),
    normed("normed-3x3s2", (2, 48, 17, 15), 3, 2, epilogue=(CLIP,)),
    normed("normed-7x7s2", (2, 24, 21, 19), 7, 2),
    normed("normed-5x5d2", (1, 72, 17, 15), 5, dilation=2),
    normed("normed-3x3d3", (1, 32, 17, 15), 3, dilation=3),
    normed("normed-11x11", (1, 32, 14, 13), 11, behind=ADDED),
    normed("normed-2x2-valid", (2, 32, 9, 11), 2, pads=NO_PADS),
    normed("normed-1d", (2, 24, 50), 5, 2),
    normed("normed-no-bias", (2, 64, 9, 11), 5, bias=False, operands=0),
    normed("normed-scale", (2, 64, 9, 11), 3, operands=1, moved=False, behind=ADDED),
    normed("normed-rms", (2, 200, 9, 11), 3, statistic="rms"),
    normed("normed-mean", (2, 104, 9, 11), mean=12.0),
    normed("normed-octet", (2, 8, 9, 11), 3),
]  # fmt: skip
FORM = normed("normed-form", (3, 176, 21, 19), 7, behind=ADDED)


def random_normed(count: int, seed: int) -> list[Layer]:
    """Of any channels, extents, windows and steps."""
    random = np.random.default_rng(seed)
    found = []
    for index in range(count):
        channels = 8 * int(random.integers(1, 30))
        extents = tuple(int(value) for value in random.integers(5, 24, 2))
        kernel, stride, gap = (int(random.choice(some)) for some in ((7, 3, 5, 2, 4), (1, 2, 3), (1, 1, 2)))
        found.append(
            normed(
                f"normed-random-{index}", (int(random.integers(1, 4)), channels, *extents), kernel, stride,
                ((), (RELU,), ADDED)[index % 3], dilation=gap if stride == 1 else 1, bias=bool(random.random() < 0.8),
                moved=bool(random.random() < 0.5), operands=int(random.integers(0, 3)),
            )
        )  # fmt: skip
    return found


def graph_of_all(layer: Layer) -> Graph:
    """The nodes that the layer stands for, one behind the other."""
    op = layer.op
    assert isinstance(op, Normed)
    names = tuple(f"x{index}" for index in range(len(layer.inputs)))
    types = [TensorType(given.dtype, given.shape) for given in layer.inputs]
    values = [
        Value(name, t, Constant(array) if given.constant else None)
        for name, t, given, array in zip(names, types, layer.inputs, values_of(layer), strict=True)
    ]
    nodes = [Node("conv", op.first, names[: op.operands], ("left",), op.between)]
    values.append(Value("left", op.inner(types)))
    between = "left"
    if op.move is not None:
        nodes.append(Node("move", op.move, ("left",), ("moved",)))
        values.append(Value("moved", op.moved(types)))
        between = "moved"
    moved = 1 - op.operands
    stages = tuple(e if e.operand is None else replace(e, operand=e.operand + moved) for e in layer.epilogue)
    nodes.append(Node("norm", op.second, (between, *names[op.operands :]), ("y",), stages))
    values.append(Value("y", op.moved(types)))
    given = [name for name, each in zip(names, layer.inputs, strict=True) if not each.constant]
    return graph_of("all", layer.inputs[0].shape[0], given, ["y"], values, nodes)


def step_of(layer: Layer) -> ProposedStep:
    """The step that computes both. Raises ValueError where none does."""
    graph = graph_of_all(layer)
    found, refusals = FAMILY.propose(graph, graph.nodes[0], TARGET, layer.precision)
    step = next((each.steps[0] for each in found if len(each.region) == len(graph.nodes)), None)
    if step is None:
        raise ValueError(f"{layer.label}: {[each.reason for each in refusals]}")
    return step


def normed_trials() -> list[Trial]:
    """Every layer with the first candidate, one in the middle, and the first of clusters; one in all sorts of tiles;
    rows apart."""
    found = []
    assert TARGET.gpu is not None
    for layer in asked((*LAYERS, *random_normed(12, seed=5))):
        try:
            step = step_of(layer)
        except ValueError:
            # All channels of 64 positions, and a slab of their halo: a T4 has no room for some.
            if TARGET.gpu.shared_memory > 100 << 10:
                raise
            continue
        legal = FAMILY.candidates(step.problem, TARGET)[0]
        clusters = [each for each in legal if tile_of(each).parts > 1]
        shares = [None, *(pair[0] for pair in step.may_share)]
        for candidate in dict.fromkeys((legal[0], legal[len(legal) // 2], *clusters[:1])):
            found += [Trial(layer, step, candidate, shared) for shared in shares]
    step = step_of(FORM)
    shape = shape_of(parts(step.problem)[0])
    legal_tiles = [tile for tile in band_tiles(shape) if tile.refuse(shape, TARGET.gpu) is None]
    found += [Trial(FORM, step, Candidate("grouped", tile.parameters)) for tile in legal_tiles[::9]]
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + 8) for t in found[:4]]
