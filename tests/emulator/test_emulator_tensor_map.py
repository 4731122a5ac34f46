"""The emulated TMA: boxes of tensors and windows of images as NumPy cuts them out, swizzled or not."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import emulated
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bolt_build import emulator
from bolt_build.toolchain import probe

INVALID, UNSUPPORTED = 1, 801
TYPES = {1: 0, 2: 1, 4: 2, 8: 4}
"""Bytes of an element: CUtensorMapDataType."""
SHARED = 1 << 16
POISON = 0xA5
NOTHING = 0x5A
"""Bytes of memory that is not the tensor's."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    headers = probe(("nvcc",)).tool("nvcc")
    if headers.path is None:
        pytest.skip(f"needs the headers of CUDA: {headers.problem}")
    library = tmp_path_factory.mktemp("engine") / "engine.so"
    own = [*sorted(emulator.SOURCES.glob("tensor_map_*.cpp")), emulator.SOURCES / "memory.cpp"]
    sources = [*own, emulator.SOURCES / "overlap.cpp"]
    sources.append(emulated.PROBES / "tensor_map_probe.cpp")
    command = [
        probe(("cxx",)).tool("cxx").path,
        *emulator.cxx_flags(),
        f"-iquote{emulator.SOURCES}",
        "-shared",
        "-o",
        library,
        *sources,
    ]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.box_bytes.restype = ctypes.c_size_t
    return loaded


@dataclass(frozen=True)
class Tensor:
    """Elements in memory, innermost dimension first, with `gap` times 16 bytes behind every row."""

    memory: NDArray[np.uint8]
    values: NDArray[np.generic]
    strides: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        return self.values.shape[::-1]

    @property
    def element(self) -> int:
        return self.values.itemsize


def aligned(size: int, alignment: int) -> NDArray[np.uint8]:
    room = np.full(size + alignment, NOTHING, np.uint8)
    at = -room.ctypes.data % alignment
    return room[at : at + size]


def tensor(extents: Sequence[int], element: int, gap: int = 0, seed: int = 0) -> Tensor:
    """Ends with its last element."""
    strides = [element]
    row = -(-extents[0] * element // 16) * 16 + 16 * gap
    for extent in extents[1:]:
        strides.append(row)
        row *= extent
    size = sum((extent - 1) * stride for extent, stride in zip(extents, strides, strict=True)) + element
    memory = aligned(size, 16)
    dtype = np.dtype(f"u{element}")
    view = np.ndarray(extents[::-1], dtype, memory, strides=strides[::-1])
    view[...] = np.random.default_rng(seed).integers(1, 1 << (8 * element - 1), view.shape, dtype=dtype)
    return Tensor(memory, view, tuple(strides[1:]))


def numbers(kind: type, values: Sequence[int]) -> ctypes.Array:  # type: ignore[type-arg]
    return (kind * max(len(values), 1))(*values)


class Map:
    """A tensor map, and the memory that copies by it may touch."""

    def __init__(self, engine: ctypes.CDLL, of: Tensor, result: int, map: NDArray[np.uint8]) -> None:
        self.engine, self.tensor, self.result, self.map = engine, of, result, map
        self.message = ctypes.create_string_buffer(200)

    @property
    def bytes(self) -> int:
        return int(self.engine.box_bytes(self._at))

    @property
    def _at(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.map.ctypes.data)

    def _copy(self, name: str, *arguments: object) -> str:
        memory = ctypes.c_void_p(self.tensor.memory.ctypes.data)
        self.engine.allow(memory, ctypes.c_size_t(self.tensor.memory.nbytes))
        done = getattr(self.engine, name)(self._at, *arguments, self.message, ctypes.c_size_t(200))
        self.engine.forbid(memory)
        return "" if done == 0 else self.message.value.decode()

    def load(
        self, start: Sequence[int], address: int = 0, offsets: Sequence[int] | None = None
    ) -> tuple[str, NDArray[np.uint8]]:
        shared = np.full(SHARED, POISON, np.uint8)
        tap = None if offsets is None else numbers(ctypes.c_uint16, offsets)
        window = ctypes.c_void_p(shared.ctypes.data)
        said = self._copy("load_box", numbers(ctypes.c_int32, start), tap, window, ctypes.c_uint32(address))
        return said, shared

    def store(self, start: Sequence[int], shared: NDArray[np.uint8], address: int = 0) -> str:
        window = ctypes.c_void_p(shared.ctypes.data)
        return self._copy("store_box", numbers(ctypes.c_int32, start), window, ctypes.c_uint32(address))


def described(of: Tensor) -> tuple[object, ...]:
    return (
        TYPES[of.element], len(of.extents), ctypes.c_void_p(of.memory.ctypes.data),
        numbers(ctypes.c_uint64, of.extents), numbers(ctypes.c_uint64, of.strides),
    )  # fmt: skip


def tiled(
    engine: ctypes.CDLL, of: Tensor, box: Sequence[int], steps: Sequence[int] | None = None, swizzle: int = 0
) -> Map:
    map = aligned(128, 64)
    between = numbers(ctypes.c_uint32, steps or [1] * len(box))
    at = ctypes.c_void_p(map.ctypes.data)
    return Map(
        engine, of, engine.encode_tiled(at, *described(of), numbers(ctypes.c_uint32, box), between, swizzle), map
    )


def windows(
    engine: ctypes.CDLL, of: Tensor, lower: Sequence[int], upper: Sequence[int], channels: int, pixels: int,
    steps: Sequence[int] | None = None, swizzle: int = 0,
) -> Map:  # fmt: skip
    map = aligned(128, 64)
    corners = numbers(ctypes.c_int, lower), numbers(ctypes.c_int, upper)
    between = numbers(ctypes.c_uint32, steps or [1] * len(of.extents))
    at = ctypes.c_void_p(map.ctypes.data)
    return Map(engine, of, engine.encode_im2col(at, *described(of), *corners, channels, pixels, between, swizzle), map)


def cut(of: Tensor, start: Sequence[int], counts: Sequence[int], steps: Sequence[int]) -> NDArray[np.generic]:
    """A box of the tensor, zero beyond it."""
    places = [first + np.arange(count) * step for first, count, step in zip(start, counts, steps, strict=True)][::-1]
    sizes = of.values.shape
    there = [(at >= 0) & (at < size) for at, size in zip(places, sizes, strict=True)]
    found = of.values[np.ix_(*(np.clip(at, 0, size - 1) for at, size in zip(places, sizes, strict=True)))]
    return np.where(functools.reduce(np.logical_and.outer, there), found, np.zeros((), of.values.dtype))


def in_shared(box: NDArray[np.generic], address: int, swizzle: int) -> NDArray[np.uint8]:
    """Shared memory after a load: chunks of 16 bytes change places among 2, 4 or 8, by the number of their 128."""
    shared = np.full(SHARED, POISON, np.uint8)
    flat = np.ascontiguousarray(box).reshape(-1).view(np.uint8)
    at = address + np.arange(flat.size)
    shared[at ^ (at // 128 % (1 << swizzle)) * 16] = flat
    return shared


@st.composite
def boxes(draw: st.DrawFn) -> tuple[Tensor, tuple[int, ...], tuple[int, ...], tuple[int, ...], int, int]:
    """A tensor, a box, its steps, where it begins, its address in shared memory and its swizzle."""
    rank = draw(st.integers(1, 5))
    element = draw(st.sampled_from(list(TYPES)))
    swizzle = draw(st.integers(0, 3))
    row = 16 << swizzle if swizzle else draw(st.sampled_from([16, 48, 128]))
    counts = (row // element, *(draw(st.integers(1, 5)) for _ in range(rank - 1)))
    steps = (1, *(draw(st.integers(1, 3)) for _ in range(rank - 1)))
    extents = tuple(draw(st.integers(1, 2 * count)) for count in counts)
    start = tuple(draw(st.integers(-count - 1, extent + 1)) for count, extent in zip(counts, extents, strict=True))
    of = tensor(extents, element, draw(st.integers(0, 2)), draw(st.integers(0, 99)))
    return of, counts, steps, start, 128 * draw(st.integers(0, 9)), swizzle


@given(boxes())
@settings(max_examples=150, deadline=None)
def test_boxes_are_loaded_as_numpy_cuts_them(engine: ctypes.CDLL, asked: tuple) -> None:  # type: ignore[type-arg]
    of, counts, steps, start, address, swizzle = asked
    map = tiled(engine, of, [count * step for count, step in zip(counts, steps, strict=True)], steps, swizzle)
    assert map.result == 0
    assert map.bytes == math.prod(counts) * of.element
    message, shared = map.load(start, address)
    assert message == ""
    np.testing.assert_array_equal(shared, in_shared(cut(of, start, counts, steps), address, swizzle))


@given(boxes())
@settings(max_examples=100, deadline=None)
def test_boxes_are_stored_where_the_tensor_is(engine: ctypes.CDLL, asked: tuple) -> None:  # type: ignore[type-arg]
    of, counts, steps, start, address, swizzle = asked
    map = tiled(engine, of, [count * step for count, step in zip(counts, steps, strict=True)], steps, swizzle)
    box = np.random.default_rng(7).integers(1, 99, counts[::-1]).astype(of.values.dtype)
    before = of.memory.copy()
    for place in itertools.product(*(range(count) for count in counts)):
        at = tuple(first + i * step for first, i, step in zip(start, place, steps, strict=True))
        if all(0 <= i < extent for i, extent in zip(at, of.extents, strict=True)):
            of.values[at[::-1]] = box[place[::-1]]
    wanted = of.memory.copy()
    of.memory[...] = before
    assert map.store(start, in_shared(box, address, swizzle), address) == ""
    np.testing.assert_array_equal(of.memory, wanted)


@dataclass(frozen=True)
class Axis:
    """One axis of a convolution."""

    extent: int
    kernel: int
    stride: int
    dilation: int
    before: int
    behind: int

    @property
    def reach(self) -> int:
        return (self.kernel - 1) * self.dilation

    @property
    def out(self) -> int:
        return (self.extent + self.before + self.behind - self.reach - 1) // self.stride + 1


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    kernel, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    reach = (kernel - 1) * dilation
    before, behind = draw(st.integers(0, reach)), draw(st.integers(0, reach))
    extent = draw(st.integers(max(1, reach + 1 - before - behind), 7))
    return Axis(extent, kernel, draw(st.integers(1, 3)), dilation, before, behind)


@given(st.lists(axes(), min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 3), st.integers(1, 40), st.data())
@settings(max_examples=150, deadline=None)
def test_windows_are_those_of_a_convolution(
    engine: ctypes.CDLL, spatial: list[Axis], images: int, swizzle: int, pixels: int, data: st.DataObject
) -> None:
    """Rows of a box are the outputs of a convolution from any one on, each with the channels of one tap."""
    width = 8 << swizzle
    channels = data.draw(st.integers(1, 2 * width))
    of = tensor((channels, *(axis.extent for axis in spatial), images), 2, data.draw(st.integers(0, 1)))
    map = windows(
        engine, of, [-axis.before for axis in spatial], [axis.behind - axis.reach for axis in spatial], width, pixels,
        [1, *(axis.stride for axis in spatial), 1], swizzle,
    )  # fmt: skip
    assert map.result == 0
    assert map.bytes == pixels * width * 2
    tap = [data.draw(st.integers(0, axis.kernel - 1)) * axis.dilation for axis in spatial]
    outputs = list(itertools.product(range(images + 2), *(range(axis.out) for axis in reversed(spatial))))
    first = data.draw(st.integers(0, len(outputs) - 1))
    channel = data.draw(st.integers(-8, channels + 1))

    def begin(output: tuple[int, ...]) -> list[int]:
        return [i * axis.stride - axis.before for i, axis in zip(output[:0:-1], spatial, strict=True)]

    wanted = np.zeros((pixels, width), np.uint16)
    for row, output in enumerate(outputs[first : first + pixels]):
        place = [at + offset for at, offset in zip(begin(output), tap, strict=True)]
        wanted[row] = cut(
            of, (channel, *place, output[0]), (width, *[1] * (len(spatial) + 1)), [1] * len(of.extents)
        ).ravel()
    start = (channel, *begin(outputs[first]), outputs[first][0])
    message, shared = map.load(start, 256, tap)
    assert message == ""
    np.testing.assert_array_equal(shared, in_shared(wanted, 256, swizzle))


def wrong_tiles() -> Iterator[tuple[str, int, dict[str, object]]]:
    yield "a box of 257", INVALID, {"box": (8, 257)}
    yield "an empty box", INVALID, {"box": (8, 0)}
    yield "a row of 12 bytes", INVALID, {"box": (6, 4)}
    yield "a row beyond its swizzle", INVALID, {"box": (32, 4), "swizzle": 1}
    yield "a step of 9", INVALID, {"steps": (1, 9)}
    yield "no step", INVALID, {"steps": (1, 0)}
    yield "strides of 24 bytes", INVALID, {"strides": (24,)}
    yield "strides of 2^40 bytes", INVALID, {"strides": (1 << 40,)}
    yield "no rows", INVALID, {"extents": (40, 0)}
    yield "more than 2^32 rows", INVALID, {"extents": (40, (1 << 32) + 1)}
    yield "memory at 8", INVALID, {"offset": 8}
    yield "a swizzle of later devices", UNSUPPORTED, {"swizzle": 4}
    yield "no swizzle at all", INVALID, {"swizzle": 7}
    yield "six dimensions", INVALID, {"extents": (8,) * 6, "strides": (16,) * 5, "box": (8,) * 6, "steps": (1,) * 6}


@pytest.mark.parametrize(("result", "change"), [w[1:] for w in wrong_tiles()], ids=[w[0] for w in wrong_tiles()])
def test_tiles_that_the_driver_refuses(engine: ctypes.CDLL, result: int, change: dict[str, tuple[int, ...]]) -> None:
    memory, map = aligned(4096, 64), aligned(128, 64)
    extents, at = change.get("extents", (40, 9)), memory.ctypes.data + change.get("offset", 0)
    assert result == engine.encode_tiled(
        ctypes.c_void_p(map.ctypes.data), TYPES[2], len(extents), ctypes.c_void_p(at),
        numbers(ctypes.c_uint64, extents), numbers(ctypes.c_uint64, change.get("strides", (80,))),
        numbers(ctypes.c_uint32, change.get("box", (8, 4))), numbers(ctypes.c_uint32, change.get("steps", (1, 1))),
        change.get("swizzle", 0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("spatial", "lower", "upper", "channels", "pixels", "result"),
    [
        ((9,), (-32768,), (32767,), 8, 1024, 0), ((9,), (-32769,), (0,), 8, 16, INVALID),
        ((9, 9), (-128, -128), (127, 127), 8, 16, 0), ((9, 9), (0, 0), (128, 0), 8, 16, INVALID),
        ((9, 9, 9), (-16, 0, 0), (0, 0, 15), 8, 16, 0), ((9, 9, 9), (0, -17, 0), (0, 0, 0), 8, 16, INVALID),
        ((9, 9), (0, 0), (0, -9), 8, 16, INVALID), ((9, 9), (0, 0), (0, 0), 264, 16, INVALID),
        ((9, 9), (0, 0), (0, 0), 8, 1025, INVALID), ((9, 9), (0, 0), (0, 0), 8, 0, INVALID),
        ((), (), (), 8, 16, INVALID),
    ],
)  # fmt: skip
def test_corners_and_boxes_of_windows_have_limits(
    engine: ctypes.CDLL, spatial: tuple[int, ...], lower: tuple[int, ...], upper: tuple[int, ...], channels: int,
    pixels: int, result: int,
) -> None:  # fmt: skip
    of = tensor((8, *spatial, 2), 2)
    assert windows(engine, of, lower, upper, channels, pixels).result == result


def test_what_the_engine_would_stop_with(engine: ctypes.CDLL) -> None:
    of = tensor((8, 5, 4, 2), 2)
    tiles, pixels = tiled(engine, of, (8, 2, 2, 1)), windows(engine, of, (-1, -1), (-1, -1), 8, 16)
    assert tiles.load((0, 0, 0, 0), 64)[0] == "a box at shared address 64, which is no multiple of 128"
    assert tiles.load((0, 0, 0, 0), 0, (0, 0))[0] == "windows by a map of tiles"
    assert pixels.load((0, 0, 0, 0))[0] == "a tile by a map of windows"
    assert pixels.load((0, 4, 0, 0), 0, (0, 0))[0] == ("windows that begin at 4, outside of their bounding box [-1, 4)")
    assert pixels.load((0, 0, 0, 0), 0, (256, 0))[0] == "a window's offset of 256, beyond 255"
    assert pixels.store((0, 0, 0, 0), np.zeros(SHARED, np.uint8)) == "a tile stored by a map of windows"
    tiles.map[...] = 0
    assert tiles.load((0, 0, 0, 0))[0] == "a copy by a tensor map that nobody encoded"


def test_memory_that_nobody_allocated_is_a_fault(engine: ctypes.CDLL) -> None:
    of = tensor((8, 4), 2)
    smaller = Tensor(of.memory[:56], of.values, of.strides)
    map = tiled(engine, smaller, (8, 4))
    message, _ = map.load((0, 0))
    at = of.memory.ctypes.data
    assert message == (
        f"16 bytes of global memory read at {at + 48:#x}, beyond the end of an allocation of 56 at {at:#x}"
    )
    assert map.load((0, -1))[0] == ""
