"""Kernels on Hopper for a product and the normalisation of its rows: several blocks own whole rows together, and tell
each other their statistics, in a cluster through distributed shared memory, else through global memory."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from bolt_build.families.base import (
    Candidate,
    Expense,
    KernelProblem,
    KernelUnit,
    StepCode,
    StepExpressions,
)
from bolt_build.families.common.chains import parts
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.text_form import Reader
from bolt_build.families.common.units import named_unit
from bolt_build.families.cutlass.constants import constant
from bolt_build.families.cutlass.epilogue import (
    epilogue_type,
    epilogue_value,
    refuse_channels,
    refuse_epilogue,
    residual,
    stage_words,
)
from bolt_build.families.cutlass.expense import copy_seconds
from bolt_build.families.cutlass.expense import expense as product_expense
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.norms.norm_tiles import NormTile, norm_tiles
from bolt_build.families.cutlass.kinds.warpgroups.wgmma import WgmmaTile, refuse_product
from bolt_build.families.cutlass.kinds.warpgroups.wgmma_time import seconds
from bolt_build.families.cutlass.problems.apart import between_rows, reads_apart
from bolt_build.families.cutlass.problems.padding import refuse_padding
from bolt_build.families.cutlass.problems.product import Product, work
from bolt_build.families.cutlass.problems.products import product_of, refuse_problem
from bolt_build.families.cutlass.tile_kind import TileKind
from bolt_build.families.reason import Reason, within
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.chain import Kept
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.targets import Gpu, Target

STATISTICS = {"variance": True, "rms": False}
"""By mean and variance, or by the mean of squares: what `centred` is in C++."""
# Fitted to 169 kernels on an H200, off by 12% on average: the part of all SMs that clusters of several blocks find room
# on, seconds in which the blocks of a cluster wait for each other, those in which a tile of 128 x 128 is normalised and
# stored, and those that a step takes longer for each other block that loads for it.
_RESIDENT, _EXCHANGE, _AGAIN, _LOADED = 0.93, 1.4e-6, 0.47e-6, 1e-8
_THROUGH_MEMORY = 2.5e-6
"""Seconds in which blocks wait for each other where they exchange through memory: two trips to L2 and back behind a
fence. With the first kernels of four products it is off by 5% on average (`norm_exchanges.json`)."""
_AHEAD = 0.35e-6
"""Seconds that a tile of 128 x 128 takes less where its whole residual has come before, of warpgroups that share it.
Fitted to eight kernels on an H200. With their residual ahead those in turns are off by 5%."""
_KEPT, _LATER, _SHALLOW = 1.2e-6, 2e-6, 1000
"""Seconds in which warpgroups that take turns store 128 x 128 sums too that others read; and those by which each tile
of a block but the first one takes longer that exchanges through memory in turns, both of products that are no deeper:
few steps hide neither. Fitted to 34 kernels on an H200."""


class WgmmaNorm(TileKind[NormTile, Product]):
    """The kind of a matrix product and the normalisation that reads its rows."""

    def serves(self, problem: KernelProblem) -> bool:
        first, *behind = problem.op.sequence
        return isinstance(first.op, MatMul) and len(behind) == 1 and isinstance(behind[0].op, Norm)

    def read_tile(self, reader: Reader) -> NormTile:
        return NormTile.read(reader)

    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        return refuse_norm(problem, gpu)

    def computed(self, problem: KernelProblem) -> Product:
        return product_of(staged(problem))

    def tiles_for(self, what: Product, gpu: Gpu) -> tuple[tuple[NormTile, ...], str | None]:
        tiles = norm_tiles(what)
        return tiles, None if tiles else Reason("no cluster of tiles has whole rows of {} columns", what.n)

    def refuse_tile(self, tile: NormTile, what: Product, gpu: Gpu) -> str | None:
        return tile.refuse(gpu, what)

    def seconds(self, problem: KernelProblem, what: Product, candidate: Candidate, target: Target) -> float:
        return _seconds(problem, what, self.tile_of(candidate), target)

    def group(self, tile: NormTile) -> str:
        """What blocks wait for each other through memory is less sure, so that one of these is tried."""
        return "WGMMA, through memory" if tile.through_memory else "WGMMA"

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        """Of both; what lies between is written where it is kept, and never read."""
        return expense_of(problem)

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        return reads_apart(problem, self.computed(problem), op_operands(problem)[0], _added(problem))

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        first, tile = staged(problem), self.tile_of(candidate)
        own, added = op_operands(first), _added(problem)
        product = self.computed(problem).reading(first.inputs[own[0]], at.input_pitch(own[0]))
        member = f"{SPACE}::NormedGemm<{_tile(problem, tile, product)}, {_stages(problem)}, {product.source}>"
        count = len(parts(problem)[0].inputs)
        behind = range(count, count + len(op_operands(parts(problem)[1])) - 1)
        value = f"{SPACE}::behind({epilogue_value(first)})" if problem.epilogue else epilogue_value(first)
        arguments = (
            product.arguments(between_rows(at, added)), product.source_value,
            constant(at, own[1]), product.weights, constant(at, *own[2:]), value,
            constant(at, *behind[:1]), constant(at, *behind[1:]), f"{norm_of(problem).epsilon!r}f",
        )  # fmt: skip
        other = "nullptr" if added is None else at.inputs[added]
        kept = at.outputs[0] if keeps(problem) else "nullptr"
        call = f"kernel.run(r, {at.inputs[own[0]]}, {other}, {kept}, {at.outputs[-1]});"
        return StepCode(
            ("bolt_cutlass/plans/normed.h",), member, ", ".join(arguments), call, counts=tile.through_memory
        )

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        tile = self.tile_of(candidate)
        text = (
            '#include "bolt_cutlass/units/gemm_norm_warpgroup_kernel.h"\n\n'
            f"template void {SPACE}::launch_gemm(\n    {_tile(problem, tile, self.computed(problem))},\n"
            f"    const {SPACE}::GemmArguments&, const {SPACE}::NormArguments&,\n"
            f"    const {_stages(problem)}&, void*);\n"
        )
        label = f"gemm{stage_words(parts(problem)[0])} | norm{stage_words(problem)}, tile {tile}"
        return named_unit(text, WgmmaTile.memory_mb, label)


def _tile(problem: KernelProblem, tile: NormTile, product: Product) -> str:
    """C++ for the type of the tile."""
    return tile.cxx(product, centred=STATISTICS[norm_of(problem).statistic], keeps=keeps(problem))


def expense_of(problem: KernelProblem) -> Expense:
    """Of the product and the normalisation."""
    first, second = staged(problem), parts(problem)[1]
    found = product_expense(first, product_of(first))
    nbytes = found.nbytes + (first.outputs[0].nbytes if keeps(problem) else 0)
    return replace(found, nbytes=nbytes, flops=found.flops + second.flops)


def staged(problem: KernelProblem) -> KernelProblem:
    """The product, with the stages behind the normalisation as its own where there are such: a kernel has one place for
    stages, and reads one residual."""
    first = parts(problem)[0]
    if not problem.epilogue:
        return first
    read = [stage.operand for stage in problem.epilogue if stage.operand is not None]
    places = {index: len(first.inputs) + at for at, index in enumerate(read)}
    stages = (s if s.operand is None else replace(s, operand=places[s.operand]) for s in problem.epilogue)
    return replace(first, inputs=(*first.inputs, *(problem.inputs[index] for index in read)), epilogue=tuple(stages))


def _stages(problem: KernelProblem) -> str:
    """C++ for the type of the stages in front of the normalisation, or behind it."""
    found = epilogue_type(staged(problem))
    return f"{SPACE}::Behind<{found}>" if problem.epilogue else found


def _added(problem: KernelProblem) -> int | None:
    """Index of the residual, None where there is none."""
    return residual(problem if problem.epilogue else parts(problem)[0])


def norm_of(problem: KernelProblem) -> Norm:
    """The normalisation behind the product."""
    op = parts(problem)[1].op
    assert isinstance(op, Norm)
    return op


def keeps(problem: KernelProblem) -> bool:
    """True where what is normalised is stored as well."""
    return isinstance(problem.op, Kept)


def refuse_norm(problem: KernelProblem, gpu: Gpu) -> str | None:
    """Why no tile computes the problem, None where some may."""
    first, second = parts(problem)
    if (reason := refuse_problem(first) or refuse_channels(first)) is not None:
        return within("the product", reason)
    product, norm = product_of(first), norm_of(problem)
    if (reason := refuse_product(gpu, product) or refuse_padding(first, product)) is not None:
        return reason
    if problem.outputs[0].format.dtype is not product.dtype:
        return f"stores {product.dtype.value}, not {problem.outputs[0].format.dtype.value}"
    if norm.statistic not in STATISTICS:
        return f"normalises by variance or by the mean of squares, not by '{norm.statistic}'"
    rank = len(second.outputs[0].shape)
    if norm.axes != (rank - 1,) or norm.groups != 1:
        return "normalises over something else than the rows of the product"
    vectors = [second.inputs[index] for index in op_operands(second)[1:]]
    if not all(each.constant and each.shape[-1:] == (product.n,) and prod(each.shape) == product.n for each in vectors):
        return "scale and bias are constants of one number a column"
    return _refuse_behind(problem)


def _refuse_behind(problem: KernelProblem) -> str | None:
    """Why stages behind the normalisation are no part of the kernel."""
    if not problem.epilogue:
        return None
    if keeps(problem) or parts(problem)[0].epilogue:
        return "functions stand in front of the normalisation and behind it"
    reason = refuse_epilogue(problem) or refuse_channels(problem)
    return None if reason is None else within("behind the normalisation", reason)


def _seconds(problem: KernelProblem, product: Product, tile: NormTile, target: Target) -> float:
    """The product's time with the bytes of both, whose tiles are dealt out to clusters, and the exchange of each."""
    first, gpu, inner = staged(problem), gpu_of(target), tile.tile
    # What a residual takes is part of what an exchange does.
    needed = replace(work(first, product), residual=False)
    if keeps(problem):
        needed = replace(needed, nbytes=needed.nbytes + first.outputs[0].nbytes)
    if tile.through_memory:
        alone = copy_seconds(first, product, target) + seconds(inner, needed, target)
        exchanged = _through_memory(inner, product, gpu, whole=tile.whole)
        return alone + exchanged + _in_turns(problem, product, tile, _rounds(inner, product, gpu))
    clusters = ceil(product.m / inner.m)
    rounds = ceil(clusters / max(1, int(gpu.sms * _RESIDENT) // tile.across))
    least = ceil(clusters * tile.across / gpu.sms)
    once = _EXCHANGE + _AGAIN * inner.m * inner.n / (128 * 128)
    waits = rounds * ceil(product.depth / inner.k) * (tile.across - 1) * _LOADED
    together = seconds(inner, needed, target) * rounds / least + waits
    once *= rounds if inner.cooperative else 1
    return copy_seconds(first, product, target) + together + once + _in_turns(problem, product, tile, rounds)


def _rounds(tile: WgmmaTile, product: Product, gpu: Gpu) -> int:
    return ceil(tile.blocks(product.m, product.n) / gpu.sms)


def _in_turns(problem: KernelProblem, product: Product, tile: NormTile, rounds: int) -> float:
    """What so many tiles of a block add where warpgroups take turns: products of few steps hide little of a store."""
    inner = tile.tile
    if inner.cooperative or product.depth > _SHALLOW:
        return 0.0
    kept = _KEPT * inner.m * inner.n / (128 * 128) * rounds if keeps(problem) else 0.0
    return kept + (_LATER * (rounds - 1) if tile.through_memory else 0.0)


def _through_memory(tile: WgmmaTile, product: Product, gpu: Gpu, *, whole: bool) -> float:
    """What the exchange and the second pass over the tile add; in turns, to the last tile of a block alone."""
    rounds = _rounds(tile, product, gpu)
    size = tile.m * tile.n / (128 * 128)
    once = _THROUGH_MEMORY + _AGAIN * size - (_AHEAD * size if whole else 0.0)
    return once * (rounds if tile.cooperative else 1)
