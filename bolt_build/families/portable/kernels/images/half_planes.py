"""Planes in half precision that are resampled on tensor cores, along both axes. A warp goes down a strip of columns:
rows of the input times a band of weights stay in its registers, and are a factor of rows of results. Runs of rows come
to shared memory and go from there by TMA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import ClassVar

from bolt_build.families.base import KernelProblem, StepCode, StepExpressions
from bolt_build.families.common.blocks import occupancy, refuse_shared
from bolt_build.families.common.cost import OVERLAPPED, moved
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.portable.form import Form
from bolt_build.families.portable.kernels.images.pool_windows import channels_last
from bolt_build.families.portable.kernels.images.resample_images import (
    ImageAxis,
    Images,
    arguments,
    images_of,
    stores_wider,
)
from bolt_build.families.portable.number_tile import NumberTile
from bolt_build.families.portable.typed import ctype
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.images.resample import Resample
from bolt_build.targets import Gpu, Target

_HOPPER = 90
_WARP, _SIZE, _ACCESS, _BANKS = 32, 2, 16, 64
"""Threads of a warp, bytes of an element, and of an access; and bytes, half of all banks of shared memory, by whose
multiples rows must not be apart."""
_ROWS, _COLUMNS, _BLOCK = 8, 16, 8
"""Results of a tile along either axis, and rows of a block of the input."""
_WARPS, _STRIPS, _PLANES = (2, 4, 8, 16), (1, 2), (2, 4, 8, 16, 32)
"""Warps of a block, tiles beside each other that a warp has at once, and planes of a block that has several, that are
tried."""
_TILES = (2, 4, 8, 16, 32, 64)
"""Tiles of rows of a block that are tried."""
_LARGEST = (1 << 31) - 1
_REGISTERS, _OF_WINDOW = 66, 12
"""Of a thread, at most: what nvcc makes of it; and those for each further window of columns of a tile."""


def _whole(elements: int, of: int) -> int:
    return ceil(elements / of) * of


def _step(axis: ImageAxis) -> float:
    """Elements from one result to the next, at most: of images whose corners are aligned, or whose edges are."""
    return max(axis.extent / axis.made, (axis.extent - 1) / max(axis.made - 1, 1))


def _window(axis: ImageAxis, results: int) -> int:
    """Elements that so many results beside each other are made of, at most: places are whole."""
    return ceil((results - 1) * _step(axis)) + axis.taps


@dataclass(frozen=True)
class HalfPlanesTile(NumberTile):
    """A block has `warps` warps and takes `turns` parts one after the other: `planes` planes each, or `tiles` tiles of
    eight rows of results of one. A warp has `strip` tiles of columns at once."""

    SETTINGS: ClassVar[tuple[str, ...]] = ("turns",)

    planes: int
    tiles: int
    warps: int
    strip: int
    turns: int

    def parts_of_plane(self, images: Images) -> int:
        return ceil(row_tiles_of(images) / self.tiles)

    def parts(self, images: Images) -> int:
        return ceil(images.outer / self.planes) * self.parts_of_plane(images)

    def blocks(self, images: Images) -> int:
        return ceil(self.parts(images) / self.turns)

    def strips(self, images: Images) -> int:
        """Strips of a plane."""
        return ceil(column_tiles_of(images) / self.strip)

    def room(self, images: Images) -> int:
        """Rows of the input of a plane that a part is made of, at most."""
        rows = images.rows
        if self.parts_of_plane(images) == 1:
            return rows.extent
        return min(rows.extent, ceil(_ROWS * (self.tiles - 1) * _step(rows)) + _BLOCK * (1 + high_of(images)))

    def shared(self, images: Images) -> int:
        """Bytes of shared memory of a block (`HalfPlanesTile` of `half_planes.h`)."""
        rows, columns, wide, high = images.rows, images.columns, wide_of(images), high_of(images)
        column_tiles, row_tiles = column_tiles_of(images), row_tiles_of(images)
        at = _whole(_ACCESS + 1024 * wide * column_tiles + 4 * column_tiles, _ACCESS) + 256 * high * row_tiles
        at = _whole(at + 4 * row_tiles, _ACCESS)
        at += 2 * ((self.planes * self.room(images) * _pitch(columns.extent) + 32 * wide + 30) // _ACCESS * _ACCESS)
        made = self.planes * rows.made if self.parts_of_plane(images) == 1 else _ROWS * self.tiles
        return at + (made * _pitch(columns.made) + 30) // _ACCESS * _ACCESS

    def registers(self, images: Images) -> int:
        return _REGISTERS + _OF_WINDOW * (self.strip - 1 + (wide_of(images) - 1) * self.strip)

    def resident(self, images: Images, gpu: Gpu) -> int:
        """Blocks of a multiprocessor."""
        return occupancy(_WARP * self.warps, self.registers(images), self.shared(images), gpu)

    def text(self, images: Images) -> str:
        """A `HalfPlanesTile` of `half_planes.h`."""
        rows, columns = images.rows, images.columns
        numbers = (
            rows.extent, rows.made, columns.extent, columns.made, self.planes, self.tiles, self.warps, self.strip,
            wide_of(images), high_of(images), self.room(images), _gap(columns.extent), _gap(columns.made),
        )  # fmt: skip
        return f"bolt::portable::HalfPlanesTile<{', '.join(map(str, numbers))}>"


def row_tiles_of(images: Images) -> int:
    return ceil(images.rows.made / _ROWS)


def column_tiles_of(images: Images) -> int:
    return ceil(images.columns.made / _COLUMNS)


def wide_of(images: Images) -> int:
    """Columns of a tile's window, in sixteens. It begins at an even one where rows all do."""
    columns = images.columns
    return ceil((_window(columns, _COLUMNS) + (columns.extent + 1) % 2) / _COLUMNS)


def high_of(images: Images) -> int:
    """Blocks of rows of a tile's window, which begins with a block."""
    return ceil((_window(images.rows, _ROWS) + _BLOCK - 1) / _BLOCK)


def _gap(row: int) -> int:
    """Accesses between rows in shared memory: those that would begin in nearly the same banks stand apart. Rows that
    are, are copied one by one, and have more than an access."""
    beyond = row * _SIZE % _BANKS
    return 1 if row * _SIZE > _BANKS // 2 and min(beyond, _BANKS - beyond) < _ACCESS // 2 else 0


def _pitch(row: int) -> int:
    """Bytes from one row to the next in shared memory."""
    return row * _SIZE + _ACCESS * _gap(row)


def serves_planes(problem: KernelProblem) -> bool:
    return problem.outputs[0].type.elements > 0 and not channels_last(problem)


def _refuse(problem: KernelProblem, gpu: Gpu) -> str | None:
    if gpu.sm < _HOPPER:
        return "runs of memory are copied by TMA, which GPUs have from Hopper on"
    return refuse_planes(problem)


def refuse_planes(problem: KernelProblem) -> str | None:
    """Why tensor cores resample no such planes, None where they do."""
    assert isinstance(problem.op, Resample)
    if problem.inputs[0].format.dtype not in HALVES or stores_wider(problem):
        return "tensor cores multiply planes of half precision, which stay so"
    images = images_of(problem)
    if len(problem.op.axes) < 2 or images.inner != 1:
        return "tensor cores multiply along rows and columns, neighbours side by side"
    if _step(images.rows) >= images.rows.taps + 1:
        what = "{} rows become {}, each of which is made of {}: those between them are not to be read"
        return Reason(what, images.rows.extent, images.rows.made, images.rows.taps)
    if max(axis.extent * other.extent for axis, other in _planes(images)) * _SIZE > _LARGEST:
        return "planes are too large to be counted in 32 bits"
    return None


def _planes(images: Images) -> Iterator[tuple[ImageAxis, ImageAxis]]:
    """Planes of the input, and of the results."""
    rows, columns = images.rows, images.columns
    yield rows, columns
    yield replace(rows, extent=rows.made), replace(columns, extent=columns.made)


def _refuse_tile(tile: HalfPlanesTile, images: Images, gpu: Gpu) -> str | None:
    """Why no kernel has the planes so on this GPU, None where one does."""
    if tile.planes > 1 and tile.parts_of_plane(images) > 1:
        return Reason("a block that has parts of planes has them of one, not of {}", tile.planes)
    if tile.tiles > (most := row_tiles_of(images)):
        return Reason("a block has {} tiles of rows, a plane {}", tile.tiles, most)
    if tile.warps not in _WARPS:
        return Reason("blocks have 2, 4, 8 or 16 warps, not {}", tile.warps)
    if tile.strip not in _STRIPS:
        return "a warp has 1 or 2 tiles of columns at once"
    if tile.turns > tile.parts(images):
        return Reason("a block has {} parts one after the other, of {} in all", tile.turns, tile.parts(images))
    return refuse_shared(tile.shared(images), gpu)


def _tiles(images: Images, gpu: Gpu) -> Iterator[HalfPlanesTile]:
    """Of as many parts a block as there are for blocks that are there at once."""
    row_tiles = row_tiles_of(images)
    cuts = [(1, tiles) for tiles in sorted({ceil(row_tiles / ceil(row_tiles / wanted)) for wanted in _TILES})]
    cuts += [(planes, row_tiles) for planes in _PLANES if planes < 2 * images.outer]
    for planes, tiles in cuts:
        for warps, strip in product(_WARPS, _STRIPS):
            tile = HalfPlanesTile(planes, tiles, warps, strip, 1)
            if refuse_shared(tile.shared(images), gpu) is not None:
                yield tile
            elif warps <= planes * tile.strips(images):
                there = tile.resident(images, gpu) * gpu.sms
                yield replace(tile, turns=ceil(tile.parts(images) / there))


_REACHED = 0.86
"""The part of a GPU's bandwidth at which bytes move, as of copies of parts on an H200. This and the following are
counted in the kernel's code, or fitted to 70 kernels of fifteen problems, for which an H200 took 16% more or less.
Weights were filled in more slowly then."""
_CLOCK = 1.755e9
"""Cycles of a multiprocessor in a second."""
_FILL, _PART, _STRIP, _ROWS_WAIT, _TILE_WAIT = 365, 150, 760, 135, 340
"""Cycles of a warp for two neighbours' weights, for a part, for a strip, for each block of rows, and for each tile of
two blocks of rows and one of columns."""
_COPY = 32
"""Cycles of a multiprocessor for a copy by TMA: those of single rows are many."""
_BLOCK_ISSUED, _TILE_ISSUED, _ELSE_ISSUED = (14, 20), (14, 12), 160
"""Instructions of a warp for a block of rows and a tile, and for each of its tiles of columns beside products and loads
of elements; and for each part."""
_GIVEN, _MADE = 2.0, 1.5
"""Turns that accesses of a warp to rows of the input, and to those of results, take."""
_SHARED, _BESIDE = 0.3, 0.64
"""What accesses to shared memory take of what is counted, and the part of what takes less time that is not hidden."""
_SURE = 1.15
"""How much longer a kernel is taken to be than that: where predictions are alike, kernels without tensor cores have
been faster."""


def _seconds(problem: KernelProblem, tile: HalfPlanesTile, target: Target) -> float:
    """What takes longest of the bytes, accesses to shared memory, instructions, copies, and what warps wait for."""
    gpu, images = target.gpu, images_of(problem)
    assert gpu is not None, "tensor cores are of GPUs"
    wide, high, strip = wide_of(images), high_of(images), tile.strip
    results = min(tile.tiles, row_tiles_of(images))
    given, made = tile.room(images), min(_ROWS * results, images.rows.made)
    rows, strips = given / _BLOCK, tile.planes * tile.strips(images)
    loads = 2 if images.columns.extent % 2 == 0 else 4
    copied = tile.planes * (given * _pitch(images.columns.extent) + made * _pitch(images.columns.made))
    shared = copied / (2 * _BANKS) + strips * (
        rows * strip * wide * loads * _GIVEN + results * (2 * high + 1 + 4 * strip * _MADE) + 8 * strip * wide
    )
    issued = tile.warps * _ELSE_ISSUED + strips * (
        rows * (_BLOCK_ISSUED[0] + strip * (wide * (2 * loads + 2) + _BLOCK_ISSUED[1]))
        + results * (_TILE_ISSUED[0] + strip * (3 * ceil(high / 2) + _TILE_ISSUED[1]))
    )
    of_tile = _TILE_WAIT * (1 + high) / 3 * (1 + strip) / 2
    waits = _PART + ceil(strips / tile.warps) * (_STRIP + rows * _ROWS_WAIT + results * of_tile)
    copies = tile.planes * (_gap(images.columns.extent) * given + _gap(images.columns.made) * made)
    fill = _FILL * (
        4 * wide * ceil(column_tiles_of(images) / tile.warps) + high * ceil(row_tiles_of(images) / tile.warps)
    )
    parts = tile.parts(images) / gpu.sms
    there = min(float(tile.resident(images, gpu)), parts)
    taken = sorted((
        moved(problem.nbytes, target) / _REACHED,
        parts * shared * _SHARED / _CLOCK,
        parts * issued / 4 / _CLOCK,
        parts * copies * _COPY / _CLOCK,
        ceil(parts / there) * waits / _CLOCK,
    ))  # fmt: skip
    together = _SURE * (taken[-1] + _BESIDE * taken[-2] + fill / _CLOCK)
    return float(together + OVERLAPPED * target.launch_seconds)


def _emit(problem: KernelProblem, tile: HalfPlanesTile, at: StepExpressions) -> StepCode:
    images = images_of(problem)
    parameters, axes = arguments(images, at)
    how = f"{ctype(problem.inputs[0].format.dtype)}, {tile.text(images)}, {images.rows.taps}, {images.columns.taps}"
    call = (
        f"bolt::portable::resample_half_planes<{how}>(r, {parameters}, {axes}, {tile.turns}, {at.inputs[0]}, "
        f"{at.outputs[0]});"
    )
    return StepCode(("bolt_portable/cuda/images/half_planes.h",), None, "", call)


FORM: Form[HalfPlanesTile] = Form(
    "tensor_cores",
    serves_planes,
    _refuse,
    lambda problem, gpu: _tiles(images_of(problem), gpu),
    lambda problem, tile, gpu: _refuse_tile(tile, images_of(problem), gpu),
    _seconds,
    HalfPlanesTile.read,
    _emit,
)
