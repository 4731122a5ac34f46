"""What a linked library asks of the machine that loads it, read from its ELF sections (64-bit, little-endian)."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

_DYNSYM, _DYNAMIC, _VERNEED = 11, 6, 0x6FFFFFFE
_DT_NEEDED = 1


@dataclass(frozen=True)
class ElfFacts:
    """`needed`: sonames in the linker's order; `exported`: defined global symbols; `least_versions`: for each set of
    versioned symbols (GLIBC, GLIBCXX, GOMP) the highest version used, which is the least that a machine must have."""

    needed: tuple[str, ...]
    exported: tuple[str, ...]
    least_versions: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Section:
    type: int
    offset: int
    size: int
    link: int
    info: int


def read_elf(path: Path) -> ElfFacts:
    """Raises ValueError where `path` is no 64-bit little-endian ELF file, OSError."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path.name} is no 64-bit little-endian ELF file")
    sections = _sections(data)
    needed: list[str] = []
    exported: list[str] = []
    versions: dict[str, tuple[int, ...]] = {}
    for section in sections:
        if section.type == _DYNAMIC:
            strings = sections[section.link].offset
            for tag, value in struct.iter_unpack("<qQ", data[section.offset : section.offset + section.size]):
                if tag == _DT_NEEDED:
                    needed.append(_string(data, strings + value))
        elif section.type == _DYNSYM:
            exported.extend(_exported(data, section, sections[section.link].offset))
        elif section.type == _VERNEED:
            for name in _version_needs(data, section, sections[section.link].offset):
                if match := re.fullmatch(r"(\w+?)_([0-9.]+)", name):
                    version = tuple(int(part) for part in match[2].split("."))
                    versions[match[1]] = max(version, versions.get(match[1], ()))
    least = tuple((name, ".".join(map(str, version))) for name, version in sorted(versions.items()))
    return ElfFacts(tuple(needed), tuple(sorted(exported)), least)


def _sections(data: bytes) -> list[_Section]:
    (table,) = struct.unpack_from("<Q", data, 40)
    entry, count = struct.unpack_from("<HH", data, 58)
    found = []
    for i in range(count):
        _, kind, _, _, offset, size, link, info = struct.unpack_from("<IIQQQQII", data, table + i * entry)
        found.append(_Section(kind, offset, size, link, info))
    return found


def _exported(data: bytes, section: _Section, strings: int) -> list[str]:
    names = []
    for name, info, other, index, _, _ in struct.iter_unpack(
        "<IBBHQQ", data[section.offset : section.offset + section.size]
    ):
        defined_here = index != 0 and info >> 4 != 0 and other & 3 == 0
        absolute = index == 0xFFF1  # names of symbol versions
        if defined_here and not absolute:
            names.append(_string(data, strings + name))
    return names


def _version_needs(data: bytes, section: _Section, strings: int) -> list[str]:
    names = []
    at = section.offset
    for _ in range(section.info):
        _, count, _, first, following = struct.unpack_from("<HHIII", data, at)
        detail = at + first
        for _ in range(count):
            _, _, _, name, next_detail = struct.unpack_from("<IHHII", data, detail)
            names.append(_string(data, strings + name))
            detail += next_detail
        at += following
    return names


def _string(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
