"""Pairs of products in one kernel, or of a convolution and a pooling: the layers of both, one behind the other, and
trials of what computes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from families_harness import Input, Layer, values_of
from gpu_asked import asked
from gpu_harness import TARGET, Trial
from kernel_tiles import candidate_of

from bolt_build.families.base import ProposedStep
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import WgmmaTile
from bolt_build.families.cutlass.kinds.warpgroups.wgmma_chain import WgmmaChainTile
from bolt_build.families.cutlass.kinds.warps.thin_chain import ThinChainTile
from bolt_build.families.cutlass.kinds.warps.warp import WarpTile
from bolt_build.families.cutlass.kinds.warps.warp_chain import WarpChainTile
from bolt_build.families.cutlass.kinds.windows.resident_chain import ResidentChainTile
from bolt_build.families.cutlass.product_chain import ChainTile
from bolt_build.graph.ir import Constant, Graph, Node, TensorType, Value, graph_of
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.products.chain import Chain

FAMILY = Cutlass()


def pair(first: Layer, second: Layer) -> Layer:
    """Both layers as one; input 0 of the second is what the first leaves. Raises ValueError where it is not."""
    count = len(first.inputs)
    stages = {stage.operand for stage in first.epilogue}
    types = [TensorType(given.dtype, given.shape) for at, given in enumerate(first.inputs) if at not in stages]
    (between,) = first.op.infer(types)
    if between.shape != second.inputs[0].shape:
        raise ValueError(f"{first.label} leaves {list(between.shape)}, {second.label} reads {second.inputs[0].shape}")
    epilogue = tuple(
        stage if stage.operand is None else replace(stage, operand=stage.operand + count - 1)
        for stage in second.epilogue
    )
    op = Chain(first.op, count, first.epilogue, second.op)
    label, inputs = f"{first.label}+{second.label}", (*first.inputs, *second.inputs[1:])
    return Layer(label, op, inputs, epilogue, first.precision, first.tolerance)


def pooling(x: Layer, window: int, op: Pool | None = None) -> Layer:
    """A convolution and the pooling of maxima behind it: of two by two positions, three by three, or `op`."""
    (output,) = x.op.infer([TensorType(given.dtype, given.shape) for given in x.inputs])
    pad = (window - 2,) * 2
    behind = op or Pool("max", (window, window), (2, 2), pad, pad, (1, 1))
    return pair(x, Layer(f"max{window}", behind, (Input(output.shape),), (), x.precision, x.tolerance))


def steps_of(layer: Layer) -> list[ProposedStep]:
    """The steps that the family proposes for both products in one kernel, one for each format that it reads."""
    graph, first = graph_of_both(layer)
    found = FAMILY.propose(graph, first, TARGET, layer.precision)[0]
    return [replace(each.steps[0], outputs=("y",)) for each in found if each.apart]


def ranked(layer: Layer, *, warpgroups: bool, count: int = 1) -> list[Trial]:
    """In each format the first of those candidates that use WGMMA, or mma; with every sharing
    of memory. Raises ValueError where there is none."""
    if not asked([layer]):
        return []
    found = []
    for step in steps_of(layer):
        candidates = FAMILY.candidates(step.problem, TARGET)[0]
        kind = [c for c in candidates if ("warpgroups" if warpgroups else "through") in dict(c.parameters)]
        found += [trial for each in kind[:count] for trial in _shared(Trial(layer, step, each))]
    if not found:
        raise ValueError(f"{layer.label} has no such pair")
    return found


def with_pair_tiles(layer: Layer, tiles: Sequence[ChainTile]) -> list[Trial]:
    """The layer with each tile, whether it suits the layer or not."""
    if not asked([layer]):
        return []
    step = steps_of(layer)[0]
    return [trial for tile in tiles for trial in _shared(Trial(layer, step, candidate_of(tile)))]


def with_pooled_tiles(layer: Layer, shapes: Sequence[tuple[int, int]]) -> list[Trial]:
    """The layer in each format that it reads, with each tile of so many rows and columns. Raises ValueError where one
    has no kernel."""
    found = []
    for step in steps_of(layer) if asked([layer]) else ():
        legal = {
            (dict(c.parameters)["rows"], dict(c.parameters)["width"]): c
            for c in FAMILY.candidates(step.problem, TARGET)[0]
        }
        if missing := [shape for shape in shapes if shape not in legal]:
            raise ValueError(f"{layer.label} has no pooled tiles {missing}")
        found += [Trial(layer, step, legal[shape]) for shape in shapes]
    return found


def warpgroups(m: int, n0: int, n1: int, k: int, *, together: bool) -> WgmmaChainTile:
    return WgmmaChainTile(WgmmaTile(m, n0, k, together), n1)


def registers(m: int, n0: int, n1: int, k: int, warp_m: int) -> WarpChainTile:
    """Warps as wide as the tiles."""
    return WarpChainTile(WarpTile(m, n0, k, warp_m, n0, 3), n1, n1, shared=False)


def shared(m: int, n0: int, n1: int, k: int, warps: tuple[int, int, int]) -> WarpChainTile:
    """`warps`: rows, and columns in either product."""
    return WarpChainTile(WarpTile(m, n0, k, warps[0], warps[1], 3), n1, warps[2], shared=True)


def resident_pairs(n1: int, steps: int, *rows: int) -> tuple[ResidentChainTile, ...]:
    """Tiles of so many rows each, whose first weights stay in registers."""
    return tuple(ResidentChainTile(r, steps, n1) for r in rows)


def thin(k: int, n0: int, n1: int, *forms: tuple[int, int]) -> tuple[ThinChainTile, ...]:
    """Tiles of exactly these columns, one for each rows of a warp and warps of a block."""
    return tuple(ThinChainTile(k, n0, n1, rows, warps) for rows, warps in forms)


def _shared(trial: Trial) -> list[Trial]:
    return [trial, *(replace(trial, shared=index) for index, _ in trial.step.may_share)]


def graph_of_both(layer: Layer) -> tuple[Graph, Node]:
    """The two nodes that the layer stands for."""
    op = layer.op
    assert isinstance(op, Chain)
    names = tuple(f"x{index}" for index in range(len(layer.inputs)))
    types = [TensorType(given.dtype, given.shape) for given in layer.inputs]
    operands = {stage.operand for stage in layer.epilogue}
    own = [t for index, t in enumerate(types) if index not in operands]
    (output,) = op.infer(own)
    values = [
        Value(name, t, Constant(array) if given.constant else None)
        for name, t, given, array in zip(names, types, layer.inputs, values_of(layer), strict=True)
    ]
    first = Node("first", op.first, names[: op.operands], ("between",), op.between)
    epilogue = tuple(
        stage if stage.operand is None else replace(stage, operand=stage.operand - op.operands + 1)
        for stage in layer.epilogue
    )
    second = Node("second", op.second, ("between", *names[op.operands :]), ("y",), epilogue)
    values += [Value("between", op.inner(own)), Value("y", output)]
    inputs = [name for name, given in zip(names, layer.inputs, strict=True) if not given.constant]
    return graph_of("two", layer.inputs[0].shape[0], inputs, ["y"], values, [first, second]), first
