"""Kernels for a depthwise convolution and the product of single positions behind it, or for the one in front of it,
with the means of what is left or without, or for both: what the family asks of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

from bolt_build.families.base import (
    Candidate,
    Expense,
    KernelProblem,
    KernelUnit,
    Operand,
    Refusal,
    StepCode,
    StepExpressions,
)
from bolt_build.families.common import stated
from bolt_build.families.common.chains import parts
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.epilogue import chain as stages_of
from bolt_build.families.common.epilogue import refuse_stages
from bolt_build.families.common.means import averages
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.tensor_cores import refuse_target
from bolt_build.families.common.text_form import Reader
from bolt_build.families.common.units import named_unit
from bolt_build.families.grouped import means
from bolt_build.families.grouped.epilogue import epilogue_type
from bolt_build.families.grouped.kind import FAMILY, Offer, Sums, between_rows, gpu_of
from bolt_build.families.grouped.neighbours.chain_tile import OCTET, STEP, ChainShape, ChainTile, chain_tiles, tall
from bolt_build.families.grouped.neighbours.inverted_strips_tile import InvertedStripsTile, inverted_strips_tiles
from bolt_build.families.grouped.neighbours.inverted_tile import (
    ExpandedTile,
    InvertedTile,
    expanded_tiles,
    inverted_tiles,
)
from bolt_build.families.grouped.neighbours.quads_tile import QuadsTile, quads_tiles
from bolt_build.families.grouped.neighbours.strips_tile import StripsTile, strips_tiles
from bolt_build.families.grouped.neighbours.turned_tile import TurnedTile, turned_tiles
from bolt_build.families.grouped.shape import SPACE, aligned, epilogue_operations, refuse, refuse_tensors, shape_of
from bolt_build.families.grouped.sort import fastest
from bolt_build.families.reason import Reason, within
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.products.chain import Averaged, Chain
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.targets import Target

_TRANSCENDENTAL = 11
"""Operations that a power of two and a reciprocal count as where all warps of a block compute them at once."""
_SILU = 6
"""The same of SiLU where a tangent is one instruction: fitted to seven times of an H200."""
_MEMORY_MB = 500


def serves(problem: KernelProblem) -> bool:
    """True for problems of a convolution with groups and another one behind it, and of those with one in front, whose
    means may be taken as well."""
    op = problem.op.first if isinstance(problem.op, Averaged) else problem.op
    if not isinstance(op, Chain):
        return False
    ops = [member.op for member in op.sequence]
    groups = [op.groups for op in ops if isinstance(op, Conv)]
    if len(groups) != len(ops) or len(ops) not in (2, 3):
        return False
    grouped = [count > 1 for count in groups]
    if op is not problem.op:
        return grouped == [False, True]
    return grouped in ([False, True], [True, False], [False, True, False])


@dataclass(frozen=True)
class Around:
    """A depthwise convolution's problem, and those of the products in front of it and behind it, if there are any."""

    conv: KernelProblem
    front: KernelProblem | None = None
    behind: KernelProblem | None = None

    @property
    def problems(self) -> tuple[KernelProblem, ...]:
        """In their order."""
        return tuple(each for each in (self.front, self.conv, self.behind) if each is not None)


def around(problem: KernelProblem) -> Around:
    """The parts of a problem that is `serves`d."""
    found = [each for each in parts(problem) if isinstance(each.op, Conv)]
    at = next(index for index, each in enumerate(found) if isinstance(each.op, Conv) and each.op.groups > 1)
    return Around(found[at], found[0] if at else None, found[at + 1] if at + 1 < len(found) else None)


def refuse_chain(problem: KernelProblem) -> str | None:
    """A reason why no kernel computes the chain, whatever its tile."""
    found = around(problem)
    if (reason := refuse(found.conv)) is not None:
        return within("the convolution", reason)
    given, made = shape_of(found.conv).of_group
    if (given, made) != (1, 1):
        return Reason("keeps results of single channels in registers, here groups have {} to {}", given, made)
    for before in (found.front, found.conv):
        stages = () if before is None else before.epilogue
        if any(not isinstance(stage.op, Activation) for stage in stages):
            return "another tensor joins in between" if found.behind else "another tensor joins behind the convolution"
        if any(isinstance(stage.op, Activation) and stage.op.function == "reciprocal" for stage in stages):
            return "the zeros that pad channels have no reciprocal"
    for which, each in (("in front", found.front), ("behind", found.behind)):
        if each is not None and (reason := _refuse_product(each)) is not None:
            return within(f"the product {which}", reason)
    return None if found.behind is None else refuse_stages(found.behind, axis=1)


def _refuse_product(problem: KernelProblem) -> str | None:
    """Why a product of single positions has no place in a chain."""
    op, own = problem.op, op_operands(problem)
    assert isinstance(op, Conv)
    ones = (*problem.inputs[own[1]].shape[2:], *op.strides, op.groups)
    if any(extent != 1 for extent in ones) or any((*op.pads_begin, *op.pads_end)):
        return "it is not 1x1 with a stride of one, without padding and without groups"
    if (reason := refuse_tensors(problem)) is not None:
        return reason
    return _refuse_types(problem.inputs)


def _refuse_types(inputs: tuple[Operand, ...]) -> str | None:
    strange = next((each.format.dtype.value for each in inputs if each.format.dtype not in COMPUTED), None)
    known = ", ".join(each.value for each in COMPUTED)
    return None if strange is None else f"computes with {known}, not with {strange}"


def _refuse(problem: KernelProblem, target: Target) -> str | None:
    return refuse_target(problem, target) or refuse_chain(problem) or means.refuse(problem)


def chain_shape(problem: KernelProblem, target: Target | None = None) -> ChainShape:
    """The shape of a problem that `refuse_chain` does not refuse; operations of epilogues are those of the target."""
    found, x = around(problem), problem.inputs[0]
    shape = shape_of(found.conv)
    epilogue = min(shape.epilogue, _SILU) if _is_tangent(found.conv, target) else shape.epilogue
    shape = replace(shape, nbytes=problem.nbytes, input_bytes=x.nbytes, epilogue=epilogue)
    results = 0 if found.behind is None else found.behind.outputs[0].shape[1]
    if found.front is None:
        return ChainShape(shape, results)
    before = _SILU if _is_tangent(found.front, target) else epilogue_operations(found.front, _TRANSCENDENTAL)
    return ChainShape(shape, results, x.shape[1], before)


def _is_tangent(problem: KernelProblem, target: Target | None) -> bool:
    """Whether SiLU is all that follows, for which Hopper has an instruction."""
    stages = [stage.op.function for stage in problem.epilogue if isinstance(stage.op, Activation)]
    hopper = target is not None and gpu_of(target).warpgroup_mma
    return hopper and stages == ["silu"] and len(problem.epilogue) == 1


Tile = ChainTile | InvertedTile | ExpandedTile | StripsTile | InvertedStripsTile | QuadsTile | TurnedTile
_KINDS: dict[object, Callable[[Reader], Tile]] = {
    "inverted": InvertedTile.read, "expanded": ExpandedTile.read, "strips": StripsTile.read,
    "inverted_strips": InvertedStripsTile.read, "quads": QuadsTile.read,
    "turned": TurnedTile.read,
}  # fmt: skip


def tiles(chain: ChainShape) -> tuple[Tile, ...]:
    """The tiles that may be some for a chain, in the order in which they are tried."""
    if not chain.given:
        return tuple(chain_tiles(chain))
    if chain.results:
        return (*inverted_tiles(chain), *inverted_strips_tiles(chain))
    return (*expanded_tiles(chain), *strips_tiles(chain), *quads_tiles(chain), *turned_tiles(chain))


@functools.lru_cache(maxsize=64)
def _some(chain: ChainShape) -> frozenset[Tile]:
    """The same to look one up in: each candidate of a lock or a record is asked about."""
    return frozenset(tiles(chain))


def tile_of(candidate: Candidate) -> Tile:
    """The tile that a candidate states. Raises ValueError for one of another kind."""
    return stated.tile_of(candidate, _KINDS.get(dict(candidate.parameters).get("kind"), ChainTile.read))


@functools.lru_cache(maxsize=256)
def _offers(chain: ChainShape, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
    """Layers repeat: it is remembered."""
    return fastest(tiles(chain), chain, target)


def candidates(problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
    """`Family.candidates`."""
    if (reason := _refuse(problem, target)) is not None:
        return (), (Refusal(FAMILY, problem.op.kind, reason),)
    return (_offers_with_means if averages(problem) else _offers)(chain_shape(problem, target), target)


@functools.lru_cache(maxsize=256)
def _offers_with_means(chain: ChainShape, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
    """The same with the means of what is left, remembered too."""
    found, illegal = _offers(chain, target)
    summed = (
        means.Summed(Offer(tile_of(conv).seconds(chain, target), conv), _sums(tile_of(conv), chain)) for conv in found
    )
    first, others, without = means.in_ways(summed, chain.conv, target)
    return tuple(offer.candidate for offer in (*first, *others)), (*illegal, *without)


def _sums(tile: Tile, chain: ChainShape) -> Sums:
    sums = tile.sums(chain)
    assert sums is not None, "a product behind a convolution reads what means would be of"
    return sums


def _read(problem: KernelProblem, candidate: Candidate) -> tuple[Tile, str]:
    """The candidate's tile, and the way of `means.WAYS`. Raises ValueError."""
    conv, way = means.split(candidate) if averages(problem) else (candidate, means.SECOND)
    return tile_of(conv), way


def predict(problem: KernelProblem, candidate: Candidate, target: Target) -> float:
    """`Family.predict`."""
    (tile, way), chain = _read(problem, candidate), chain_shape(problem, target)
    sums = tile.sums(chain) if averages(problem) else None
    alone = tile.seconds(chain, target)
    return alone if sums is None else means.seconds(alone, chain.conv, sums, way, 1, target)


def refuse_candidate(problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
    """`Family.refuse`."""
    if (reason := _refuse(problem, target)) is not None:
        return reason
    chain = chain_shape(problem, target)
    readable = stated.is_read(lambda each: _read(problem, each), candidate)
    if not readable or _read(problem, candidate)[0] not in _some(chain) or candidate.settings:
        return f"{candidate} is none of its candidates"
    if (reason := _read(problem, candidate)[0].refuse(chain, gpu_of(target))) is not None:
        return reason
    if not averages(problem):
        return None
    tile, way = _read(problem, candidate)
    return means.refuse_way(_sums(tile, chain), way, 1, gpu_of(target))


def expense(problem: KernelProblem, candidate: Candidate | None) -> Expense:
    """`Family.expense`: with the zeros beside diagonals, and what neighbours compute as well."""
    if candidate is None:
        return Expense(problem.nbytes, problem.flops)
    flops = max(problem.flops, _read(problem, candidate)[0].flops(chain_shape(problem)))
    return Expense(problem.nbytes, flops, f"diagonal matrices: from {problem.flops} operations to {flops}")


def emit(problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
    """`Family.emit`."""
    found, (tile, way), chain = around(problem), _read(problem, candidate), chain_shape(problem)
    shape, depth = chain.conv, aligned(chain.conv.channels, tile.slab)
    expressions = _of_parts(found.problems, at)
    of_conv = expressions[0 if found.front is None else 1]
    columns = struct(
        f"{SPACE}::Columns",
        channels=shape.channels, rows=shape.kernel[0], columns=shape.kernel[1], tall=tall(shape), to_channels=depth,
    )  # fmt: skip
    own = {**shape.arguments, "channels": problem.inputs[0].shape[1], "out_channels": problem.outputs[0].shape[1]}
    arguments = struct(
        f"{SPACE}::ChainArguments",
        conv=struct(f"{SPACE}::Arguments", **own, run=_run(tile), **between_rows(at)),
        parts=tile.parts,
    )
    text, types = [arguments], [tile.cxx(chain)]
    if found.front is not None:
        text = [struct(f"{SPACE}::InvertedArguments", chain=arguments, expanded=shape.channels)]
        text += [*_product(found.front, expressions[0], depth), str(depth), stages_of(found.front, expressions[0])]
        types.append(epilogue_type(found.front))
    indices = op_operands(found.conv)
    text += [constant(found.conv, of_conv, indices[1]), columns, constant(found.conv, of_conv, *indices[2:])]
    text += [str(depth), stages_of(found.conv, of_conv)]
    types.append(epilogue_type(found.conv))
    inputs = [at.inputs[0], at.outputs[0]]
    if found.behind is not None:
        constants, after = _behind(found.behind, expressions[-1], OCTET * tile.n(chain) * tile.parts)
        text += constants
        inputs.append(after)
    kernel = "ExpandedConv" if found.behind is None else "ChainedConv" if found.front is None else "InvertedResidual"
    header, member, counts = "chained", f"{SPACE}::{kernel}<{', '.join(types)}>", False
    sums = tile.sums(chain) if averages(problem) else None
    if sums is not None:
        header, member, counts = "averaged", means.member_type("Expanded", types, way), means.counts(sums, way, 1)
        text = [*means.member_arguments(shape, sums, way, 1), *text]
        inputs.append(at.outputs[1])
    call = f"kernel.run(r, {', '.join(inputs)});"
    declared = (f"bolt_grouped/{tile.kind}.h",) if isinstance(tile, QuadsTile | TurnedTile) else ()
    return StepCode((f"bolt_grouped/{header}.h", *declared), member, ", ".join(text), call, counts)


def _run(tile: Tile) -> int:
    """What the kernel's arguments say of it: rows of results of a tile in strips, or by quads."""
    return tile.rows if isinstance(tile, StripsTile | QuadsTile) else 1


def _behind(problem: KernelProblem, at: StepExpressions, results: int) -> tuple[list[str], str]:
    """Constants of the product behind the convolution, of so many results, and the epilogue that follows it."""
    kept = [stage.operand for stage in problem.epilogue if stage.operand is not None]
    kept = [index for index in dict.fromkeys(kept) if problem.inputs[index].constant]
    inputs = list(at.inputs)
    for number, index in enumerate(kept):
        inputs[index] = f"kernel.constant({number})"
    constants = [*_product(problem, at, results), str(results), *(constant(problem, at, index) for index in kept)]
    return constants, stages_of(problem, replace(at, inputs=tuple(inputs)))


def _of_parts(found: tuple[KernelProblem, ...], at: StepExpressions) -> list[StepExpressions]:
    """The expressions of each part's inputs; what lies between has no memory."""
    expressions, begin = [], 0
    for index, part in enumerate(found):
        end = begin + len(part.inputs) - (index > 0)
        inputs, prepare = at.inputs[begin:end], at.prepare_inputs[begin:end]
        if index > 0:
            inputs, prepare = ("nullptr", *inputs), (None, *prepare)
        expressions.append(StepExpressions(inputs, at.outputs, prepare, at.pitches))
        begin = end
    return expressions


def _product(problem: KernelProblem, at: StepExpressions, results: int) -> tuple[str, ...]:
    """Weights, their layout of so many results, and the bias."""
    own = op_operands(problem)
    made, given = problem.inputs[own[1]].shape[:2]
    layout = struct(
        f"{SPACE}::Fragments",
        groups=1, joined=1, in_each=given, out_each=made, taps=1, to_units=1, to_tiles=results // 8, instruction=STEP,
    )  # fmt: skip
    return constant(problem, at, own[1]), layout, constant(problem, at, *own[2:])


def constant(problem: KernelProblem, at: StepExpressions, *index: int) -> str:
    """A `Constant`: its expression names it, which is the same in every plan of a model; an empty one without index."""
    if not index:
        return f'{SPACE}::Constant{{nullptr, "", 0}}'
    expression = at.prepare_inputs[index[0]]
    return f'{SPACE}::Constant{{{expression}, "{expression}", {problem.inputs[index[0]].nbytes}}}'


def unit(problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
    """What instantiates the kernel."""
    found, chain = around(problem), chain_shape(problem)
    header = "expanded" if found.behind is None else "chain" if found.front is None else "inverted"
    arguments = "ChainArguments" if found.front is None else "InvertedArguments"
    tile, way = _read(problem, candidate)
    header = tile.kind if isinstance(tile, StripsTile | InvertedStripsTile | QuadsTile | TurnedTile) else header
    tile_type = means.tile_type(tile.cxx(chain), way) if averages(problem) else tile.cxx(chain)
    types = [tile_type, f"const {SPACE}::{arguments}&"]
    types += [*(f"const {epilogue_type(each)}&" for each in found.problems), "void*"]
    signature = ",\n    ".join(types)
    text = (
        f'#include "bolt_grouped/{header}_kernel.h"\n{means.includes(way)}\n'
        f"template void {SPACE}::launch_chain(\n    {signature});\n"
    )
    return named_unit(text, _MEMORY_MB)
