"""The ABI of the tiny engine, called as a program would: statuses, and the words that go with them."""

from __future__ import annotations

import ctypes
from pathlib import Path

from bolt_build.runtime import engine_abi as abi
from bolt_build.runtime.names import symbol

OK, INVALID_ARGUMENT, BAD_WEIGHTS, NO_DEVICE, DEVICE_ERROR, INTERNAL = 0, 1, 2, 4, 5, 6


def table_of(library: Path) -> abi.EngineTable:
    """The functions of the tiny engine in `library`."""
    entry = getattr(ctypes.CDLL(str(library)), symbol("tiny"))
    entry.restype = ctypes.POINTER(abi.EngineTable)
    table = entry().contents
    assert isinstance(table, abi.EngineTable)
    return table


def refused(table: abi.EngineTable, status: int) -> tuple[int, str]:
    """A call's status, and what the engine says of it."""
    return status, table.last_error().decode()


def create(library: Path, **changes: object) -> tuple[int, str]:
    """How making a model with these options ends."""
    engine = table_of(library)
    options = abi.ModelOptions(size=ctypes.sizeof(abi.ModelOptions))
    for name, value in changes.items():
        setattr(options, name, value)
    model = ctypes.c_void_p()
    return refused(engine, engine.create(ctypes.byref(options), ctypes.byref(model)))
