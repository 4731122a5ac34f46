"""Weights files, read by an engine under sanitizers and by Python: both take the same ones, and nothing but what was
written under the checksums."""

from __future__ import annotations

import functools
import struct
import tempfile
import zlib
from pathlib import Path
from random import Random

from fuzzing import sanitized
from fuzzing.bytes_mutation import mutated
from fuzzing.case import Case, Violation
from fuzzing.commands import shown
from tiny_engine import tiny_constants, tiny_plan

from bolt_build.emit.weights import payload_bytes, read_weights, write_weights
from bolt_build.errors import BoltError

LONG, SHORT = 6000, 40

_FIELDS = (("<I", 8), ("<I", 12), ("<Q", 16), ("<Q", 24), ("<I", 64), ("<I", 68), ("<Q", 72))
"""Of the fixed header: version, checksum, sizes, counts."""
_ENTRY = (("<Q", 0), ("<Q", 8), ("<I", 16), ("<I", 20), ("<I", 24), ("<H", 28), ("<H", 30), ("<q", 32), ("<q", 40))
_VALUES = (0, 1, 63, 64, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 64, 2**64 - 1)

_reader: Path | None = None


def prepare(folder: Path) -> None:
    global _reader
    _reader = sanitized.weights_reader(folder)


@functools.cache
def _right(channels: int = 5) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights"
        write_weights(path, tiny_plan(channels=channels), tiny_constants(channels))
        return path.read_bytes()


def case(random: Random) -> Case:
    """Half of the changed headers have a right checksum: what stands in them must be looked at."""
    data = bytearray(_right())
    kind = random.randrange(4)
    if kind == 0:
        return Case("bytes", (("weights", mutated(random, bytes(data), [_right(), _right(7)])),))
    entries = struct.unpack_from("<I", data, 64)[0]
    for _ in range(random.choice((1, 1, 2, 4))):
        form, at = random.choice(_FIELDS)
        if random.random() < 0.6:
            form, inside = random.choice(_ENTRY)
            at = 80 + 96 * random.randrange(entries) + inside
        bits = 8 * struct.calcsize(form)
        value = random.choice((*_VALUES, struct.unpack_from(form, data, at)[0] + random.choice((-64, -1, 1, 64))))
        value &= 2**bits - 1
        struct.pack_into(form.upper(), data, at, value)
    if kind != 1:
        _seal(data)
    end = random.choice((len(data), len(data), len(data), random.randint(0, len(data))))
    return Case("fields" + (", sealed" if kind != 1 else ""), (("weights", bytes(data[:end])),))


def _seal(data: bytearray) -> None:
    size = min(struct.unpack_from("<Q", data, 16)[0], len(data))
    struct.pack_into("<I", data, 12, 0)
    struct.pack_into("<I", data, 12, zlib.crc32(data[:size]))


def check(case: Case, folder: Path) -> str:
    case.write(folder)
    assert _reader is not None, "prepared"
    plan, path = tiny_plan(), folder / "weights"
    table = [str(word) for slot in plan.weights for word in (slot.name, slot.offset, slot.nbytes)]
    done = sanitized.run(_reader, path, plan.layout_digest, str(payload_bytes(plan.weights)), *table)
    try:
        found = read_weights(path)
    except BoltError as error:
        shown(error.diagnostics)
        found = None
    if done.code != 0:
        return "refused" if found is None else "refused by the engine alone"
    right = _right()
    if int(done.out, 16) != zlib.crc32(right[len(right) - payload_bytes(plan.weights) :]):
        raise Violation("an engine takes other weights than were written")
    return "taken" if found is not None else "taken by the engine alone"
