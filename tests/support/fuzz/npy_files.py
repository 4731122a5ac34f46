"""Inputs of the runner, .npy and .npz, read under sanitizers: what is taken is what NumPy reads."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from random import Random

import ml_dtypes
import numpy as np
from fuzzing import sanitized
from fuzzing.bytes_mutation import mutated
from fuzzing.case import Case, Violation

LONG, SHORT = 6000, 40

_MOST = 1 << 20
_DTYPES = (
    "<f4", "<f2", "|V2", "<f8", "<i8", "<i4", "|i1", "|u1", "|b1", ">f4", ">i8", "f4", "=f8", "|O", "<c8", "U3", "",
)  # fmt: skip
_NAMES = {
    "f32": "<f4", "f16": "<f2", "bf16": ml_dtypes.bfloat16, "f64": "<f8", "i64": "<i8", "i32": "<i4", "i8": "|i1",
    "u8": "|u1", "bool": "|b1",
}  # fmt: skip
_EXTENTS = (
    "0", "1", "2", "3", "7", "-1", "2L", "1.5", "9" * 18, "9" * 19, "9" * 400, str(2**32), str(2**63 - 1), "", "x",
)  # fmt: skip
_PLACES = (0, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 30, 32, 42)
"""Where fields of records in archives begin."""

_reader: Path | None = None


def prepare(folder: Path) -> None:
    global _reader
    _reader = sanitized.arrays_reader(folder)


def case(random: Random) -> Case:
    data = _npy(random)
    if random.random() < 0.4:
        if random.random() < 0.3:
            data = mutated(random, data, [data])
        return Case("an array", (("x.npy", data),))
    return Case("an archive", (("x.npz", _npz(random, data)),))


def _npy(random: Random) -> bytes:
    """An array; a third have a header that does not fit its data."""
    dtype = np.dtype(random.choice(("<f4", ">f4", "<f2", "<f8", "<i8", "<i4", "|i1", "|u1", "|b1")))
    shape = tuple(random.choice((0, 1, 2, 3, 5)) for _ in range(random.choice((0, 1, 2, 3, 4, 8))))
    array = np.frombuffer(random.randbytes(int(np.prod(shape, dtype=int)) * dtype.itemsize), np.uint8)
    if dtype.kind == "b":
        array = array & 1
    if random.random() < 0.65:
        file = io.BytesIO()
        np.save(file, array.view(dtype).reshape(shape, order=random.choice(("C", "F"))))
        return file.getvalue()
    extents = ", ".join(random.choice(_EXTENTS) for _ in range(random.choice((0, 1, 2, 4, 64, 65, 3000))))
    comma = random.choice((",", "", ", "))
    fields = [
        f"'descr': '{random.choice(_DTYPES)}'", f"'fortran_order': {random.choice(('False', 'True', '0'))}",
        f"'shape': ({extents}{comma})", "'other': 1",
    ][: random.choice((3, 3, 3, 3, 4, 2))]  # fmt: skip
    random.shuffle(fields)
    header = ("{" + ", ".join(fields) + random.choice(("}", ", }", "}\n", ""))).encode()
    version = random.choice((1, 1, 2, 0, 9) if "L" in extents else (1, 1, 2, 3, 0, 9))
    length = random.choice((len(header), len(header), len(header), 0, 2**16 - 1, len(header) + 1)) & 0xFFFF
    size = struct.pack("<H" if version == 1 else "<I", length)
    return b"\x93NUMPY" + bytes([version, 0]) + size + header + array.tobytes()


def _npz(random: Random, data: bytes) -> bytes:
    """An archive, written by hand: entries may share bytes, and any field may say anything."""
    others = (b"y.npy", b"x.npy", b".npy", b"note.txt", b"")
    entries = [(b"x.npy", data)] + [(random.choice(others), data)] * (random.random() < 0.3)
    body, directory = b"", b""
    for name, contents in entries:
        crc = zlib.crc32(contents)
        common = struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 33, crc, len(contents), len(contents), len(name), 0)
        head, tail = struct.pack("<H", 20), struct.pack("<HHHII", 0, 0, 0, 0, len(body))
        directory += b"PK\x01\x02" + head + common + tail + name
        body += b"PK\x03\x04" + common + name + contents
    if random.random() < 0.2:
        entries *= 400
        directory *= 400
    end = struct.pack("<HHHHIIH", 0, 0, len(entries), len(entries), len(directory), len(body), 0)
    archive = bytearray(body + directory + b"PK\x05\x06" + end)
    for _ in range(random.choice((0, 0, 1, 2))):
        record = random.choice([at for at in range(len(archive)) if archive[at : at + 2] == b"PK"] or [0])
        form = random.choice(("<H", "<I"))
        at = record + random.choice(_PLACES)
        if at + struct.calcsize(form) <= len(archive):
            struct.pack_into(form, archive, at, random.choice((0, 1, 8, 0xFFFF, 0xFFFE, random.getrandbits(16))))
    return mutated(random, bytes(archive), [data]) if random.random() < 0.2 else bytes(archive)


def check(case: Case, folder: Path) -> str:
    """The runner's reader takes no array but such as NumPy finds in the file too."""
    case.write(folder)
    assert _reader is not None, "prepared"
    name, data = case.files[0]
    done = sanitized.run(_reader, str(_MOST), folder / name, codes=(0, 2, 3))
    if done.code != 0:
        return "refused"
    for line in done.out.splitlines():
        dtype, rest = line.split(" ", 1)
        shape, found = rest.rsplit(" ", 1)
        array = _as_numpy(data if name == "x.npy" else _inside(data), dtype)
        if (str(array.shape), _fnv(array.tobytes())) != (shape, int(found, 16)):
            raise Violation(f"NumPy reads {array.dtype} {array.shape}: {line}")
    return "taken"


def _inside(data: bytes) -> bytes:
    """The bytes of the first entry, where the archive's directory says that they lie."""
    ends = (at for at in range(len(data) - 22, -1, -1) if data[at : at + 4] == b"PK\x05\x06")
    end = next(at for at in ends if struct.unpack_from("<H", data, at + 20)[0] == len(data) - at - 22)
    (first,) = struct.unpack_from("<I", data, end + 16)
    (size,) = struct.unpack_from("<I", data, first + 24)
    (local,) = struct.unpack_from("<I", data, first + 42)
    start = local + 30 + sum(struct.unpack_from("<HH", data, local + 26))
    return data[start : start + size]


def _as_numpy(data: bytes, dtype: str) -> np.ndarray:
    try:
        array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False, max_header_size=1 << 20)
    except ValueError as error:
        raise Violation(f"NumPy does not read what was taken: {error}") from error
    wide = array.view(_NAMES[dtype]) if dtype == "bf16" else array.astype(_NAMES[dtype])
    return np.array(wide, order="C")


def _fnv(data: bytes) -> int:
    found = 0xCBF29CE484222325
    for byte in data:
        found = ((found ^ byte) * 0x100000001B3) & (2**64 - 1)
    return found
