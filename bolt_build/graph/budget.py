"""What may be computed from constants, at import and by passes: bounded in bytes and operations, each and in all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bolt_build.graph.ir import Op, TensorType
from bolt_build.graph.limits import (
    FOLD_GROWTH,
    FREE_FOLDED_BYTES,
    MOST_FOLD_ELEMENTS,
    MOST_FOLD_OPERATIONS,
    SMALL_BYTES,
    SMALL_FOLDED_BYTES,
)


class Budget:
    """Counts the bytes of constants that are computed. `given`: the bytes of each constant that is there before."""

    def __init__(self, given: Iterable[int]) -> None:
        self._left = FREE_FOLDED_BYTES + FOLD_GROWTH * sum(given)
        self._small = SMALL_FOLDED_BYTES

    def refuse(self, op: Op, inputs: Sequence[TensorType], output: TensorType) -> str | None:
        """Why the output of `op` on constants of these types is not to be computed; None where it may be."""
        operations, elements = op.flops(inputs, [output]), op.workspace(inputs, [output])
        if operations > MOST_FOLD_OPERATIONS:
            return f"its constant result takes {operations} operations; at most {MOST_FOLD_OPERATIONS} are spent on one"
        if elements > MOST_FOLD_ELEMENTS:
            return (
                f"its constant result takes {elements} elements at once; at most {MOST_FOLD_ELEMENTS} are held for one"
            )
        return self.refuse_bytes(output.nbytes)

    def refuse_bytes(self, made: int) -> str | None:
        """Why a constant of `made` bytes is not to be computed; None where it may be."""
        if made > self._left and not self._is_small(made):
            return f"its constant result has {made} bytes, where {self._left} are left for all that is computed"
        return None

    def take(self, nbytes: int) -> None:
        """Counts a constant that is computed."""
        if self._is_small(nbytes):
            self._small -= nbytes
        else:
            self._left -= nbytes

    def _is_small(self, nbytes: int) -> bool:
        return nbytes <= min(SMALL_BYTES, self._small)
