"""The C++ of what a kernel's preparation reads of a model's constants."""

from __future__ import annotations

from bolt_build.families.base import StepExpressions

_SPACE = "bolt::cutlass_kernels"


def constant(at: StepExpressions, *index: int) -> str:
    """A `Constant`: its expression names it, which is the same in every plan of a model; an empty one without index."""
    if not index:
        return f'{_SPACE}::Constant{{nullptr, ""}}'
    expression = at.prepare_inputs[index[0]]
    return f'{_SPACE}::Constant{{{expression}, "{expression}"}}'
