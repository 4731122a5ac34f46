"""Depthwise convolutions with the products around them in one kernel: windows, strides, dilations, odd channels and
extents, and every way in which tiles differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from families_harness import Layer, values_of
from families_layers import CLIP, RELU, stage
from gpu_asked import asked
from gpu_averages import in_ways
from gpu_grouped_layers import FAMILY, NO_PADS
from gpu_harness import TARGET, Trial
from gpu_pairs import pair
from gpu_products import RESIDUAL, SILU, conv

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, ProposedStep
from bolt_build.families.common.chains import averaged
from bolt_build.families.common.means import LAST
from bolt_build.families.grouped.means import CLUSTER, SECOND, joined
from bolt_build.families.grouped.neighbours.chain import Tile, chain_shape, tiles
from bolt_build.families.grouped.neighbours.inverted_strips_tile import InvertedStripsTile
from bolt_build.families.grouped.neighbours.quads_tile import QuadsTile
from bolt_build.families.grouped.neighbours.strips_tile import StripsTile
from bolt_build.graph.ir import Constant, EpilogueOp, Graph, Node, TensorType, Value, graph_of
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.products.chain import Chain

ADDED = (stage("add", 3),)


def depthwise(
    label: str, x: tuple[int, ...], filters: int, kernel: int = 3, stride: int = 1,
    behind: tuple[EpilogueOp, ...] = (), *, dilation: int = 1, epilogue: tuple[EpilogueOp, ...] = (CLIP,),
    bias: bool = True, pads: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
) -> Layer:  # fmt: skip
    """A depthwise convolution and a 1x1 convolution behind it."""
    first = conv(label, x, x[1], (kernel,) * (len(x) - 2), stride, pads, dilation, x[1], epilogue=epilogue, bias=bias)
    own = first.inputs[: 3 if bias else 2]
    (output,) = first.op.infer([TensorType(DType.F16, given.shape) for given in own])
    return pair(first, conv(f"{filters}", output.shape, filters, (1,) * (len(x) - 2), epilogue=behind, bias=bias))


LAYERS = [
    depthwise("chain-3x3", (2, 48, 13, 19), 24),
    depthwise("chain-3x3s2", (2, 96, 17, 15), 24, stride=2),
    depthwise("chain-3x3-residual", (2, 64, 14, 14), 64, behind=ADDED),
    depthwise("chain-3x3d2", (1, 40, 17, 15), 16, dilation=2),
    depthwise("chain-3x3d2s2", (1, 40, 17, 15), 16, stride=2, dilation=2),
    depthwise("chain-3x3s3", (1, 40, 17, 15), 16, stride=3),
    depthwise("chain-5x5-silu", (1, 72, 15, 17), 40, 5, epilogue=SILU, behind=RESIDUAL),
    depthwise("chain-5x5s2", (1, 72, 15, 17), 40, 5, 2),
    depthwise("chain-7x7", (1, 24, 15, 17), 96, 7, behind=SILU),
    depthwise("chain-11x11", (1, 16, 14, 13), 16, 11),
    depthwise("chain-2x2-valid", (2, 32, 9, 11), 32, 2, pads=NO_PADS),
    depthwise("chain-1x1", (2, 32, 9, 11), 32, 1),
    depthwise("chain-deep", (1, 240, 7, 7), 160, behind=ADDED),
    depthwise("chain-wide", (1, 32, 9, 9), 328),
    depthwise("chain-1d", (2, 24, 50), 24, 5, 2),
    depthwise("chain-no-bias", (2, 64, 9, 11), 40, epilogue=(), bias=False),
    depthwise("chain-hard-swish", (2, 64, 9, 11), 40, epilogue=(EpilogueOp(Activation("hard_swish")),)),
    *(depthwise(f"chain-odd-{c}-{k}", (2, c, 9, 11), k) for c, k in ((3, 5), (12, 20), (33, 7), (66, 31), (18, 10))),
    depthwise("chain-odd-residual", (2, 35, 9, 11), 23, behind=RESIDUAL),
]  # fmt: skip
FORM = depthwise("chain-form", (3, 100, 21, 19), 44, 3, 1, ADDED)


def random_chains(count: int, seed: int) -> list[Layer]:
    """Of any channels, results, extents, windows and steps."""
    random = np.random.default_rng(seed)
    found = []
    for index in range(count):
        channels, filters = (int(value) for value in random.integers(1, 150, 2))
        extents = tuple(int(value) for value in random.integers(5, 24, 2))
        kernel, stride, gap = (int(random.choice(some)) for some in ((3, 3, 5, 2), (1, 2), (1, 1, 2)))
        found.append(
            depthwise(
                f"chain-random-{index}", (int(random.integers(1, 4)), channels, *extents), filters, kernel, stride,
                ((), (RELU,), SILU)[index % 3], dilation=gap, epilogue=(CLIP,) if random.random() < 0.7 else SILU,
                bias=bool(random.random() < 0.8),
            )
        )  # fmt: skip
    return found


def graph_of_all(layer: Layer) -> Graph:
    """The nodes that the layer stands for, one behind the other."""
    names = tuple(f"x{index}" for index in range(len(layer.inputs)))
    types = [TensorType(given.dtype, given.shape) for given in layer.inputs]
    values = [
        Value(name, t, Constant(array) if given.constant else None)
        for name, t, given, array in zip(names, types, layer.inputs, values_of(layer), strict=True)
    ]
    nodes: list[Node] = []
    op, inputs, left, epilogue = layer.op, names, types, layer.epilogue
    while isinstance(op, Chain):
        output = f"y{len(nodes)}"
        nodes.append(Node(f"node{len(nodes)}", op.first, inputs[: op.operands], (output,), op.between))
        inner = op.inner(left)
        values.append(Value(output, inner))
        moved = 1 - op.operands
        epilogue = tuple(e if e.operand is None else replace(e, operand=e.operand + moved) for e in epilogue)
        inputs, left, op = (output, *inputs[op.operands :]), [inner, *left[op.operands :]], op.second
    stages = {stage.operand for stage in epilogue}
    (y,) = op.infer([t for index, t in enumerate(left) if index not in stages])
    nodes.append(Node(f"node{len(nodes)}", op, inputs, ("y",), epilogue))
    given = [name for name, each in zip(names, layer.inputs, strict=True) if not each.constant]
    return graph_of("all", layer.inputs[0].shape[0], given, ["y"], [*values, Value("y", y)], nodes)


def step_of(layer: Layer) -> ProposedStep:
    """The step that computes both. Raises ValueError where none does."""
    graph = graph_of_all(layer)
    found, refusals = FAMILY.propose(graph, graph.nodes[0], TARGET, layer.precision)
    step = next((each.steps[0] for each in found if len(each.region) == len(graph.nodes)), None)
    if step is None:
        raise ValueError(f"{layer.label}: {[each.reason for each in refusals]}")
    return replace(step, outputs=("y",))


def chain_trials() -> list[Trial]:
    """Every layer with the first candidate and one in the middle; one in all sorts of tiles; rows apart."""
    found = []
    for layer in asked((*LAYERS, *random_chains(16, seed=5))):
        step = step_of(layer)
        legal = FAMILY.candidates(step.problem, TARGET)[0]
        shares = [None, *(pair[0] for pair in step.may_share)]
        for candidate in dict.fromkeys((legal[0], legal[len(legal) // 2])):
            found += [Trial(layer, step, candidate, shared) for shared in shares]
    return found + _forms(FORM, 25) + [replace(t, pitch=t.step.problem.outputs[0].row + 8) for t in found[:4]]


def _forms(layer: Layer, every: int) -> list[Trial]:
    """One of so many legal tiles."""
    step = step_of(layer)
    chain = chain_shape(step.problem)
    assert TARGET.gpu is not None
    legal = [tile for tile in tiles(chain) if tile.refuse(chain, TARGET.gpu) is None]
    return [Trial(layer, step, Candidate("grouped", tile.parameters)) for tile in _of_slabs(legal)[::every]]


def _of_slabs(found: list[Tile]) -> list[Tile]:
    """Those that keep slabs of the halo in shared memory."""
    return [tile for tile in found if not isinstance(tile, StripsTile | InvertedStripsTile)]


def _candidates(step: ProposedStep) -> list[Candidate]:
    """The same of what is offered."""
    return [each for each in FAMILY.candidates(step.problem, TARGET)[0] if "strips" not in str(each)]


def inverted(
    label: str, x: tuple[int, ...], between: int, filters: int, kernel: int = 3, stride: int = 1,
    behind: tuple[EpilogueOp, ...] = (), *, epilogue: tuple[EpilogueOp, ...] = (CLIP,), bias: bool = True,
    dilation: int = 1,
) -> Layer:  # fmt: skip
    """A 1x1 convolution in front of both. A residual is an input of its own."""
    first = conv(label, x, between, (1,) * (len(x) - 2), epilogue=epilogue, bias=bias)
    rest = depthwise(
        "", (x[0], between, *x[2:]), filters, kernel, stride, behind, dilation=dilation, epilogue=epilogue, bias=bias
    )
    return replace(pair(first, rest), label=f"{label}+{filters}")


INVERTED = [
    inverted("inverted-3x3", (2, 24, 13, 19), 72, 24, behind=ADDED),
    inverted("inverted-3x3s2", (2, 16, 17, 15), 96, 24, stride=2),
    inverted("inverted-5x5-silu", (1, 40, 15, 17), 120, 40, 5, behind=RESIDUAL, epilogue=SILU),
    inverted("inverted-5x5s2", (1, 40, 15, 17), 80, 48, 5, 2),
    inverted("inverted-deep", (1, 96, 7, 7), 288, 160),
    inverted("inverted-odd", (2, 19, 9, 11), 50, 23, behind=RESIDUAL),
    inverted("inverted-no-bias", (2, 32, 9, 11), 64, 40, epilogue=(), bias=False),
    inverted("inverted-3x3d2", (1, 40, 17, 15), 48, 16, dilation=2),
    inverted("inverted-1d", (2, 24, 50), 48, 24, 5, 2),
]


def expanded(
    label: str, x: tuple[int, ...], filters: int, kernel: int = 3, stride: int = 1, *,
    epilogue: tuple[EpilogueOp, ...] = (CLIP,), bias: bool = True, dilation: int = 1,
    pads: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
) -> Layer:  # fmt: skip
    """A 1x1 convolution and the depthwise one behind it."""
    first = conv(label, x, filters, (1,) * (len(x) - 2), epilogue=epilogue, bias=bias)
    window = (kernel,) * (len(x) - 2)
    behind = conv("", (x[0], filters, *x[2:]), filters, window, stride, pads, dilation, filters, epilogue, bias=bias)
    return replace(pair(first, behind), label=f"{label}+dw")


EXPANDED = [
    expanded("expanded-3x3", (2, 24, 13, 19), 72),
    expanded("expanded-3x3s2", (2, 16, 17, 15), 96, stride=2, epilogue=SILU),
    expanded("expanded-5x5", (1, 40, 15, 17), 120, 5, epilogue=SILU),
    expanded("expanded-deep", (1, 96, 7, 7), 288, 5, 2),
    expanded("expanded-odd", (2, 19, 9, 11), 50),
    expanded("expanded-odd-channels", (2, 12, 9, 11), 37, 3, 2),
    expanded("expanded-no-bias", (2, 32, 9, 11), 64, epilogue=(), bias=False),
    expanded("expanded-3x3d2", (1, 40, 17, 15), 48, dilation=2),
    expanded("expanded-1d", (2, 24, 50), 48, 5, 2),
]
AVERAGED = [EXPANDED[0], EXPANDED[1], EXPANDED[3], EXPANDED[4], EXPANDED[8]]


def averaged_step(layer: Layer) -> tuple[Layer, ProposedStep]:
    """The layer with the means of what it leaves."""
    step = step_of(layer)
    (y,) = step.problem.outputs
    axes = tuple(range(2, len(y.shape)))
    m = Operand((*y.shape[:2], *(1 for _ in axes)), y.format)
    both = averaged(step.problem, KernelProblem(Reduce("mean", axes), (y,), (m,), (), DType.F32, TARGET.name))
    # Sums are those of what is stored.
    whole = replace(layer, label=f"{layer.label}+mean", op=both.op, epilogue=())
    return whole, replace(step, problem=both, outputs=("y", "m"), may_share=())


def averaged_trials() -> list[Trial]:
    """Products and depthwise convolutions that also leave means, in all sorts of tiles; rows apart."""
    found = []
    for layer in AVERAGED:
        whole, step = averaged_step(layer)
        legal = _candidates(step)
        found += [*in_ways(whole, step), Trial(whole, step, legal[len(legal) // 2])]
    whole, step = averaged_step(EXPANDED_FORM)
    legal = _candidates(step)
    found += [Trial(whole, step, candidate) for candidate in legal[::6]]
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + 8) for t in found[:2]]


STRIPS = [
    expanded("strips-3x3", (3, 24, 14, 14), 40),
    expanded("strips-3x3s2", (2, 16, 30, 30), 72, stride=2, epilogue=SILU),
    expanded("strips-5x5", (3, 40, 13, 13), 56, 5, epilogue=SILU),
    expanded("strips-5x5s2-odd", (2, 19, 21, 37), 50, 5, 2),
    expanded("strips-wide", (1, 8, 11, 83), 37, epilogue=(RELU,)),
    expanded("strips-no-bias", (2, 32, 9, 11), 64, epilogue=(), bias=False),
    expanded("strips-out-wider", (2, 16, 14, 32), 40, 3, epilogue=(RELU,), pads=((1, 2), (1, 2))),
    expanded("strips-2x2", (2, 32, 10, 12), 32, 2, epilogue=(RELU,)),
    expanded("strips-of-zeros", (2, 24, 11, 19), 48, 5, epilogue=(EpilogueOp(Activation("sigmoid")),)),
]


def strips_trials() -> list[Trial]:
    """Strips of all widths, with the means of what they leave or without; rows apart."""
    found = []
    for layer in STRIPS:
        step = step_of(layer)
        chain = chain_shape(step.problem)
        strips = [tile for tile in tiles(chain) if isinstance(tile, StripsTile)]
        # Powers of two and sevens, and other widths.
        plain = [tile for tile in strips if tile.width in (1, 2, 4, 7, 8, 14)]
        sorts = (plain, [tile for tile in strips if tile not in plain])
        # Of the ways in which means are made, a second kernel has no name.
        for way in (None, SECOND, LAST, CLUSTER):
            whole, of = (layer, step) if way is None else averaged_step(layer)
            if not asked([whole]):
                continue
            for sort in sorts:
                some = [joined(Candidate("grouped", tile.parameters), way or SECOND) for tile in sort]
                some = [each for each in some if FAMILY.refuse(of.problem, each, TARGET) is None]
                middle = some[len(some) // 2 :][:1]
                picked = dict.fromkeys((*some[:1], *middle, *some[-1:]) if sort is plain else middle)
                found += [Trial(whole, of, each, launches=2 if way else 1) for each in picked]
    found += [replace(t, pitch=t.step.problem.outputs[0].row + 8) for t in (*found[:1], *found[-1:])]
    whole, of = averaged_step(LATE)
    late = joined(Candidate("grouped", LATE_TILE.parameters), LAST)
    if asked([whole]) and FAMILY.refuse(of.problem, late, TARGET) is None:
        found.append(Trial(whole, of, late, launches=2))
    return found


QUADS = [
    expanded("quads-3x3", (3, 24, 14, 14), 40),
    expanded("quads-3x3s2", (2, 16, 30, 30), 72, stride=2, epilogue=SILU),
    expanded("quads-5x5", (2, 40, 13, 13), 56, 5, epilogue=SILU),
    expanded("quads-5x5s2-odd", (2, 19, 21, 37), 50, 5, 2),
    expanded("quads-wide", (1, 8, 11, 83), 37, epilogue=(RELU,)),
    expanded("quads-no-bias", (2, 72, 9, 11), 64, epilogue=(), bias=False),
    expanded("quads-out-wider", (2, 16, 14, 32), 40, 3, epilogue=(RELU,), pads=((1, 2), (1, 2))),
    expanded("quads-2x2", (2, 32, 10, 12), 32, 2, epilogue=(RELU,)),
    expanded("quads-of-zeros", (2, 24, 11, 19), 48, 5, epilogue=(EpilogueOp(Activation("sigmoid")),)),
    expanded("quads-of-a-row", (3, 16, 1, 9), 24, 5, epilogue=(RELU,)),
    expanded("quads-deep", (2, 200, 7, 7), 144, 5, epilogue=SILU),
]


def quads_trials() -> list[Trial]:
    """Rows of all widths and products of all heights, with the means of what is left or without; rows apart."""
    found = []
    for place, layer in enumerate(QUADS):
        step = step_of(layer)
        quads = [tile for tile in tiles(chain_shape(step.problem)) if isinstance(tile, QuadsTile)]
        for turn, way in enumerate((None, SECOND, LAST, CLUSTER), 4 * place):
            whole, of = (layer, step) if way is None else averaged_step(layer)
            if not asked([whole]):
                continue
            some = [(tile, joined(Candidate("grouped", tile.parameters), way or SECOND)) for tile in quads]
            some = [each for each in some if FAMILY.refuse(of.problem, each[1], TARGET) is None]
            # Of each width one, other heights of products and other blocks in turn.
            widths = dict.fromkeys(tile.each for tile, _ in some)
            groups = [[candidate for tile, candidate in some if tile.each == width] for width in widths]
            picked = [group[(7 * number + 3 * turn) % len(group)] for number, group in enumerate(groups)]
            found += [Trial(whole, of, each, launches=2 if way else 1) for each in picked[:: 1 if way is None else 3]]
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + 8) for t in (*found[:1], *found[-1:])]


LATE = expanded("strips-2x2s2", (1, 8, 14, 32), 128, 2, 2, epilogue=(RELU,))
LATE_TILE = StripsTile(2, 3, 1, 16, 1, 1)
"""The last tile has one row of results, and no row of it is waited for that only others would be made of."""
EXPANDED_FORM = expanded("expanded-form", (3, 36, 21, 19), 100)
INVERTED_FORM = inverted("inverted-form", (3, 36, 21, 19), 100, 44, 3, 1, ADDED)


INVERTED_STRIPS = [
    inverted("whole-3x3", (2, 24, 9, 21), 40, 24, behind=ADDED),
    inverted("whole-3x3s2", (3, 16, 13, 30), 40, 19, stride=2, epilogue=SILU, behind=(CLIP,)),
    inverted("whole-5x5", (2, 19, 11, 15), 50, 40, 5, epilogue=(RELU,), bias=False),
    inverted("whole-2x2", (1, 40, 8, 12), 136, 8, 2, behind=RESIDUAL),
]


def inverted_strips_trials() -> list[Trial]:
    """Inverted residuals in strips of all sorts, eight channels at once and sixteen; rows apart."""
    found = []
    for layer in asked(INVERTED_STRIPS):
        step = step_of(layer)
        strips = [tile for tile in tiles(chain_shape(step.problem)) if isinstance(tile, InvertedStripsTile)]
        for octets in (1, 2):
            some = [Candidate("grouped", tile.parameters) for tile in strips if tile.octets == octets]
            some = [each for each in some if FAMILY.refuse(step.problem, each, TARGET) is None]
            shares = [None, *(pair[0] for pair in step.may_share)]
            for candidate in dict.fromkeys((*some[:1], *some[len(some) // 2 :][:1], *some[-1:])):
                found += [Trial(layer, step, candidate, shared) for shared in shares]
    return found + [replace(t, pitch=t.step.problem.outputs[0].row + 8) for t in (*found[:1], *found[-1:])]


def inverted_trials() -> list[Trial]:
    """The same with a product in front."""
    found = []
    for layer in asked((*INVERTED, *EXPANDED)):
        step = step_of(layer)
        legal = _candidates(step)
        shares = [None, *(pair[0] for pair in step.may_share)]
        for candidate in dict.fromkeys((legal[0], legal[len(legal) // 2])):
            found += [Trial(layer, step, candidate, shared) for shared in shares]
    return (
        found
        + _forms(INVERTED_FORM, 12)
        + _forms(EXPANDED_FORM, 30)
        + [replace(t, pitch=t.step.problem.outputs[0].row + 8) for t in (*found[:1], *found[-1:])]
    )
