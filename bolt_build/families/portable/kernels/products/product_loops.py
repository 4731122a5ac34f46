"""Extents and steps of matrix products in batches, as kernels get them."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.families.base import PART_ALIGNMENT, KernelProblem, StepExpressions
from bolt_build.families.common.cxx import braces, struct
from bolt_build.families.common.geometry import MOST_AXES, Loop, merged, strides
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.stages import aligned
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.graph.ops.products.placed_matmul import PlacedMatMul, Walks, walks


def batch_loops(problem: KernelProblem) -> tuple[Loop, ...]:
    """Loops over the matrices of a product, with the steps of both factors; 0 where one is broadcast."""
    shape = problem.outputs[0].shape
    sides = []
    for index in op_operands(problem)[:2]:
        operand = problem.inputs[index]
        extents = aligned(operand.shape, len(shape))
        steps = (0,) * (len(shape) - len(operand.shape)) + strides(operand)
        sides.append(tuple(0 if extent == 1 else step for extent, step in zip(extents, steps, strict=True)))
    return merged((Loop(extent, (sides[0][i], sides[1][i])) for i, extent in enumerate(shape[:-2])), 2)


def matmul_parameters(problem: KernelProblem, op: MatMul) -> str:
    """C++ for the extents and steps of a product, whose factors are its op's first two inputs."""
    own = op_operands(problem)
    m, n = problem.outputs[0].shape[-2:]
    k = problem.inputs[own[0]].shape[-2 if op.transpose_a else -1]
    loops = batch_loops(problem)
    return struct(
        "bolt::portable::MatMul",
        batch_rank=len(loops),
        batch=braces(loop.extent for loop in loops),
        a_batch=braces(loop.steps[0] for loop in loops),
        b_batch=braces(loop.steps[1] for loop in loops),
        m=m,
        n=n,
        k=k,
        a_row=1 if op.transpose_a else k,
        a_column=m if op.transpose_a else 1,
        b_row=1 if op.transpose_b else n,
        b_column=k if op.transpose_b else 1,
    )


@dataclass(frozen=True)
class Placed:
    """A product whose factors and result lie where they are: the inputs that are its A and B operand, and how its
    kernel walks. They are exchanged where columns of the result are no run of neighbours, or a single one, and rows
    are: results are stored along columns."""

    factors: tuple[int, int]
    walks: Walks
    turned: bool


def placed(problem: KernelProblem, at: StepExpressions | None = None) -> Placed | None:
    """None where kernels cannot walk there."""
    op = problem.op
    assert isinstance(op, PlacedMatMul)
    a, b, *_ = op_operands(problem)
    tensors = (problem.inputs[a], problem.inputs[b], problem.outputs[0])
    pitches = (0, 0) if at is None else (at.input_pitch(a), at.input_pitch(b))
    steps = tuple(strides(tensor, pitch) for tensor, pitch in zip(tensors, (*pitches, 0), strict=True))
    found = walks(op, tuple(tensor.shape for tensor in tensors), steps)
    if found is None:
        return None
    rows, columns = found.rows, found.columns
    turned = rows.sides[2] == 1 and (columns.extent == 1 < rows.extent or (columns.extent > 1 != columns.sides[2]))
    return Placed((b, a), found.turned, True) if turned else Placed((a, b), found, False)


def placed_parameters(found: Placed) -> str:
    """C++ for the extents and steps of such a product."""
    walks, batch = found.walks, found.walks.batch
    down = {"channels_down": "true"} if found.turned else {}
    return struct(
        "bolt::portable::MatMul",
        batch_rank=len(batch),
        batch=braces(walk.extent for walk in batch),
        a_batch=braces(walk.sides[0] for walk in batch),
        b_batch=braces(walk.sides[1] for walk in batch),
        m=walks.rows.extent,
        n=walks.columns.extent,
        k=walks.depth.extent,
        a_row=walks.rows.sides[0],
        a_column=walks.depth.sides[0],
        b_row=walks.depth.sides[1],
        b_column=walks.columns.sides[1],
        c_batch=braces(walk.sides[2] for walk in batch),
        c_row=walks.rows.sides[2] or walks.columns.extent,
        c_column=walks.columns.sides[2] or 1,
        **down,
    )


def refuse_walks(problem: KernelProblem) -> str | None:
    """A reason where no kernel walks through the product's tensors as they lie."""
    found = placed(problem)
    if found is None:
        return "rows, columns or depth of a product's matrices are no single run through memory"
    count = len(found.walks.batch)
    return Reason("multiplies over {} loops, at most {} are supported", count, MOST_AXES) if count > MOST_AXES else None


def walks_apart(problem: KernelProblem) -> tuple[int, ...]:
    """The inputs that a product may read where their rows lie apart. Rows of one element would be neighbours no more,
    and kernels are chosen by what are."""

    def able(index: int) -> bool:
        if problem.inputs[index].row == 1:
            return False
        pitches = [0] * len(problem.inputs)
        pitches[index] = problem.inputs[index].row + PART_ALIGNMENT
        found = placed(problem, StepExpressions((), (), (), (), tuple(pitches)))
        return found is not None and len(found.walks.batch) <= MOST_AXES

    return tuple(index for index in op_operands(problem)[:2] if not problem.inputs[index].constant and able(index))
