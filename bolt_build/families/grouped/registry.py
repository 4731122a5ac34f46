"""The kinds of kernels of this family, a line each."""

from __future__ import annotations

from bolt_build.families.grouped import depthwise, tensor_core
from bolt_build.families.grouped.kind import Kind
from bolt_build.families.grouped.shape import Shape

KINDS: tuple[Kind, ...] = (depthwise.KIND, tensor_core.KIND)


def kind_for(shape: Shape) -> Kind:
    """The kind that a problem is for."""
    return next(kind for kind in KINDS if kind.serves(shape))
