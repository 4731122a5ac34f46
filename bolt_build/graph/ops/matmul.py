"""Matrix products."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.graph.ir import Op


@dataclass(frozen=True)
class MatMul(Op):
    """Inputs a [...,M,K] ([...,K,M] if transpose_a), b [...,K,N] ([...,N,K] if transpose_b), optionally bias [N].

    Leading dimensions broadcast as in NumPy. ONNX MatMul (rank 1 operands are reshaped at import) and Gemm (rank 2; alpha and beta
    other than 1 become multiplications at import; a C that is not [N] becomes an addition).
    """

    kind = "matmul"
    transpose_a: bool = False
    transpose_b: bool = False
