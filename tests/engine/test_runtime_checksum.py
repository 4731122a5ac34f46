"""The checksum of weights files, which Python writes and C++ reads."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_engine import _run as run_command

from bolt_build import runtime


@pytest.fixture(scope="module")
def crc32(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, bytes], int]:
    directory = tmp_path_factory.mktemp("crc")
    (directory / "c.cpp").write_text(
        '#include "bolt/crc32.h"\n'
        'extern "C" unsigned crc(unsigned c, const void* d, std::size_t n) { return bolt::crc32(c, d, n); }\n'
    )
    source = runtime.include_dir().parent / "src" / "crc32.cpp"
    shared = directory / "c.so"
    run_command(
        "g++",
        "-std=c++17",
        "-O1",
        "-shared",
        "-fPIC",
        "-I",
        runtime.include_dir(),
        directory / "c.cpp",
        source,
        "-o",
        shared,
    )
    function = ctypes.CDLL(str(shared)).crc
    function.argtypes, function.restype = (ctypes.c_uint, ctypes.c_char_p, ctypes.c_size_t), ctypes.c_uint
    return lambda start, data: int(function(start, data, len(data)))


@given(start=st.binary(max_size=70), data=st.binary(max_size=200))
def test_checksum_is_zlib_s(crc32: Callable[[int, bytes], int], start: bytes, data: bytes) -> None:
    assert crc32(crc32(0, start), data) == zlib.crc32(start + data)
