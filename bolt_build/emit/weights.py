"""The weights file: what `runtime/src/weights_file.cpp` loads. Little-endian; the format is in `bolt/weights_file.h`.

A header that describes itself (magic, version, checksum, layout digest, a table of entries with names, types, shapes
and checksums), zeros up to a multiple of 64 bytes, then the payload: row-major tensors at the offsets of the plan.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from bolt_build.dtypes import DType
from bolt_build.errors import BoltError, Diagnostic
from bolt_build.graph.ir import Array
from bolt_build.planner.engine_plan import EnginePlan, WeightSlot
from bolt_build.user_files import open_regular

MAGIC = b"BOLTWGHT"
WEIGHTS_VERSION = 1
ALIGNMENT = 64
_HEADER = struct.Struct("<8sIIQQ32sIIQ")
_ENTRY = struct.Struct("<QQIIIHH8q")
_CRC_AT = 12
_CODES = {
    DType.F32: 0, DType.F16: 1, DType.BF16: 2, DType.F64: 3, DType.I64: 4, DType.I32: 5, DType.I8: 6, DType.U8: 7,
    DType.BOOL: 8, DType.I16: 9, DType.U16: 10, DType.U32: 11, DType.U64: 12,
}  # fmt: skip
_NUMPY = {
    DType.F32: "<f4", DType.F16: "<f2", DType.BF16: ml_dtypes.bfloat16, DType.F64: "<f8", DType.I64: "<i8",
    DType.I32: "<i4", DType.I8: "|i1", DType.U8: "|u1", DType.BOOL: "|b1", DType.I16: "<i2", DType.U16: "<u2",
    DType.U32: "<u4", DType.U64: "<u8",
}  # fmt: skip


@dataclass(frozen=True)
class WeightsFile:
    """A weights file, read and checked: one array a slot, in the slots' order."""

    layout_digest: str
    slots: tuple[WeightSlot, ...]
    arrays: tuple[Array, ...]


def payload_bytes(slots: Sequence[WeightSlot]) -> int:
    """Bytes behind the header: up to the end of the last tensor, rounded up to the alignment."""
    return _aligned(max((slot.offset + slot.nbytes for slot in slots), default=0))


@dataclass(frozen=True)
class WeightsContent:
    """All bytes of a weights file, in `parts`: the header, then each tensor with the zeros behind it."""

    parts: tuple[bytes, ...]

    def digest(self) -> str:
        """SHA-256 of the file in hex."""
        found = hashlib.sha256()
        for part in self.parts:
            found.update(part)
        return found.hexdigest()

    def write(self, path: Path) -> None:
        """Write the file, under a temporary name that is then renamed. Raises OSError."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("wb") as out:
                out.writelines(self.parts)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def weights_content(plan: EnginePlan, constants: Sequence[Array]) -> WeightsContent:
    """The file for `plan`: `constants[i]` has the shape and element type of `plan.weights[i]`.

    Equal plans and constants give equal bytes. Raises ValueError where constants do not fit the table or the table is
    not one of ascending, aligned, disjoint tensors.
    """
    parts = tuple(_bytes_of(slot, array) for slot, array in zip(plan.weights, constants, strict=True))
    _check_table(plan.weights)
    total = payload_bytes(plan.weights)
    ends = [*(slot.offset for slot in plan.weights[1:]), total]
    fills = [bytes(end - slot.offset - slot.nbytes) for slot, end in zip(plan.weights, ends, strict=False)]
    crcs = [zlib.crc32(fill, zlib.crc32(part)) for part, fill in zip(parts, fills, strict=True)]
    tensors = (each for part, fill in zip(parts, fills, strict=True) for each in (part, fill))
    return WeightsContent((_header(plan, crcs, total), *tensors))


def write_weights(path: Path, plan: EnginePlan, constants: Sequence[Array]) -> None:
    """Writes the file that `weights_content` describes. Raises ValueError as it does; OSError."""
    weights_content(plan, constants).write(path)


def read_weights(path: Path) -> WeightsFile:
    """Reads a weights file back, checking all that an engine checks but the digest itself.

    Raises BoltError ("bad-weights") where it cannot be read, is damaged, truncated or of another version.
    """
    try:
        with open_regular(path) as handle:
            data = handle.read()
    except OSError as error:
        raise _bad(path, f"cannot open weights: {error.strerror}") from error
    if data[:8] != MAGIC:
        raise _bad(path, "not a bolt-build weights file")
    if len(data) < _HEADER.size:
        raise _bad(path, f"truncated: {len(data)} bytes, fewer than its header")
    _, version, crc, header_bytes, payload, layout, count, names_bytes, _ = _HEADER.unpack_from(data)
    if version != WEIGHTS_VERSION:
        raise _bad(path, f"format version {version}; this program reads version {WEIGHTS_VERSION}")
    if len(data) < header_bytes or header_bytes < _HEADER.size + count * _ENTRY.size + names_bytes:
        raise _bad(path, "truncated within its header")
    header = bytearray(data[:header_bytes])
    header[_CRC_AT : _CRC_AT + 4] = bytes(4)
    if zlib.crc32(header) != crc:
        raise _bad(path, "its header is damaged")
    if len(data) != header_bytes + payload:
        raise _bad(path, f"{len(data)} bytes long where {header_bytes + payload} are expected")
    return _entries(path, data, header_bytes, layout.hex(), count)


def _entries(path: Path, data: bytes, start: int, layout: str, count: int) -> WeightsFile:
    names_at = _HEADER.size + count * _ENTRY.size
    rows = [_ENTRY.unpack_from(data, _HEADER.size + i * _ENTRY.size) for i in range(count)]
    dtypes = {code: dtype for dtype, code in _CODES.items()}
    slots, arrays = [], []
    for i, (offset, nbytes, crc, name_at, name_bytes, code, rank, *extents) in enumerate(rows):
        name = data[names_at + name_at : names_at + name_at + name_bytes].decode(errors="replace")
        end = rows[i + 1][0] if i + 1 < count else len(data) - start
        if not (names_at + name_at + name_bytes <= start and offset + nbytes <= end <= len(data) - start):
            raise _bad(path, f"tensor '{name}' lies outside of the file")
        if zlib.crc32(data[start + offset : start + end]) != crc:
            raise _bad(path, f"tensor '{name}' is damaged")
        shape = tuple(extents[:rank])
        if code not in dtypes or rank > len(extents) or min(shape, default=0) < 0:
            raise _bad(path, f"tensor '{name}' has no element type or shape that there is")
        if math.prod(shape) * dtypes[code].nbytes != nbytes:
            raise _bad(path, f"tensor '{name}' has {nbytes} bytes, which its shape does not make")
        slots.append(WeightSlot(name, dtypes[code], shape, offset, nbytes))
        arrays.append(np.frombuffer(data, _NUMPY[dtypes[code]], math.prod(shape), start + offset).reshape(shape))
    return WeightsFile(layout, tuple(slots), tuple(arrays))


def _header(plan: EnginePlan, crcs: Sequence[int], payload: int) -> bytes:
    entries, names = [], b""
    for slot, crc in zip(plan.weights, crcs, strict=True):
        name = slot.name.encode()
        shape = (*slot.shape, *[0] * (8 - len(slot.shape)))
        code = _CODES[slot.dtype]
        entries.append(_ENTRY.pack(slot.offset, slot.nbytes, crc, len(names), len(name), code, len(slot.shape), *shape))
        names += name
    body = b"".join(entries) + names
    size = _aligned(_HEADER.size + len(body))
    layout = bytes.fromhex(plan.layout_digest)
    fixed = _HEADER.pack(MAGIC, WEIGHTS_VERSION, 0, size, payload, layout, len(entries), len(names), 0)
    header = bytearray((fixed + body).ljust(size, b"\0"))
    struct.pack_into("<I", header, _CRC_AT, zlib.crc32(header))
    return bytes(header)


def _bytes_of(slot: WeightSlot, array: Array) -> bytes:
    expected = np.dtype(_NUMPY[slot.dtype])
    if array.dtype != expected or array.shape != slot.shape:
        found = f"{array.dtype} {array.shape}"
        raise ValueError(f"weight '{slot.name}' is {found} where {slot.dtype.value} {slot.shape} is expected")
    if array.nbytes != slot.nbytes:
        raise ValueError(f"weight '{slot.name}' has {array.nbytes} bytes where its slot has {slot.nbytes}")
    return array.tobytes()


def _check_table(slots: Sequence[WeightSlot]) -> None:
    end = 0
    for slot in slots:
        if slot.offset < end or slot.offset % ALIGNMENT or (end == 0 and slot.offset):
            raise ValueError(f"weight '{slot.name}' at offset {slot.offset}, where the one before ends at {end}")
        end = slot.offset + slot.nbytes


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _bad(path: Path, message: str) -> BoltError:
    return BoltError([Diagnostic("bad-weights", message, subject=str(path))])
