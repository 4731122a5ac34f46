"""Predicted seconds of kernels, and the kernels for a problem in their order."""

from __future__ import annotations

from dataclasses import replace

from bolt_build.families.base import KernelProblem, Refusal
from bolt_build.families.cutlass import slices
from bolt_build.families.cutlass.kernels import ALL_TILES, Kernel, loads_of, refuse, refuse_whole
from bolt_build.families.cutlass.product import Product, work
from bolt_build.families.cutlass.resident import ResidentTile
from bolt_build.families.cutlass.resident import seconds as resident_seconds
from bolt_build.families.cutlass.tiles import NARROW_TILES, WHOLE, Tile, Work
from bolt_build.families.cutlass.tiles import seconds as tile_seconds
from bolt_build.families.cutlass.warpgroups import seconds as warpgroup_seconds
from bolt_build.families.problems import op_operands
from bolt_build.targets import Gpu, Target

_SURE = 3
"""So many first kernels are measured whatever others need."""
_TRIED = 4
"""Among so many first kernels there is one of each kind, because kinds compare less surely than kernels of one kind."""


def ranked(
    problem: KernelProblem, product: Product, target: Target
) -> tuple[list[tuple[float, Kernel]], list[Refusal]]:
    """Kernels for the problem with their predicted seconds, fastest first; and why others are none."""
    gpu = target.gpu
    assert gpu is not None
    found: list[tuple[float, Kernel]] = []
    refusals: list[Refusal] = []
    for tile in ALL_TILES:
        reason = refuse(tile, gpu, product)
        for kernel in (Kernel(tile), Kernel(tile, partial=True)):
            why = reason or (slices.refuse if kernel.partial else refuse_whole)(tile, gpu, product)
            if why is None:
                found.append((seconds(problem, product, kernel, target), kernel))
            elif reason is None or not kernel.partial:
                refusals.append(Refusal("cutlass", str(kernel), why))
    return with_each_kind_first(found), refusals


def unpadded(
    problem: KernelProblem, product: Product, loads: int, target: Target
) -> tuple[list[tuple[float, Kernel]], list[Refusal]]:
    """Kernels that read the input as it is, `loads` elements at once, with their predicted seconds; and why others are
    none. `product` is what they compute."""
    gpu = target.gpu
    assert gpu is not None
    found: list[tuple[float, Kernel]] = []
    refusals: list[Refusal] = []
    for kernel in (Kernel(tile) for tile in NARROW_TILES if tile.loads == loads):
        why = refuse(kernel.tile, gpu, product) or refuse_whole(kernel.tile, gpu, product)
        if why is None:
            found.append((seconds(problem, product, kernel, target), kernel))
        else:
            refusals.append(Refusal("cutlass", str(kernel), why))
    return found, refusals


def with_each_kind_first(found: list[tuple[float, Kernel]]) -> list[tuple[float, Kernel]]:
    """Fastest first, but that the fastest of each kind (in slices, whole on either instruction, with weights in
    registers, without padding) are among the first few."""
    found = sorted(found, key=lambda pair: pair[0])
    leaders: dict[tuple[bool, bool, bool, int], int] = {}
    for index, (_, kernel) in enumerate(found):
        whole = kernel.of_warpgroups and not kernel.partial
        kind = kernel.partial, whole, kernel.resident, loads_of(kernel.tile)
        leaders.setdefault(kind, index)
    others = [index for index in range(len(found)) if index not in leaders.values()]
    first = sorted((*leaders.values(), *others[: _TRIED - len(leaders)]))
    unpadded = [index for kind, index in leaders.items() if kind[-1] != WHOLE]
    if unpadded and unpadded[0] in first[_SURE:]:
        # Nothing is known of these by measurement: they are not left out for a prediction.
        first.remove(unpadded[0])
        first.insert(_SURE - 1, unpadded[0])
    return [found[index] for index in (*first, *others[_TRIED - len(leaders) :])]


def seconds(
    problem: KernelProblem, product: Product, kernel: Kernel, target: Target, count: int | None = None
) -> float:
    """Predicted seconds of all that runs for the problem. `count`: slices, where the kernel takes any; None for the
    default."""
    gpu = target.gpu
    assert gpu is not None
    needed, copy = work(problem, product), 0.0
    if product.widen is not None:
        moved = problem.inputs[op_operands(problem)[0]].nbytes + product.widen.nbytes
        copy = moved / target.bandwidth + target.launch_seconds
    if isinstance(kernel.tile, ResidentTile):
        return copy + resident_seconds(kernel.tile, product, needed.nbytes, target)
    if not kernel.partial:
        return copy + _kernel_seconds(kernel, needed, target)
    if count is None:
        count = default_slices(product, kernel, target)
    return copy + _sliced_seconds(product, kernel, needed, target, count)


def default_slices(product: Product, kernel: Kernel, target: Target) -> int:
    """The number of slices that is predicted to be fastest."""
    gpu = target.gpu
    assert gpu is not None
    # What is the same for all counts does not matter.
    needed = Work(product.m, product.n, product.depth, product.taps, product.kernel == "Conv", 0)
    return min(
        slices.counts(kernel.tile, gpu, product),
        key=lambda count: _sliced_seconds(product, kernel, needed, target, count),
    )


def other_slices(product: Product, kernel: Kernel, gpu: Gpu, default: int) -> tuple[int, ...]:
    """Numbers of slices beside the default, those nearest to it first."""
    others = [count for count in slices.counts(kernel.tile, gpu, product) if count != default]
    return tuple(sorted(others, key=lambda count: (max(count, default) / min(count, default), count)))


def _kernel_seconds(kernel: Kernel, needed: Work, target: Target) -> float:
    tile = kernel.tile
    assert not isinstance(tile, ResidentTile), "computed from the image, not from rows and columns"
    return tile_seconds(tile, needed, target) if isinstance(tile, Tile) else warpgroup_seconds(tile, needed, target)


def _sliced_seconds(product: Product, kernel: Kernel, needed: Work, target: Target, count: int) -> float:
    """Sums in fp32 go from one kernel to the next, for the most part through L2: at twice the bandwidth."""
    sums = count * product.m * product.n * 4
    part = replace(needed, slices=count, nbytes=needed.nbytes + sums // 2)
    return _kernel_seconds(kernel, part, target) + target.launch_seconds + sums / (2 * target.bandwidth)
