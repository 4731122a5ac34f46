"""The weights file, written and read back."""

from __future__ import annotations

import dataclasses
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_engine import tiny_constants, tiny_plan

from bolt_build.dtypes import DType
from bolt_build.emit.weights import _CRC_AT, _ENTRY, _HEADER, payload_bytes, read_weights, write_weights
from bolt_build.errors import BoltError
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import Array
from bolt_build.planner.engine_plan import EnginePlan, WeightSlot


def _plan(tensors: list[tuple[str, DType, tuple[int, ...]]]) -> tuple[EnginePlan, tuple[Array, ...]]:
    slots, arrays, offset = [], [], 0
    for seed, (name, dtype, shape) in enumerate(tensors):
        array = np.asarray(np.random.RandomState(seed).randint(0, 2, shape), numpy_dtype(dtype))
        slots.append(WeightSlot(name, dtype, shape, offset, array.nbytes))
        arrays.append(array)
        offset += -(-array.nbytes // 64) * 64
    return dataclasses.replace(tiny_plan(), weights=tuple(slots)), tuple(arrays)


shapes = st.lists(st.integers(1, 5), max_size=4).map(tuple)


@given(
    tensors=st.lists(st.tuples(st.text(max_size=8).filter(str.isprintable), st.sampled_from(DType), shapes), max_size=6)
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, tensors: list[tuple[str, DType, tuple[int, ...]]]
) -> None:
    plan, arrays = _plan(tensors)
    path = tmp_path_factory.mktemp("weights") / "w"
    write_weights(path, plan, arrays)
    found = read_weights(path)
    assert found.layout_digest == plan.layout_digest
    assert found.slots == plan.weights
    assert [a.dtype for a in found.arrays] == [a.dtype for a in arrays]
    assert all(np.array_equal(a, b) for a, b in zip(found.arrays, arrays, strict=True))


def test_bytes_depend_on_plan_and_constants_alone(tmp_path: Path) -> None:
    write_weights(tmp_path / "a", tiny_plan(), tiny_constants())
    write_weights(tmp_path / "b", tiny_plan(), tiny_constants())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_tensors_lie_row_major_behind_an_aligned_header(tmp_path: Path) -> None:
    scale, shift = tiny_constants()
    write_weights(tmp_path / "w", tiny_plan(), (scale, shift))
    data = (tmp_path / "w").read_bytes()
    assert payload_bytes(tiny_plan().weights) == 128
    start = len(data) - 128
    assert start % 64 == 0
    assert data[start : start + 20] == scale.tobytes()
    assert data[start + 64 : start + 84] == shift.tobytes()


def test_a_constant_that_does_not_fit_its_slot_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    scale, shift = tiny_constants()
    with pytest.raises(ValueError, match=r"^weight 'shift' is float64 \(5,\) where f32 \(5,\) is expected$"):
        write_weights(tmp_path / "w", tiny_plan(), (scale, shift.astype(np.float64)))
    assert list(tmp_path.iterdir()) == []


def test_overlapping_slots_are_refused(tmp_path: Path) -> None:
    plan = tiny_plan()
    slots = (plan.weights[0], dataclasses.replace(plan.weights[1], offset=0))
    with pytest.raises(ValueError, match=r"^weight 'shift' at offset 0, where the one before ends at 20$"):
        write_weights(tmp_path / "w", dataclasses.replace(plan, weights=slots), tiny_constants())


def _damage(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"\x89PNG" + data[4:], "not a bolt-build weights file"),
        (lambda data: data[:40], "truncated: 40 bytes, fewer than its header"),
        (lambda data: data[:8] + b"\2" + data[9:], "format version 2; this program reads version 1"),
        (lambda data: data[:200], "truncated within its header"),
        (lambda data: _damage(data, 40), "its header is damaged"),
        (lambda data: data[:-1], "447 bytes long where 448 are expected"),
        (lambda data: data + b"x", "449 bytes long where 448 are expected"),
        (lambda data: _damage(data, len(data) - 128), "tensor 'scale' is damaged"),
        (lambda data: _damage(data, len(data) - 1), "tensor 'shift' is damaged"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(tmp_path: Path, change: object, message: str) -> None:
    assert callable(change)
    path = tmp_path / "w"
    write_weights(path, tiny_plan(), tiny_constants())
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(BoltError) as caught:
        read_weights(path)
    assert [(d.code, d.message, d.subject) for d in caught.value.diagnostics] == [("bad-weights", message, str(path))]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (0, 1 << 40, "tensor 'scale' lies outside of the file"),
        (3, 1 << 20, "tensor '' lies outside of the file"),
        (5, 99, "tensor 'scale' has no element type or shape that there is"),
        (6, 9, "tensor 'scale' has no element type or shape that there is"),
        (7, -1, "tensor 'scale' has no element type or shape that there is"),
        (7, 1 << 62, "tensor 'scale' has 20 bytes, which its shape does not make"),
    ],
)
def test_a_header_that_lies_under_a_right_checksum_is_refused(
    tmp_path: Path, field: int, value: int, message: str
) -> None:
    path = tmp_path / "w"
    write_weights(path, tiny_plan(), tiny_constants())
    data = bytearray(path.read_bytes())
    entry = list(_ENTRY.unpack_from(data, _HEADER.size))
    entry[field] = value
    _ENTRY.pack_into(data, _HEADER.size, *entry)
    header = _HEADER.unpack_from(data)[3]
    struct.pack_into("<I", data, _CRC_AT, 0)
    struct.pack_into("<I", data, _CRC_AT, zlib.crc32(data[:header]))
    path.write_bytes(data)
    with pytest.raises(BoltError) as caught:
        read_weights(path)
    assert [d.message for d in caught.value.diagnostics] == [message]


def test_every_single_byte_is_under_a_checksum(tmp_path: Path) -> None:
    path = tmp_path / "w"
    write_weights(path, tiny_plan(), tiny_constants())
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(_damage(data, at))
        with pytest.raises(BoltError):
            read_weights(path)
