"""Kernels for a depthwise convolution and the product of single positions behind it, or for the one in front of it as
well: what the family asks of them."""

from __future__ import annotations

import functools
from dataclasses import replace
from math import prod

from bolt_build.digest import digest
from bolt_build.dtypes import DType
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
from bolt_build.families.common.element_types import COMPUTED, HALVES
from bolt_build.families.common.epilogue import chain as stages_of
from bolt_build.families.common.epilogue import refuse_stages
from bolt_build.families.common.problems import op_operands
from bolt_build.families.grouped.chain_tile import STEP, ChainShape, ChainTile, chain_tiles, tall
from bolt_build.families.grouped.epilogue import epilogue_type
from bolt_build.families.grouped.inverted_tile import InvertedTile, inverted_tiles
from bolt_build.families.grouped.kind import FAMILY, Offer, gpu_of
from bolt_build.families.grouped.shape import SPACE, aligned, epilogue_operations, refuse, shape_of
from bolt_build.families.reason import Reason, within
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.activation import Activation
from bolt_build.graph.ops.chain import Averaged, Chain
from bolt_build.graph.ops.conv import Conv
from bolt_build.targets import Target

_MEMORY_MB = 500
_MOST = 24
"""So many candidates are offered: those that are predicted to be fastest."""


def serves(problem: KernelProblem) -> bool:
    """True for problems of a convolution with groups and another one behind it, and of those with one in front."""
    if not isinstance(problem.op, Chain) or isinstance(problem.op, Averaged):
        return False
    ops = [member.op for member in problem.op.sequence]
    groups = [op.groups for op in ops if isinstance(op, Conv)]
    return len(ops) == len(groups) in (2, 3) and groups[-2] > 1


def refuse_chain(problem: KernelProblem) -> str | None:
    """A reason why no kernel computes the chain, whatever its tile."""
    *in_front, conv, last = parts(problem)
    if (reason := refuse(conv)) is not None:
        return within("the convolution", reason)
    given, made = shape_of(conv).of_group
    if (given, made) != (1, 1):
        return Reason("keeps results of single channels in registers, here groups have {} to {}", given, made)
    for before in (*in_front, conv):
        if any(not isinstance(stage.op, Activation) for stage in before.epilogue):
            return "another tensor joins in between"
        if any(isinstance(stage.op, Activation) and stage.op.function == "reciprocal" for stage in before.epilogue):
            return "the zeros that pad channels have no reciprocal"
    for which, each in (*(("in front", each) for each in in_front), ("behind", last)):
        if (reason := _refuse_product(each)) is not None:
            return within(f"the product {which}", reason)
    return refuse_stages(last, axis=1)


def _refuse_product(problem: KernelProblem) -> str | None:
    """Why a product of single positions has no place in a chain."""
    op, own = problem.op, op_operands(problem)
    assert isinstance(op, Conv)
    x, weights, y = problem.inputs[own[0]], problem.inputs[own[1]], problem.outputs[0]
    ones = (*weights.shape[2:], *op.strides, op.groups)
    if any(extent != 1 for extent in ones) or any((*op.pads_begin, *op.pads_end)):
        return "it is not 1x1 with a stride of one, without padding and without groups"
    if not all(problem.inputs[index].constant for index in own[1:]):
        return "weights and bias must be constants, to be packed when the engine loads"
    for operand in (x, weights, y):
        if operand.format.dtype not in HALVES:
            return f"takes tensors in f16 or bf16, not in {operand.format.dtype.value}"
        if operand.format.dtype is not y.format.dtype:
            return f"stores {y.format.dtype.value} where it reads that, not {operand.format.dtype.value}"
    if x.format.layout is not Layout.CHANNELS_LAST or y.format.layout is not Layout.CHANNELS_LAST:
        return "reads and writes channels-last tensors alone"
    if (largest := max(prod(operand.shape) for operand in (x, y))) >= 1 << 31:
        return Reason("a tensor of {} elements is beyond the reach of 32-bit indices", largest)
    return _refuse_types(problem.inputs)


def _refuse_types(inputs: tuple[Operand, ...]) -> str | None:
    strange = next((each.format.dtype.value for each in inputs if each.format.dtype not in COMPUTED), None)
    known = ", ".join(each.value for each in COMPUTED)
    return None if strange is None else f"computes with {known}, not with {strange}"


def _refuse(problem: KernelProblem, target: Target) -> str | None:
    if target.gpu is None or target.gpu.instruction("fp16") is None:
        return f"target '{target.name}' has no tensor cores"
    if problem.outputs[0].format.dtype is DType.BF16 and target.gpu.instruction("bf16") is None:
        return f"tensor cores of target '{target.name}' have no bf16"
    return refuse_chain(problem)


def chain_shape(problem: KernelProblem) -> ChainShape:
    """The shape of a problem that `refuse_chain` does not refuse."""
    *in_front, conv, last = parts(problem)
    x = problem.inputs[0]
    shape = replace(shape_of(conv), nbytes=problem.nbytes, input_bytes=x.nbytes)
    before = sum(epilogue_operations(each) for each in in_front)
    return ChainShape(shape, last.outputs[0].shape[1], x.shape[1] if in_front else 0, before)


def tiles(chain: ChainShape) -> tuple[ChainTile | InvertedTile, ...]:
    """The tiles that may be some for a chain."""
    return tuple(inverted_tiles(chain) if chain.given else chain_tiles(chain))


def tile_of(candidate: Candidate) -> ChainTile | InvertedTile:
    """The tile that a candidate states. Raises ValueError for one of another kind."""
    if ("kind", "inverted") in candidate.parameters:
        return stated.tile_of(candidate, InvertedTile.read)
    return stated.tile_of(candidate, ChainTile.read)


@functools.lru_cache(maxsize=256)
def _offers(chain: ChainShape, target: Target) -> tuple[tuple[Offer, ...], tuple[Refusal, ...]]:
    """The fastest tiles by prediction, first one of each extent and then others with the same; and why more are none,
    each reason once. Layers repeat: it is remembered."""
    found, reasons = list[Offer](), dict[str, Refusal]()
    for tile in tiles(chain):
        if (reason := tile.refuse(chain, gpu_of(target))) is None:
            found.append(Offer(tile.seconds(chain, target), Candidate(FAMILY, tile.parameters)))
        else:
            reasons.setdefault(reason, Refusal(FAMILY, f"tile {tile}", reason))
    found.sort(key=lambda offer: (offer.seconds, str(offer.candidate)))
    leading: dict[object, Offer] = {}
    for offer in found:
        leading.setdefault(tile_of(offer.candidate).extent, offer)
    rest = (offer for offer in found if offer not in leading.values())
    return (*leading.values(), *rest)[:_MOST], tuple(reasons.values())


def candidates(problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
    """`Family.candidates`."""
    if (reason := _refuse(problem, target)) is not None:
        return (), (Refusal(FAMILY, problem.op.kind, reason),)
    offers, refusals = _offers(chain_shape(problem), target)
    return tuple(offer.candidate for offer in offers), refusals


def predict(problem: KernelProblem, candidate: Candidate, target: Target) -> float:
    """`Family.predict`."""
    return tile_of(candidate).seconds(chain_shape(problem), target)


def refuse_candidate(problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
    """`Family.refuse`."""
    if (reason := _refuse(problem, target)) is not None:
        return reason
    chain = chain_shape(problem)
    if not stated.is_read(tile_of, candidate) or tile_of(candidate) not in tiles(chain) or candidate.settings:
        return f"{candidate} is none of its candidates"
    return tile_of(candidate).refuse(chain, gpu_of(target))


def expense(problem: KernelProblem, candidate: Candidate | None) -> Expense:
    """`Family.expense`: with the zeros beside diagonals, and what neighbours compute as well."""
    if candidate is None:
        return Expense(problem.nbytes, problem.flops)
    flops = max(problem.flops, tile_of(candidate).flops(chain_shape(problem)))
    return Expense(problem.nbytes, flops, f"diagonal matrices: from {problem.flops} operations to {flops}")


def emit(problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
    """`Family.emit`."""
    *in_front, conv, last = parts(problem)
    tile, chain = tile_of(candidate), chain_shape(problem)
    shape, count = chain.conv, tile.n(chain) * tile.parts
    depth = aligned(shape.channels, tile.slab)
    expressions = _of_parts((*in_front, conv, last), at)
    columns = struct(
        f"{SPACE}::Columns",
        channels=shape.channels, rows=shape.kernel[0], columns=shape.kernel[1], tall=tall(shape), to_channels=depth,
    )  # fmt: skip
    pitch = {"y_row": at.pitch(0)} if at.pitch(0) else {}
    own = {**shape.arguments, "channels": chain.given or shape.channels, "out_channels": chain.results}
    arguments = struct(
        f"{SPACE}::ChainArguments", conv=struct(f"{SPACE}::Arguments", **own, run=1, **pitch), parts=tile.parts
    )
    of_first: list[str] = []
    kernel, types = "ChainedConv", [tile.cxx(chain), epilogue_type(conv)]
    if in_front:
        arguments = struct(f"{SPACE}::InvertedArguments", chain=arguments, expanded=shape.channels)
        of_first = [*_product(in_front[0], expressions[0], depth), str(depth), stages_of(in_front[0], expressions[0])]
        kernel, types = "InvertedResidual", [types[0], epilogue_type(in_front[0]), types[1]]
    kept = [stage.operand for stage in last.epilogue if stage.operand is not None]
    kept = [index for index in dict.fromkeys(kept) if last.inputs[index].constant]
    of_conv, behind = expressions[-2], expressions[-1]
    indices = op_operands(conv)
    text = (
        arguments, *of_first, constant(conv, of_conv, indices[1]), columns, constant(conv, of_conv, *indices[2:]),
        str(depth), stages_of(conv, of_conv), *_product(last, behind, 8 * count), str(8 * count),
        *(constant(last, behind, index) for index in kept),
    )  # fmt: skip
    inputs = list(behind.inputs)
    for number, index in enumerate(kept):
        inputs[index] = f"kernel.constant({number})"
    after = stages_of(last, replace(behind, inputs=tuple(inputs)))
    call = f"kernel.run(r, {at.inputs[0]}, {at.outputs[0]}, {after});"
    return StepCode(("bolt_grouped/chained.h",), f"{SPACE}::{kernel}<{', '.join(types)}>", ", ".join(text), call)


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


def unit(problem: KernelProblem, candidate: Candidate) -> KernelUnit:
    """What instantiates the kernel."""
    found, chain = parts(problem), chain_shape(problem)
    kind = "Inverted" if len(found) > 2 else "Chain"
    types = [tile_of(candidate).cxx(chain), f"const {SPACE}::{kind}Arguments&"]
    types += [*(f"const {epilogue_type(each)}&" for each in found), "void*"]
    signature = ",\n    ".join(types)
    text = (
        f'#include "bolt_grouped/{kind.lower()}_kernel.h"\n\ntemplate void {SPACE}::launch_chain(\n    {signature});\n'
    )
    return KernelUnit(f"k_{digest(text)[:16]}.cu", text, _MEMORY_MB)
