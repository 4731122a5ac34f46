"""Which operators are computed as products, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bolt_build.families.base import KernelProblem
from bolt_build.families.cutlass.problems import conv, matmul
from bolt_build.families.cutlass.problems.product import ALIGNMENT, Product, Products
from bolt_build.graph.ir import Op
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul


@dataclass(frozen=True)
class _Rule:
    refuse: Callable[[KernelProblem], str | None]
    product: Products
    narrow: Callable[[KernelProblem], int | None]


_RULES: dict[type[Op], _Rule] = {
    Conv: _Rule(conv.refuse, conv.product_of, conv.narrow),
    MatMul: _Rule(matmul.refuse, matmul.product_of, matmul.narrow),
}


def multiplies(op: Op) -> bool:
    """True for operators that are computed as products."""
    return type(op) in _RULES


def refuse_problem(problem: KernelProblem) -> str | None:
    """A reason why no kernel of this family computes the problem, whatever its tile."""
    return _RULES[type(problem.op)].refuse(problem)


def product_of(problem: KernelProblem, loads: int = ALIGNMENT) -> Product:
    """How a problem that is not refused is computed by kernels that load so many elements at once."""
    return _RULES[type(problem.op)].product(problem, loads)


def narrow_loads_of(problem: KernelProblem) -> int | None:
    """Elements of the loads with which the input needs no padding, None where it needs none anyway or always does."""
    return _RULES[type(problem.op)].narrow(problem)
