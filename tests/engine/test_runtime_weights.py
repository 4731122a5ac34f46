"""Weights files that an engine refuses: not whole, damaged anywhere, or another engine's."""

from __future__ import annotations

import ctypes
import dataclasses
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_calls import BAD_WEIGHTS, create
from tiny_engine import tiny_constants, tiny_plan

from bolt_build.emit.weights import write_weights


@pytest.fixture(scope="module")
def weights(tiny_library: Path) -> Path:
    return tiny_library.with_name("tiny.weights")


def _resealed(data: bytes, at: int, value: bytes) -> bytes:
    """`data` with bytes of the header replaced and the header's checksum made to fit."""
    (size,) = struct.unpack_from("<Q", data, 16)
    header = bytearray(data[:size])
    header[at : at + len(value)] = value
    header[12:16] = bytes(4)
    struct.pack_into("<I", header, 12, zlib.crc32(header))
    return bytes(header) + data[size:]


def _damage(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda data: b"", "W is empty"),
        (lambda data: b"\x89PNG", "W is not a bolt-build weights file"),
        (lambda data: data[:40], "W is truncated: 40 bytes, fewer than its header"),
        (lambda data: data[:200], "W is truncated: 200 bytes, fewer than its header's 320"),
        (lambda data: data[:-1], "W is truncated: 447 bytes where 448 are expected"),
        (lambda data: data + b"x", "W is 449 bytes long where 448 are expected"),
        (lambda data: data[:8] + b"\2" + data[9:], "W has format version 2; this engine reads version 1"),
        (lambda data: _damage(data, 16), "the header of W is damaged: impossible sizes"),
        (lambda data: _resealed(data, 80, b"\x40"), "the header of W contradicts its layout digest"),
    ],
)
def test_weights_that_are_not_whole(
    tiny_library: Path, weights: Path, tmp_path: Path, change: Callable[[bytes], bytes], sentence: str
) -> None:
    path = tmp_path / "w"
    path.write_bytes(change(weights.read_bytes()))
    assert create(tiny_library, weights_path=str(path).encode()) == (BAD_WEIGHTS, sentence.replace("W", f"'{path}'", 1))
    if path.stat().st_size:
        data = ctypes.create_string_buffer(path.read_bytes(), path.stat().st_size)
        said = create(tiny_library, weights=ctypes.addressof(data), weights_bytes=path.stat().st_size)
        assert said == (BAD_WEIGHTS, sentence.replace("W", "the memory given as weights", 1))


def test_a_damaged_tensor_is_named(tiny_library: Path, weights: Path, tmp_path: Path) -> None:
    data = _damage(weights.read_bytes(), 320 + 64)
    (tmp_path / "w").write_bytes(data)
    found, expected = zlib.crc32(data[-64:]), zlib.crc32(weights.read_bytes()[-64:])
    assert create(tiny_library, weights_path=str(tmp_path / "w").encode()) == (
        BAD_WEIGHTS,
        f"'{tmp_path}/w' is damaged: tensor 'shift' has checksum {found:08x} where {expected:08x} is expected",
    )


def test_weights_of_another_engine(tiny_library: Path, tmp_path: Path) -> None:
    other = dataclasses.replace(tiny_plan(), structure="another")
    write_weights(tmp_path / "w", other, tiny_constants())
    assert create(tiny_library, weights_path=str(tmp_path / "w").encode()) == (
        BAD_WEIGHTS,
        (
            f"'{tmp_path}/w' belongs to another engine: layout digest {other.layout_digest} where "
            f"{tiny_plan().layout_digest} is expected"
        ),
    )


def test_no_single_byte_of_the_weights_can_change_unnoticed(tiny_library: Path, weights: Path, tmp_path: Path) -> None:
    data = weights.read_bytes()
    for at in range(len(data)):
        (tmp_path / "w").write_bytes(_damage(data, at))
        assert create(tiny_library, weights_path=str(tmp_path / "w").encode())[0] == BAD_WEIGHTS
