"""What the recipe leaves kernels of channels that are no whole loads: to copy them into padded ones, or not to."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem
from bolt_build.families.cutlass.problems import conv
from bolt_build.families.cutlass.problems.product import ALIGNMENT, Product
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.products.conv import Conv


def refuse_padding(problem: KernelProblem, product: Product, loads: int = ALIGNMENT) -> str | None:
    """Why kernels that load so many elements at once are not to compute the problem as `product`; None where they may.

    An image's few channels are gathered from rows of windows, whatever the recipe says: no kernel reads them as they
    are.
    """
    if problem.padding is None or (isinstance(problem.op, Conv) and conv.thin(problem)):
        return None
    if problem.padding and loads < problem.padding:
        return Reason(
            "loads {} elements at once, and the recipe wants channels padded to a multiple of {}",
            loads,
            problem.padding,
        )
    if not problem.padding and product.widen is not None:
        return Reason("copies the input to {} channels, and the recipe wants nothing padded", product.depth)
    return None
