"""Mutations of bytes that know nothing of their format."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_TELLING = (
    b"", b"\0", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\t", b"\x1b[2J", b"\x85", b"\xc2\x85", b"\x7f",
    b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe2\x80\xae", b"\xcc\x81", b"0" * 500,
    b"A" * 5000,
)  # fmt: skip
"""Bytes that readers of text are known to stumble over."""


def mutated(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """`data` after one to six changes: bits, bytes, pieces cut, doubled, moved, or taken from one of `others`."""
    for _ in range(random.randint(1, 6)):
        data = _change(random, data, others)
    return data


def _change(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = sorted(random.randint(0, len(data)) for _ in range(2))
    at = random.randint(0, len(data))
    kind = random.randrange(8)
    if kind == 0 and data:
        index = random.randrange(len(data))
        return data[:index] + bytes([data[index] ^ 1 << random.randrange(8)]) + data[index + 1 :]
    if kind == 1:
        return data[:at] + random.choice(_TELLING) + data[at:]
    if kind == 2:
        return data[:start] + data[end:]
    if kind == 3:
        return data[:at] + data[start:end] * random.randint(1, 4) + data[at:]
    if kind == 4:
        return data[:start] + random.randbytes(random.randint(0, 8)) + data[end:]
    if kind == 5:
        return data[:at]
    if kind == 6:
        other = random.choice(others)
        low, high = sorted(random.randint(0, len(other)) for _ in range(2))
        return data[:at] + other[low:high] + data[at:]
    return data[:start] + data[end:] + data[start:end]
