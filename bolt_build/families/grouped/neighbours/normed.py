"""Kernels for a depthwise convolution and the normalisation of its results over channels: what the family asks of
them."""

from __future__ import annotations

import functools
from dataclasses import replace
from math import prod

from bolt_build.families.base import Candidate, Expense, KernelProblem, KernelUnit, Refusal, StepCode, StepExpressions
from bolt_build.families.common import stated
from bolt_build.families.common.chains import parts
from bolt_build.families.common.cxx import boolean, literal, struct
from bolt_build.families.common.epilogue import chain as stages_of
from bolt_build.families.common.epilogue import refuse_stages
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.tensor_cores import refuse_target
from bolt_build.families.common.units import named_unit
from bolt_build.families.grouped.epilogue import epilogue_type
from bolt_build.families.grouped.kind import FAMILY, between_rows, gpu_of
from bolt_build.families.grouped.neighbours.band_tile import OCTET, BandTile, band_tiles, reach
from bolt_build.families.grouped.neighbours.chain import constant
from bolt_build.families.grouped.shape import SPACE, Shape, aligned, refuse, shape_of
from bolt_build.families.grouped.sort import fastest
from bolt_build.families.reason import Reason, within
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.chain import Normed
from bolt_build.targets import Target

_MEMORY_MB = 500
_STATISTICS = {"variance": True, "rms": False}
"""Whether the mean is taken off."""


def serves(problem: KernelProblem) -> bool:
    """True for problems of a convolution and the normalisation of its results."""
    return isinstance(problem.op, Normed)


def refuse_normed(problem: KernelProblem) -> str | None:
    """A reason why no kernel computes both, whatever its tile."""
    conv, norm = parts(problem)
    op = norm.op
    assert isinstance(op, Norm)
    if (reason := refuse(conv)) is not None:
        return within("the convolution", reason)
    shape = shape_of(conv)
    if shape.of_group != (1, 1):
        return Reason("convolves single channels, here groups have {} to {}", *shape.of_group)
    if shape.channels % OCTET:
        return Reason("loads and stores 8 channels at once, {} is no multiple", shape.channels)
    if any(not isinstance(stage.op, Activation) for stage in conv.epilogue):
        return "another tensor joins in between"
    if op.statistic not in _STATISTICS:
        return f"normalises by mean and variance or by mean squares, not by {op.statistic}"
    for index in op_operands(norm)[1:]:
        operand = norm.inputs[index]
        if not operand.constant:
            return "scale and bias must be constants, to be kept when the engine loads"
        spread = [extent for extent in operand.shape if extent != 1]
        if prod(operand.shape) != shape.channels or len(spread) != 1:
            return Reason(
                "scale and bias have a number for each of {} channels, not {}", shape.channels, prod(operand.shape)
            )
    return refuse_stages(norm, op.axes[0])


def _refuse(problem: KernelProblem, target: Target) -> str | None:
    return refuse_target(problem, target) or refuse_normed(problem)


def _shape(problem: KernelProblem) -> Shape:
    """The convolution's; bytes are those of both, and the epilogue's operations too."""
    conv, norm = parts(problem)
    behind = 2 * len(norm.epilogue)
    found = shape_of(conv)
    return replace(found, nbytes=problem.nbytes, epilogue=found.epilogue + behind)


def tile_of(candidate: Candidate) -> BandTile:
    """The tile that a candidate states. Raises ValueError for one of another kind."""
    return stated.tile_of(candidate, BandTile.read)


@functools.lru_cache(maxsize=256)
def _offers(shape: Shape, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
    """Layers repeat: it is remembered."""
    return fastest(band_tiles(shape), shape, target)


def candidates(problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
    """`Family.candidates`."""
    if (reason := _refuse(problem, target)) is not None:
        return (), (Refusal(FAMILY, problem.op.kind, reason),)
    return _offers(_shape(problem), target)


def predict(problem: KernelProblem, candidate: Candidate, target: Target) -> float:
    """`Family.predict`."""
    return tile_of(candidate).seconds(_shape(problem), target)


def refuse_candidate(problem: KernelProblem, candidate: Candidate, target: Target) -> str | None:
    """`Family.refuse`."""
    if (reason := _refuse(problem, target)) is not None:
        return reason
    shape = _shape(problem)
    if not stated.is_read(tile_of, candidate) or tile_of(candidate) not in band_tiles(shape) or candidate.settings:
        return f"{candidate} is none of its candidates"
    return tile_of(candidate).refuse(shape, gpu_of(target))


def expense(problem: KernelProblem, candidate: Candidate | None) -> Expense:
    """`Family.expense`: with the zeros beside bands."""
    if candidate is None:
        return Expense(problem.nbytes, problem.flops)
    flops = max(problem.flops, tile_of(candidate).flops(_shape(problem)))
    return Expense(problem.nbytes, flops, f"bands of matrices: from {problem.flops} operations to {flops}")


def emit(problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
    """`Family.emit`."""
    (conv, norm), tile, shape = parts(problem), tile_of(candidate), _shape(problem)
    op, count = norm.op, len(conv.inputs)
    assert isinstance(op, Norm)
    depth = tile.channels(shape) * tile.parts
    bands = struct(
        f"{SPACE}::Bands",
        channels=shape.channels, rows=shape.kernel[0], columns=shape.kernel[1], gap=shape.dilation[1],
        wide=aligned(reach(shape)), to_channels=depth,
    )  # fmt: skip
    arguments = struct(
        f"{SPACE}::NormedArguments",
        conv=struct(f"{SPACE}::Arguments", **shape.arguments, run=1, **between_rows(at)),
        centred=boolean(_STATISTICS[op.statistic]), epsilon=literal(op.epsilon),
    )  # fmt: skip
    own = op_operands(conv)
    first = StepExpressions(at.inputs[:count], at.outputs, at.prepare_inputs[:count])
    text = [arguments, constant(conv, first, own[1]), bands, constant(conv, first, *own[2:]), str(depth)]
    text.append(stages_of(conv, first))
    behind = StepExpressions(("nullptr", *at.inputs[count:]), at.outputs, (None, *at.prepare_inputs[count:]))
    given = op_operands(norm)[1:]
    text += [constant(norm, behind, *given[place : place + 1]) for place in (0, 1)]
    kept = [stage.operand for stage in norm.epilogue if stage.operand is not None]
    kept = [index for index in dict.fromkeys(kept) if norm.inputs[index].constant]
    inputs = list(behind.inputs)
    for number, index in enumerate(kept):
        inputs[index] = f"kernel.constant({number})"
        text.append(constant(norm, behind, index))
    after = stages_of(norm, replace(behind, inputs=tuple(inputs)))
    call = f"kernel.run(r, {at.inputs[own[0]]}, {at.outputs[0]}, {after});"
    member = f"{SPACE}::NormedConv<{tile.cxx(shape, gpu_of(target))}, {epilogue_type(conv)}>"
    return StepCode(("bolt_grouped/normed.h",), member, ", ".join(text), call)


def unit(problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
    """What instantiates the kernel."""
    conv, norm = parts(problem)
    types = [tile_of(candidate).cxx(_shape(problem), gpu_of(target)), f"const {SPACE}::NormedArguments&"]
    types += [*(f"const {epilogue_type(each)}&" for each in (conv, norm)), "void*"]
    signature = ",\n    ".join(types)
    text = f'#include "bolt_grouped/normed_kernel.h"\n\ntemplate void {SPACE}::launch_normed(\n    {signature});\n'
    return named_unit(text, _MEMORY_MB)
