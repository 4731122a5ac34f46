"""What every family's kernels for attention must know of its operands."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.common.cxx import literal
from bolt_build.families.common.element_types import COMPUTED
from bolt_build.families.common.geometry import strides
from bolt_build.families.common.stages import aligned
from bolt_build.graph.ops.attention.attention import Attention, images_of


def mask_steps(problem: KernelProblem, which: int = 0) -> tuple[int, ...]:
    """Elements between neighbours of a mask along image, head, query and key; 0 where it is broadcast or there is
    none."""
    op = problem.op
    assert isinstance(op, Attention)
    masks = op.masks(problem.inputs)
    if which >= len(masks):
        return (0,) * 4
    if op.relative:
        return (0, masks[0].shape[1] if masks[0].shape[0] > 1 else 0, -1, 1)
    mask = masks[which]
    steps = (0,) * (4 - len(mask.shape)) + strides(mask)
    return tuple(0 if extent == 1 else step for extent, step in zip(aligned(mask.shape, 4), steps, strict=True))


def mask_images(problem: KernelProblem, which: int = 0) -> int:
    """Behind how many images a mask begins anew; 1 where they share it or there is none."""
    op = problem.op
    assert isinstance(op, Attention)
    batch = op.extents([operand.type for operand in problem.inputs]).batch
    masks = op.masks(problem.inputs)
    return images_of(masks[which].shape, batch) if which < len(masks) and not op.relative else 1


def mask_pointer(problem: KernelProblem, at: StepExpressions) -> str:
    """Where the mask of the first query and key begins."""
    op = problem.op
    assert isinstance(op, Attention)
    pointer = at.inputs[op.sources]
    if not op.relative:
        return pointer
    mask, queries = problem.inputs[op.sources], op.extents([operand.type for operand in problem.inputs]).queries
    return f"static_cast<const {COMPUTED[mask.format.dtype]}*>({pointer}) + {queries - 1}"


def keys_there(op: Attention) -> dict[str, str]:
    """The field of kernels' parameters that says how many keys are no padding, where a run tells that."""
    return {"there": f"r.size({op.counted})"} if op.counted else {}


def bounds(op: Attention) -> dict[str, str]:
    """The fields of kernels' parameters for a window of keys and a cap of scores, where there are any."""
    found = {"window": str(op.window)} if op.window else {}
    return found | ({"cap": literal(op.cap)} if op.cap else {})
