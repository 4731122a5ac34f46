"""Reductions, places and running sums as problems of the portable family."""

from __future__ import annotations

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Layout, Op, TensorType
from bolt_build.targets import target_named

FAMILY, H100 = Portable(), target_named("h100")
AT = StepExpressions(("x",), ("y",), (None,))


def asked(
    op: Op, *shape: int, dtype: DType = DType.F16, layout: Layout = Layout.ROW, target: str = "h100"
) -> KernelProblem:
    (made,) = op.infer([TensorType(dtype, shape)])
    to = TensorFormat(made.dtype, layout if made.rank >= 3 else Layout.ROW)
    operand = Operand(shape, TensorFormat(dtype, layout))
    return KernelProblem(op, (operand,), (Operand(made.shape, to),), (), DType.F32, target)
