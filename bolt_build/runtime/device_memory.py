"""Memory of a model's device, and addresses of arrays as the engine's ABI takes them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from bolt_build.runtime import engine_abi as abi
from bolt_build.runtime.engine_tensors import Array


class DeviceMemory:
    """Memory of the device of a model with this table and handle, filled from and read into arrays.

    `check` raises for a status that is not BOLT_OK: the allocation may fail, and each copy.
    """

    def __init__(
        self, table: abi.EngineTable, model: ctypes.c_void_p, check: Callable[[int], None], nbytes: int
    ) -> None:
        self._table, self._model, self._check = table, model, check
        self._at = ctypes.c_void_p()
        check(table.allocate(model, nbytes, ctypes.byref(self._at)))

    @property
    def address(self) -> int:
        return self._at.value or 0

    def fill(self, array: Array) -> None:
        self._copy(self.address, array.ctypes.data, array.nbytes)

    def read(self, array: Array) -> None:
        self._copy(array.ctypes.data, self.address, array.nbytes)

    def close(self) -> None:
        self._table.release(self._model, self._at)

    def _copy(self, to: int, source: int, nbytes: int) -> None:
        self._check(self._table.copy(self._model, to, source, nbytes, None))


def pointers(arrays: Sequence[Array]) -> Any:
    """A `void* const*` of the arrays' data, which the caller keeps alive."""
    return addressed([array.ctypes.data for array in arrays])


def addressed(addresses: Sequence[int]) -> Any:
    """A `void* const*` of these addresses."""
    return (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
