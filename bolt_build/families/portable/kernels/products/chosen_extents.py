"""What a product of rows with chosen matrices is, as its kernels ask it: extents, how matrices lie, C++."""

from __future__ import annotations

from bolt_build.dtypes import PRECISIONS
from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.common.cxx import struct
from bolt_build.families.common.element_types import COMPUTED, HALVES
from bolt_build.families.common.epilogue import chain
from bolt_build.families.portable.typed import ctype
from bolt_build.graph.ops.products.chosen_matmul import ChosenMatMul
from bolt_build.targets import Gpu

_LOADS = (8, 4, 2, 1)


def extents(problem: KernelProblem) -> tuple[int, int, int, int]:
    """Rows, columns, depth, and how many matrices there are."""
    (rows, depth), columns = problem.inputs[0].shape, problem.outputs[0].shape[1]
    return rows, columns, depth, problem.inputs[1].shape[0]


def along(problem: KernelProblem) -> bool:
    """Whether columns of matrices are runs of memory."""
    assert isinstance(problem.op, ChosenMatMul)
    return problem.op.transpose_b


def load_of(*extents: int) -> int:
    """Elements that may be read or stored at once where lines begin at multiples of them."""
    return next(load for load in _LOADS if all(extent % load == 0 for extent in extents))


def chosen_of(rows: int, matrices: int) -> float:
    """How many matrices so many rows choose, where each is as likely."""
    return matrices * (1.0 - (1.0 - 1.0 / matrices) ** rows)


def types_of(problem: KernelProblem) -> tuple[str, str, str, str]:
    """Element types of rows, matrices, results and indices."""
    rows, matrices, index = (each.format.dtype for each in problem.inputs[:3])
    return COMPUTED[rows], COMPUTED[matrices], COMPUTED[problem.outputs[0].format.dtype], ctype(index)


def parameters_text(problem: KernelProblem, **more: int) -> str:
    """The arguments of a kernel, and what it has beside those of all."""
    op = problem.op
    assert isinstance(op, ChosenMatMul)
    m, n, k, matrices = extents(problem)
    steps = (1, k) if op.transpose_b else (n, 1)
    return struct(
        "bolt::portable::ChosenMatMul", m=m, n=n, k=k, matrices=matrices, b_row=steps[0], b_column=steps[1], **more
    )


def call_text(problem: KernelProblem, at: StepExpressions, name: str, how: str, parameters: str) -> str:
    """The call of a kernel; `how`: its template arguments."""
    inputs = f"{at.inputs[0]}, {at.inputs[1]}, {at.inputs[2]}"
    return f"bolt::portable::{name}<{how}>(r, {parameters}, {inputs}, {at.outputs[0]}, {chain(problem, at, ())});"


def refuse_half(problem: KernelProblem, gpu: Gpu) -> str | None:
    """Why tensor cores do not multiply its factors, None where they do."""
    a, b = (operand.format.dtype for operand in problem.inputs[:2])
    if a is not b or a not in HALVES:
        return "multiplies factors that are both in f16, or both in bf16"
    precision = next(name for name, dtype in PRECISIONS.items() if dtype is a)
    return None if gpu.instruction(precision) is not None else f"the GPU's tensor cores do not multiply {a.value}"
