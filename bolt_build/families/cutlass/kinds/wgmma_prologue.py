"""Kernels for one product on Hopper whose left factor is transformed as it is loaded: TMA brings it to shared memory,
and WGMMA reads it from the registers in which it was transformed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product as every
from math import ceil

from bolt_build.families.base import (
    Candidate,
    Expense,
    KernelProblem,
    KernelUnit,
    StepCode,
    StepExpressions,
)
from bolt_build.families.common.chains import parts
from bolt_build.families.common.cxx import boolean, struct
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.common.units import named_unit
from bolt_build.families.cutlass.apart import between_rows, reads_apart
from bolt_build.families.cutlass.constants import constant
from bolt_build.families.cutlass.epilogue import (
    epilogue_type,
    epilogue_value,
    residual,
    stage_words,
    stages_type,
    stages_value,
)
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.kinds.rules import MEASURED_RATE
from bolt_build.families.cutlass.kinds.wgmma import (
    F16,
    LEAST_STAGES,
    TURNS,
    WgmmaTile,
    refuse_product,
    stages,
    store_bytes,
)
from bolt_build.families.cutlass.kinds.wgmma_time import seconds
from bolt_build.families.cutlass.product import Product, Work, work
from bolt_build.families.cutlass.products import multiplies
from bolt_build.families.cutlass.prologue import Prologue, behind, prologue_of, refuse_prologue
from bolt_build.families.cutlass.tile_kind import TileKind
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.arithmetic import Binary
from bolt_build.targets import Gpu, Target

_IMAGES = (2, 4, 8)
"""Images of which a tile's rows may be: gates of so many lie beside the factors of a step."""
_MOST_REGISTERS = {2: 176, 3: 112, 4: 80}
"""Registers of a thread that its sums and two halves of a step of its left factor may take, by how many warpgroups
share a multiprocessor's."""

# Fitted to 307 kernels on an H200, off by 5%: seconds in which a warp transforms 16 x 16 elements.
_AFFINE, _GATE = 3.2e-8, 2.6e-8
# Fitted to 22 kernels on an H200 that share a depth, each beside the usual form of its shape (`prologue_forms.json`):
# off by 5%.
_DEEP_AFFINE, _DEEP_GATE = 4.8e-8, 6.5e-8
"""The same where two warpgroups share the depth: they are in each other's way, and gates gain nothing."""
_EXCHANGE = 4.0e-7
"""Seconds in which they add up 64 x 64 sums of a tile, behind two barriers: nothing is multiplied meanwhile."""


@dataclass(frozen=True)
class PrologueTile:
    """A tile, in clusters of one, and the images whose gates lie beside a step; 0 where there are scales of all.

    `deep`: so many warpgroups compute a tile of 64 rows together, each its part of every step's columns, and add up
    their sums. A warpgroup alone waits longer for what it transforms than for its products.
    """

    tile: WgmmaTile
    images: int = 0
    deep: int = 1

    @property
    def parameters(self) -> Named:
        of = (("prologue", "gate"), ("images", self.images)) if self.images else (("prologue", "affine"),)
        deep = (("deep", self.deep),) if self.deep > 1 else ()
        return (*self.tile.parameters, *deep, *of)

    @classmethod
    def read(cls, reader: Reader) -> PrologueTile:
        """Raises ValueError."""
        kind = reader.word("prologue", {"gate": True, "affine": False})
        images = reader.number("images") if kind else 0
        return cls(WgmmaTile.read(reader), images, reader.number("deep", 1))

    @property
    def multiplying(self) -> int:
        """Warpgroups of a block that compute."""
        return self.tile.warpgroups * self.tile.teams * self.deep

    @property
    def table_bytes(self) -> int:
        """Shared memory of scales, shifts or gates of a step."""
        return self.tile.k * (2 * self.images if self.images else 2 * 4)

    @property
    def left_registers(self) -> int:
        """Registers of a thread that hold a step of the left factor."""
        return self.tile.m // (64 * self.tile.warpgroups) * self.tile.k // 16 * 4 // self.deep

    @property
    def exchange_bytes(self) -> int:
        """Shared memory through which warpgroups add up their sums: `DepthExchange` of shared_depth.h."""
        if self.deep == 1:
            return 0
        numbers = self.tile.n // 4  # of a thread
        at_once = numbers if numbers <= 16 else 16 if numbers % 16 == 0 else 12
        return self.tile.teams * 256 * at_once * 4

    def stages(self, gpu: Gpu, residual: bool) -> int:
        """Stages of the pipeline that shared memory has room for."""
        tile, taken = self.tile, self.exchange_bytes
        stored = store_bytes(
            tile.n // self.deep, tile.warpgroups, residual, tile.stage_bytes, taken, teams=tile.teams * self.deep
        )
        return stages(gpu.shared_memory, tile.stage_bytes + self.table_bytes, taken + stored)

    def refuse(self, gpu: Gpu, product: Product) -> str | None:
        """Why no kernel with the tile computes the product on this GPU, None where one does."""
        # Fewer bytes come to each multiprocessor where narrow tiles are at work on more of them.
        one_wave = self.deep > 1 and self.tile.blocks(product.m, product.n) <= gpu.sms
        if (reason := self.tile.refuse(gpu, product, again=one_wave)) is not None:
            return reason
        registers, most = self.tile.accumulators + self.left_registers, _MOST_REGISTERS[self.multiplying]
        if registers > most:
            return Reason("its accumulators and left factor take {} registers of a thread, over {}", registers, most)
        if (count := self.stages(gpu, product.residual)) < LEAST_STAGES:
            return Reason("shared memory has room for {} stages of its pipeline, {} are needed", count, LEAST_STAGES)
        return self.tile.refuse_whole(gpu, product)

    def seconds(self, work: Work, target: Target) -> float:
        """Predicted time."""
        gpu = gpu_of(target)
        speed = target.rate("fp16") / gpu.sms / MEASURED_RATE
        affine, gate, added = _AFFINE, _GATE, 0.0
        if self.deep > 1:
            affine, gate = _DEEP_AFFINE, _DEEP_GATE
            added = ceil(self.tile.blocks(work.m, work.n) / gpu.sms) * _EXCHANGE * self.tile.n / 64 / speed
        before = self.left_registers / 4 * (gate if self.images else affine) / speed
        return added + seconds(self.tile, work, target, before=before)

    def cxx(self, product: Product) -> str:
        """`bolt::cutlass_kernels::WarpgroupPrologue<128, 128, 64, false>`"""
        tile = self.tile
        values = (tile.m, tile.n, tile.k, boolean(tile.cooperative))
        more = (
            f"{product.element or F16}, {tile.teams}, {self.deep}" if tile.pairs or self.deep > 1 else product.element
        )
        return f"{SPACE}::WarpgroupPrologue<{', '.join(map(str, values))}{more}>"

    def __str__(self) -> str:
        shared = f" whose depth {self.deep} share" if self.deep > 1 else ""
        return (
            f"{self.tile}{shared} with gates of {self.images} images"
            if self.images
            else f"{self.tile}{shared} with scales"
        )


_ROWS = {False: (64, 128), True: (128, 256)}
_COLUMNS = (16, 32, 64, 96, 128, 192, 256)
_DEPTHS = (32, 64, 128)
_TILES = tuple(
    WgmmaTile(m, n, k, cooperative)
    for cooperative, k, n in every(TURNS.values(), _DEPTHS, _COLUMNS)
    for m in _ROWS[cooperative]
)
_THREE = tuple(WgmmaTile(192, n, k, True) for k, n in every(_DEPTHS, (32, 64, 96, 128, 192)))
_PAIRS = tuple(WgmmaTile(m, n, k, True, pairs=True) for k, n, m in every((32, 64), (16, 32, 64, 128), (128, 256)))
_SHARE = 2
_DEEP = tuple(WgmmaTile(64, n, k, False) for k, n in every((64, 128), (32, 64, 96, 128)))
"""Warpgroups that share the depth of a tile, and the tiles: another two have the next one meanwhile."""


def images_of(rows: int, pixels: int) -> int:
    """Images of which so many rows of a factor may be, one behind the other, wherever they begin."""
    return 1 + ceil((rows - 1) / pixels)


@dataclass(frozen=True)
class Prologued:
    """A product, and what its left factor is multiplied with."""

    product: Product
    prologue: Prologue


class WgmmaPrologue(TileKind[PrologueTile, Prologued]):
    """The kind of a multiplication and the product that alone reads it."""

    def serves(self, problem: KernelProblem) -> bool:
        first, *rest = problem.op.sequence
        return isinstance(first.op, Binary) and len(rest) == 1 and multiplies(rest[0].op)

    def read_tile(self, reader: Reader) -> PrologueTile:
        return PrologueTile.read(reader)

    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        return refuse_prologue(problem) or refuse_product(gpu, behind(problem))

    def computed(self, problem: KernelProblem) -> Prologued:
        return Prologued(behind(problem), prologue_of(problem))

    def tiles_for(self, what: Prologued, gpu: Gpu) -> tuple[tuple[PrologueTile, ...], str | None]:
        return _tiles(what.prologue), None

    def refuse_tile(self, tile: PrologueTile, what: Prologued, gpu: Gpu) -> str | None:
        return tile.refuse(gpu, what.product)

    def seconds(self, problem: KernelProblem, what: Prologued, candidate: Candidate, target: Target) -> float:
        return self.tile_of(candidate).seconds(_work(problem, what), target)

    def group(self, tile: PrologueTile) -> str:
        if tile.deep > 1:
            return "WGMMA that shares the depth"
        if tile.tile.pairs:
            return "pairs of WGMMA"
        return "three of WGMMA" if tile.multiplying == 3 else "WGMMA"

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        """Of both, without what lies between them."""
        return Expense(problem.nbytes, problem.flops)

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        return reads_apart(problem, behind(problem), prologue_of(problem).x, residual(problem))

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        (first, second), tile, prologue, product = (
            parts(problem), self.tile_of(candidate), prologue_of(problem), behind(problem)
        )  # fmt: skip
        own, added = [index for index in op_operands(problem) if index >= len(first.inputs)], residual(problem)
        member = f"{SPACE}::PrologueGemm<{tile.cxx(product)}, {_type(tile, prologue)}, {epilogue_type(second)}>"
        apart = {"x_row": at.input_pitch(prologue.x)} if at.input_pitch(prologue.x) else {}
        rows = first.outputs[0].shape[0] if prologue.gate else 2
        constants = () if prologue.gate else (prologue.scale,)
        shifts = () if prologue.shift is None else (prologue.shift,)
        arguments = (
            product.arguments(between_rows(at, added)),
            struct(f"{SPACE}::PrologueArguments", rows=rows, pixels=prologue.pixels, **apart),
            _value(tile, prologue), constant(at, *constants), constant(at, *shifts), constant(at, own[0]),
            product.weights, constant(at, *own[1:]), epilogue_value(second),
        )  # fmt: skip
        gates = at.inputs[prologue.scale] if prologue.gate else "nullptr"
        other = "nullptr" if added is None else at.inputs[added]
        call = f"kernel.run(r, {at.inputs[prologue.x]}, {gates}, {other}, {at.outputs[0]});"
        return StepCode(("bolt_cutlass/prologue.h",), member, ", ".join(arguments), call)

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        (first, second), tile, prologue = parts(problem), self.tile_of(candidate), prologue_of(problem)
        text = (
            f'#include "bolt_cutlass/gemm_prologue_warpgroup_kernel.h"\n\n'
            f"template void {SPACE}::launch_gemm(\n    {tile.cxx(behind(problem))},\n"
            f"    const {SPACE}::GemmArguments&, const {SPACE}::PrologueArguments&,\n"
            f"    const {_type(tile, prologue)}&,\n    const {epilogue_type(second)}&, void*);\n"
        )
        label = f"mul{stage_words(first)} | gemm{stage_words(second)}, tile {tile}"
        return named_unit(text, WgmmaTile.memory_mb, label)


def _tiles(prologue: Prologue) -> tuple[PrologueTile, ...]:
    """All tiles; of those whose rows may be of gates of more images than there is room for, none."""
    found = []
    for tile, deep in (*((tile, 1) for tile in (*_TILES, *_THREE, *_PAIRS)), *((tile, _SHARE) for tile in _DEEP)):
        needed = images_of(tile.m, prologue.pixels)
        images = next((count for count in _IMAGES if count >= needed), None) if prologue.gate else 0
        if images is not None:
            found.append(PrologueTile(tile, images, deep))
    return tuple(found)


def _work(problem: KernelProblem, what: Prologued) -> Work:
    """The product's, with the bytes that the prologue reads."""
    first, second = parts(problem)
    read = sum(operand.nbytes for index, operand in enumerate(first.inputs) if index != what.prologue.x)
    whole = work(second, what.product)
    return replace(whole, nbytes=whole.nbytes + read)


def _type(tile: PrologueTile, prologue: Prologue) -> str:
    """`bolt::cutlass_kernels::Gate<4>`"""
    if prologue.gate:
        return f"{SPACE}::Gate<{tile.images}>"
    return f"{SPACE}::Affine<{stages_type(prologue.functions)}>"


def _value(tile: PrologueTile, prologue: Prologue) -> str:
    return f"{_type(tile, prologue)}{{{'' if prologue.gate else stages_value(prologue.functions)}}}"
