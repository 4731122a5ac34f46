"""Rules that tiles of several kinds follow."""

from __future__ import annotations

from bolt_build.families.cutlass.problems.product import Product
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, target_named

FITTED = target_named("h200")
"""The row of the GPU on which predictions were fitted, and the one kind of GPU with kernels of WGMMA."""
assert FITTED.gpu is not None, "it is a GPU's row"
HOPPER = FITTED.gpu
MEASURED_RATE = FITTED.rate("fp16") / HOPPER.sms
"""Operations/s at the peak of one of its SMs."""

REGISTERS = 128
"""Registers of a thread that sums may take: with more, addresses and fragments go to memory and back."""
MANY_IN_TURNS = "WGMMA in turns with many sums"
"""The group of tiles whose sums take more. Those in clusters are no group apart: of them the first is one."""
NARROW = 32
"""Columns of a narrow tile, which reads the rows again more often than it saves."""
_SMALL = 64 * 128
"""Elements of a tile for products that do not fill the GPU."""


def wasted_rows(rows: int, of: int) -> str | None:
    """Why a tile of so many rows is none for a product of so many, None where it is one."""
    return (
        Reason("over half of its rows would be beyond the {} of the product", of)
        if rows > 2 * max(of, NARROW)
        else None
    )


def too_many_sums(registers: int, most: int = REGISTERS) -> str | None:
    """Why sums that take so many registers of a thread are too many, None where they are not."""
    if registers > most:
        return Reason("its accumulators take {} registers of a thread, over {} do not stay in them", registers, most)
    return None


def refuse_whole(blocks: int, elements: int, gpu: Gpu, product: Product, *, wide: bool = False) -> str | None:
    """Why so many tiles of so many elements do not suit a product that is not sliced, None where they do. `wide`: their
    kernels store results in fp32 too."""
    if product.wide and not wide:
        return "stores half precision: only split-K's partial sums are in fp32"
    if 4 * blocks <= gpu.sms and elements > _SMALL:
        return Reason("{} tiles leave most of {} multiprocessors idle, smaller ones do not", blocks, gpu.sms)
    return None
