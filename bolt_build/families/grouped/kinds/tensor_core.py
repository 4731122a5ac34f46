"""Kernels for groups of several channels: implicit GEMM on the tensor-core instructions of one warp."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import ClassVar

from bolt_build.dtypes import DType
from bolt_build.families.common.blocks import refuse_shared
from bolt_build.families.common.cxx import boolean, struct
from bolt_build.families.common.element_types import HALVES
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.grouped.kind import Kind, Load, gpu_of
from bolt_build.families.grouped.kinds.warps import (
    Work,
    copied,
    product_clocks,
    read_bytes,
    seconds_of,
    store_waits,
    stored,
)
from bolt_build.families.grouped.shape import SPACE, Shape, aligned, wide
from bolt_build.families.reason import Reason
from bolt_build.targets import Gpu, Target

_OCTET = 8
"""Channels that a row of a matrix of shared memory has, and results that an instruction has."""
_ROWS = 16
"""Positions that an instruction has."""
_WHERE = {"shared": True, "global": False}
_SUMS = 96
"""Registers of a thread that sums may take."""
_MOST_WEIGHTS = 40 << 10
"""Bytes of weights that a block keeps in shared memory: beyond them, halos of other blocks are of more use."""
_TOGETHER = 4
"""Runs of eight results of several units that a warp computes at once: 64 bytes of a pixel."""
_SHARED, _GLOBAL = 20, 440
"""Clocks that a warp waits in each step for its weights, by where they lie. Fitted to 45 times of an H200."""


@dataclass(frozen=True)
class TensorCoreTile:
    """`rows` by `columns` positions of `units` units, for `warps` warps: a warp computes `fragments` times 16 positions
    of `together` units, of `n` times 8 results each, at once. `held`: weights are in shared memory, else in global."""

    units: int
    rows: int
    columns: int
    warps: int
    fragments: int
    together: int
    n: int
    held: bool
    halves: ClassVar[tuple[DType, ...]] = HALVES

    @property
    def parameters(self) -> Named:
        where = next(word for word, held in _WHERE.items() if held is self.held)
        sizes = (("units", self.units), ("rows", self.rows), ("columns", self.columns), ("warps", self.warps))
        of_warp = (("fragments", self.fragments), ("together", self.together), ("n", self.n))
        return (("kind", "tensor_core"), *sizes, *of_warp, ("weights", where))

    @classmethod
    def read(cls, reader: Reader) -> TensorCoreTile:
        reader.word("kind", {"tensor_core": "tensor_core"})
        units, rows, columns, warps = map(reader.number, ("units", "rows", "columns", "warps"))
        fragments, together, n = map(reader.number, ("fragments", "together", "n"))
        return cls(units, rows, columns, warps, fragments, together, n, reader.word("weights", _WHERE))

    def __str__(self) -> str:
        return (
            f"{self.rows}x{self.columns} of {self.units} units, weights in {'shared' if self.held else 'global'} memory"
        )

    def parts(self, shape: Shape) -> int:
        """Blocks beside each other along the channels."""
        return ceil(unit_count(shape) / self.units)

    def blocks(self, shape: Shape, run: int) -> int:
        return self.parts(shape) * ceil(shape.tiles(self.rows, self.columns) / run)

    def _splits(self, shape: Shape) -> int:
        return ceil(ceil(unit(shape)[1] / _OCTET) / self.n)

    @property
    def _chunks(self) -> int:
        return ceil(self.rows * self.columns / (_ROWS * self.fragments))

    def _items(self, shape: Shape) -> int:
        """What the warps of a block share."""
        return self._chunks * (self.units // self.together) * self._splits(shape)

    def _steps(self, shape: Shape, depth: int) -> int:
        return ceil(shape.taps * octets(shape) / (depth // _OCTET))

    def _weight_bytes(self, shape: Shape, depth: int) -> int:
        """Of a block."""
        return self.units * self._steps(shape, depth) * self._splits(shape) * self.n * 16 * depth

    def pitch(self, shape: Shape) -> int:
        """Elements of shared memory for a pixel: an odd number of octets, so that eight neighbours lie in all banks."""
        count = self.units * octets(shape)
        return (count + (count + 1) % 2) * _OCTET

    def holds(self, shape: Shape) -> bool:
        """True where a block's weights are few enough for shared memory."""
        return self._weight_bytes(shape, 16) <= _MOST_WEIGHTS

    def shared_bytes(self, shape: Shape, gpu: Gpu) -> int:
        """Two halos, the weights where they are held, where the depth lies in a halo, sums of each warp, and zeros."""
        height, width = shape.halo(self.rows, self.columns)
        depth = instruction(gpu)
        steps = self._steps(shape, depth)
        weights = self._weight_bytes(shape, depth) if self.held else 0
        table = aligned(4 * steps * (depth // _OCTET), 16)
        sums = self.together * self.n
        staged = self.warps * _ROWS * _OCTET * (sums + (sums + 1) % 2) * 4
        width = aligned(width, shape.stride[1])  # in as many turns as windows step over
        return 2 * 2 * height * width * self.pitch(shape) + weights + table + staged + 16

    def refuse(self, shape: Shape, gpu: Gpu) -> str | None:
        sums = 4 * self.fragments * self.together * self.n
        if sums > _SUMS:
            return Reason("its sums take {} registers of a thread, over {} do not stay in them", sums, _SUMS)
        if self._items(shape) < self.warps and (self.warps, self.fragments) != (2, 1):
            return Reason("only {} of its {} warps have work", self._items(shape), self.warps)
        if (reason := shape.refuse_waste(self.rows, self.columns)) is not None and (
            self.rows,
            self.columns,
        ) != min_extent(shape):
            return reason
        return refuse_shared(self.shared_bytes(shape, gpu), gpu)

    def seconds(self, shape: Shape, target: Target, run: int) -> float:
        height, width = shape.halo(self.rows, self.columns)
        steps, items = self._steps(shape, 16), self._items(shape)
        results = self.together * self.n
        mine = ceil(items / self.warps)
        operations = items * steps * self.fragments * results * 2 * _ROWS * _OCTET * 16
        shared = items * steps * (self.fragments * self.together * 512 + results * 256)
        staged = items * self.fragments * results * _ROWS * _OCTET * 4 * 2
        read = read_bytes(height * width, self.units * unit(shape)[0])
        copies = copied(shape, self.units, height, width, unit(shape)[0])
        multiplied = steps * self.together * (3 + self.n * (1 + self.fragments) + 2 * self.fragments)
        left = self.fragments * 4 * results + stored(shape, _ROWS * self.fragments, results * _OCTET, unit(shape)[1])
        waits = steps * self.together * (_SHARED if self.held else _GLOBAL) + store_waits(self.fragments)
        work = Work(
            product_clocks(operations, target), (shared + staged + read) / 128, copies + items * (multiplied + left),
            copies / self.warps + mine * (multiplied + left), mine * waits,
        )  # fmt: skip
        registers = 50 + 4 * self.fragments * results + 2 * self.n + 5 * self.fragments
        read = run * read + self._weight_bytes(shape, 16)
        load = Load(32 * self.warps, registers, self.shared_bytes(shape, gpu_of(target)), read, 0.0)
        return seconds_of(shape, load, work, self.blocks(shape, run), run, target)

    def sums(self, shape: Shape) -> None:
        """None: a warp's results leave through its own shared memory."""

    def flops(self, shape: Shape) -> int:
        n = self._splits(shape) * self.n * _OCTET
        depth = shape.taps * octets(shape) * _OCTET
        return 2 * shape.batch * shape.out[0] * shape.out[1] * self.parts(shape) * self.units * n * depth

    def weights(self, shape: Shape, gpu: Gpu) -> tuple[str, int]:
        return fragments(shape, self.parts(shape) * self.units, self._splits(shape) * self.n, gpu)

    def cxx(self, shape: Shape, gpu: Gpu) -> str:
        """`bolt::grouped::TensorCoreTile<bolt::grouped::Window<3, 3, 1, 1, 1, 1>, 8, 8, 4, 8, 8, 4, 1, 4, 1, 40, true,
        8, 8, 16>`"""
        given, made = unit(shape)
        sizes = (given, made, self.units, self.rows, self.columns, self.warps, self.fragments, self.together, self.n)
        widths = (load_width(shape), wide(made, shape.filters), instruction(gpu))
        words = (shape.window, *map(str, (*sizes, self.pitch(shape))), boolean(self.held), *map(str, widths))
        return f"{SPACE}::TensorCoreTile<{', '.join(words)}{shape.element}>"


def fragments(shape: Shape, units: int, tiles: int, gpu: Gpu) -> tuple[str, int]:
    """How weights of so many units, in so many tiles of results each, are packed as the operands of instructions, and
    the filters that they are of: `fragments.h`."""
    layout = struct(
        f"{SPACE}::Fragments",
        groups=shape.groups, joined=joined(shape), in_each=shape.of_group[0], out_each=shape.of_group[1],
        taps=shape.taps, to_units=units, to_tiles=tiles, instruction=instruction(gpu),
    )  # fmt: skip
    return layout, shape.filters


def instruction(gpu: Gpu) -> int:
    """The depth of the tensor-core instruction."""
    found = gpu.instruction("fp16")
    assert found is not None
    return found[2]


def joined(shape: Shape) -> int:
    """Groups of a unit: as many as fit into one octet."""
    return max(1, min(_OCTET // shape.of_group[0], shape.groups))


def unit(shape: Shape) -> tuple[int, int]:
    """Channels and results of a unit."""
    (given, made), count = shape.of_group, joined(shape)
    return count * given, count * made


def unit_count(shape: Shape) -> int:
    return ceil(shape.groups / joined(shape))


def octets(shape: Shape) -> int:
    """Octets of channels that a unit takes."""
    return ceil(unit(shape)[0] / _OCTET)


def load_width(shape: Shape) -> int:
    """Elements of an access to the input."""
    return wide(unit(shape)[0], shape.channels)


def min_extent(shape: Shape) -> tuple[int, int]:
    """The tile that there is for any image."""
    return (1, 16) if shape.out[0] == 1 else (4, 4)


_EXTENTS = ((4, 4), (4, 8), (7, 7), (8, 8), (4, 16), (8, 16), (4, 14), (7, 14), (8, 14), (4, 28))
_LINES = ((1, 16), (1, 32), (1, 64), (1, 128))
_UNIT_OCTETS = (1, 2, 4, 8, 16)
"""Octets of channels that a block may have, where units are smaller."""


def tiles(shape: Shape) -> Iterator[TensorCoreTile]:
    """The tiles that may be some for a problem."""
    found = ceil(unit(shape)[1] / _OCTET)
    least = ceil(found / 8)
    counts = dict.fromkeys(min(max(1, size // octets(shape)), unit_count(shape)) for size in _UNIT_OCTETS)
    columns = dict.fromkeys(ceil(found / splits) for splits in (least, 2 * least) if splits <= found)
    for units, n, (rows, width) in product(counts, columns, _LINES if shape.out[0] == 1 else _EXTENTS):
        together = 1
        if n == found:
            together = max(t for t in (1, 2, 4) if t == 1 or (t * n <= _TOGETHER and units % t == 0))
        for warps, fragments in product((2, 4, 8), (1, 2, 4)):
            tile = TensorCoreTile(units, rows, width, warps, fragments, together, n, held=True)
            yield tile if tile.holds(shape) else replace(tile, held=False)


def _serves(shape: Shape) -> bool:
    return shape.of_group[0] > 1


KIND = Kind("grouped", _serves, tiles, TensorCoreTile.read)
