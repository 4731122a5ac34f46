"""Attention, plainly: online softmax in fp32, any lengths of rows and heads."""

from __future__ import annotations

from math import ceil

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.attention import bounds, keys_there, mask_images, mask_pointer, mask_steps
from bolt_build.families.common.cxx import boolean, braces, literal, struct
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.portable.rule import Rule, computed_only, no_epilogue, row_major
from bolt_build.graph.ops.attention.attention import Attention


def _refuse(problem: KernelProblem) -> str | None:
    return computed_only(problem) or no_epilogue(problem)


def _emit(problem: KernelProblem, at: StepExpressions) -> StepCode:
    op = problem.op
    assert isinstance(op, Attention)
    shape = op.extents([operand.type for operand in problem.inputs])
    own, kv = op.heads * shape.depth, op.kv_heads * shape.depth
    more = op.masks(problem.inputs)[1:]
    rows = [problem.inputs[index].shape[2] for index in range(op.sources)]
    parameters = struct(
        "bolt::portable::Attention",
        batch=shape.batch,
        heads=op.heads,
        group=op.heads // op.kv_heads,
        queries=shape.queries,
        keys=shape.keys,
        depth=shape.depth,
        columns=shape.columns,
        row=braces(rows * (3 // op.sources)),
        first=braces((0, own, own + kv) if op.packed else (0, 0, 0)),
        mask=braces(mask_steps(problem)),
        mask_images=mask_images(problem),
        scale=literal(op.scale),
        **keys_there(op),
        **bounds(op),
        **({"sink_step": str(int(problem.inputs[-1].shape[0] > 1))} if op.sunk else {}),
        **({"more": braces(mask_steps(problem, 1)), "more_images": mask_images(problem, 1)} if more else {}),
    )
    types = [COMPUTED[problem.inputs[index].format.dtype] for index in range(op.sources)] * (3 // op.sources)
    pointers = list(at.inputs[: op.sources]) * (3 // op.sources)
    masked = bool(op.masks(problem.inputs))
    types.append(COMPUTED[problem.inputs[op.sources].format.dtype] if masked else "bolt::portable::Unmasked")
    pointers.append(mask_pointer(problem, at) if masked else "nullptr")
    types.append(COMPUTED[problem.outputs[0].format.dtype])
    types += [COMPUTED[sinks.format.dtype] for sinks in op.sinks(problem.inputs)]
    if more:
        types += [*(() if op.sunk else ("bolt::portable::Unmasked",)), COMPUTED[more[0].format.dtype]]
    kind = ", ".join((boolean(op.causal), f"bolt::portable::Unseen::{_unseen(op, masked)}", *types))
    pointers += [at.outputs[0], *op.sinks(at.inputs)]
    pointers += [*(() if op.sunk else ("nullptr",)), *op.masks(at.inputs)[1:]] if more else []
    call = f"bolt::portable::attention<{kind}>(r, {parameters}, {', '.join(pointers)});"
    return StepCode(("bolt_portable/attention.h",), None, "", call)


def _unseen(op: Attention, masked: bool) -> str:
    """What a query that sees no key gives."""
    return "zeros" if op.safe else "mean" if op.tied and masked else "nan"


_TILE, _WAITS = 128, 3e-6
"""Keys that a block of a GPU's kernel scores at once, and seconds in which loads of their values wait for each other, a
few at a time. By reckoning: a decoder's token has few blocks, so nothing else hides that."""


def _latency(problem: KernelProblem) -> float:
    op = problem.op
    assert isinstance(op, Attention)
    return _WAITS * ceil(op.extents([operand.type for operand in problem.inputs]).keys / _TILE)


RULES = (
    Rule(
        Attention, _refuse, _emit, lambda problem: 0.03, gpu_efficiency=0.001, gpu_latency=_latency, layouts=row_major
    ),
)  # fmt: skip
