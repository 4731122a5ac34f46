"""How a GPU multiplies both products of a gate in half precision on its tensor cores: weights by eight images, so that
blocks read them once for these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil

from bolt_build.dtypes import PRECISIONS
from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import refuse_shared
from bolt_build.families.common.element_types import COMPUTED, HALVES
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.products.gates import Gate, gate_of
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

WARPS, CLUSTERS, PARTS = (8, 16), (1, 2, 4, 8), (1, 2, 4)
"""Warps of a block, blocks that share the rows of weights of both products, and parts of the second product's rows."""
_IMAGES, _ROWS, _DEPTH, _HELD = 8, 16, 32, 8
"""Of a cluster, of a tile of weights, of a step, and steps of a warp that are under way: the kernel's."""
_SUMS = 4 * _IMAGES * (_ROWS + 4)
"""Bytes of shared memory that the sums of a tile take."""
_MOST_STEPS = 32
"""Of a warp in a product: the compiler writes out all of them."""


@dataclass(frozen=True)
class HalfGateTile(NumberTile):
    """Eight images have `parts` clusters of `cluster` blocks, of `warps` each."""

    warps: int
    cluster: int
    parts: int


@dataclass(frozen=True)
class _Share:
    """How warps share a product: `deep` of them take turns along the depth of a tile of rows. The tiles of a warp, and
    its steps in all."""

    deep: int
    tiles: int
    steps: int


def _share(rows: int, depth: int, warps: int, deepest: int) -> _Share:
    """As few steps a warp as there can be."""
    tiles, steps = ceil(rows / _ROWS), ceil(depth / _DEPTH)
    found = []
    deep = 1
    while deep <= min(2 * steps - 1, warps, deepest):
        own = ceil(tiles / (warps // deep))
        found.append(_Share(deep, own, own * ceil(steps / deep)))
        deep *= 2
    return min(found, key=lambda share: (share.steps, share.deep))


def _shares(gate: Gate, tile: HalfGateTile) -> tuple[_Share, _Share]:
    """Of the first product, whose sums blocks of a cluster exchange, and of the second."""
    warps = tile.warps * tile.cluster
    first = _share(gate.between, gate.channels, warps, warps)
    return first, _share(gate.out, gate.between, warps * tile.parts, tile.warps)


def _shared(gate: Gate, tile: HalfGateTile) -> int:
    """Bytes of shared memory of a block."""
    sums = sum(share.tiles for share in _shares(gate, tile)) * tile.warps * _SUMS
    return sums + 2 * _IMAGES * _DEPTH * (ceil(gate.between / _DEPTH) | 1)


def _gate(problem: KernelProblem) -> Gate:
    gate = gate_of(problem)
    assert gate is not None, "rules refuse what is no gate"
    return gate


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    kind, *others = (operand.format.dtype for operand in _gate(problem).operands[:3])
    if kind not in HALVES or any(other is not kind for other in others):
        return "multiplies weights and inputs that are all in f16, or all in bf16"
    precision = next(name for name, dtype in PRECISIONS.items() if dtype is kind)
    return None if gpu.instruction(precision) is not None else f"the GPU's tensor cores do not multiply {kind.value}"


def _tiles(problem: KernelProblem, gpu: Gpu) -> Iterator[HalfGateTile]:
    """Where no warp of a smaller cluster, or of fewer parts, has one step of either product alone."""
    gate = _gate(problem)
    for warps, cluster, parts in product(WARPS, CLUSTERS, PARTS):
        if cluster > 1 and all(share.steps == 1 for share in _shares(gate, HalfGateTile(warps, cluster // 2, parts))):
            continue
        if parts > 1 and _shares(gate, HalfGateTile(warps, cluster, parts // 2))[1].steps == 1:
            continue
        yield HalfGateTile(warps, cluster, parts)


def _refuse_tile(problem: KernelProblem, tile: HalfGateTile, gpu: Gpu) -> str | None:
    if tile.warps not in WARPS or tile.cluster not in CLUSTERS or tile.parts not in PARTS:
        return "there are kernels of 8 or 16 warps, of 1, 2, 4 or 8 blocks a cluster, and of 1, 2 or 4 clusters"
    if tile.cluster > 1 and not gpu.warpgroup_mma:
        return "blocks form clusters from sm_90 on"
    gate = _gate(problem)
    if (steps := max(share.steps for share in _shares(gate, tile))) > _MOST_STEPS:
        return Reason("a warp has {} steps of a product, at most {} are written out", steps, _MOST_STEPS)
    return refuse_shared(_shared(gate, tile), gpu)


_BEGIN, _WARP, _MEET, _ROUND, _RATE = 2.4e-6, 0.02e-6, 0.5e-6, 0.5e-6, 6.5e10
"""Guesses at seconds of a launch with sums in shared memory, of a warp more, and of an exchange in a cluster; the rest,
seconds of a round of loads and bytes that come to a multiprocessor in a second, is what the plain kernel has."""


def _seconds(problem: KernelProblem, tile: HalfGateTile, target: Target) -> float:
    gpu, gate = target.gpu, _gate(problem)
    assert gpu is not None, "tensor cores are a GPU's"
    first, second = _shares(gate, tile)
    blocks = ceil(gate.images / _IMAGES) * tile.cluster * tile.parts
    step = 2 * _ROWS * _DEPTH
    weights = min(tile.warps * first.steps * step, 2 * gate.between * gate.channels)
    weights += min(tile.warps * second.steps * step, 2 * gate.between * gate.out)
    inputs = 2 * _IMAGES * gate.channels / max(first.deep // tile.warps, 1)
    rounds = ceil(first.steps / _HELD) + ceil(second.steps / _HELD) - 2
    each = _WARP * tile.warps + _ROUND * rounds + (weights + inputs) / _RATE + (_MEET if tile.cluster > 1 else 0.0)
    memory = problem.nbytes / target.bandwidth
    return _BEGIN + max(ceil(blocks / gpu.sms) * each, memory)


def _emit(problem: KernelProblem, tile: HalfGateTile, at: StepExpressions) -> StepCode:
    gate = _gate(problem)
    first, second = _shares(gate, tile)
    numbers = (gate.channels, gate.between, gate.out, tile.warps, tile.cluster, tile.parts, first.deep, second.deep)
    x, _, _, made = gate.operands
    types = f"{COMPUTED[x.format.dtype]}, {COMPUTED[made.format.dtype]}"
    call = (
        f"bolt::portable::half_gate<bolt::portable::HalfGate<{', '.join(map(str, numbers))}>, {types}>(r, "
        f"{gate.images}, {gate.arguments(at)});"
    )
    return StepCode(("bolt_portable/cuda/products/half_gate.h",), None, "", call)


FORM: Form[HalfGateTile] = Form(
    "tensor_cores", lambda problem: gate_of(problem) is not None, _refuse, _tiles, _refuse_tile, _seconds,
    HalfGateTile.read, _emit,
)  # fmt: skip
