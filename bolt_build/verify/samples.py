"""What an engine is run on to be verified: seeded random inputs, or the recipe's own."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bolt_build.errors import BoltError, Diagnostic
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import Array
from bolt_build.graph.zoo.samples import sample
from bolt_build.planner.engine_plan import BatchPlan, Port
from bolt_build.schema.recipe import VerifySpec
from bolt_build.verify.index_ranges import index_ranges
from bolt_build.verify.report import SEEDED


class Samples:
    """Inputs for every batch, by number. Those of a file are taken in turn, row by row along the first axis, and begin
    again where they end; there are at most `spec.samples`, and no more than the rows fill."""

    def __init__(self, spec: VerifySpec) -> None:
        self.seed = spec.seed
        self._most = spec.samples
        self._path = None if spec.inputs is None else Path(spec.inputs)
        self._given: dict[str, Array] = {}

    @property
    def origin(self) -> str:
        """Where inputs come from: "seeded", or the file's name."""
        return SEEDED if self._path is None else self._path.name

    def count(self, batch: int, ports: tuple[Port, ...]) -> int:
        """How many samples there are for a batch. Raises BoltError where the file's arrays do not fit the ports."""
        if self._path is None:
            return self._most
        self._read(self._path, ports)
        rows = [len(self._given[port.name]) for port in ports if self._given[port.name].shape != port.operand.shape]
        return min(self._most, max((-(-count // batch) for count in rows), default=1))

    def inputs(self, plan: BatchPlan, number: int) -> dict[str, Array]:
        """Inputs of sample `number` in the engine's element types."""
        if self._path is None:
            ranges = index_ranges(plan)
            return {
                port.name: self._seeded(plan, port, number, index, ranges.get(port.name, 2))
                for index, port in enumerate(plan.inputs)
            }
        return {port.name: self._rows(port, number) for port in plan.inputs}

    def _seeded(self, plan: BatchPlan, port: Port, number: int, index: int, below: int) -> Array:
        """Whole numbers are from 0 on and `below` that: what they index has as many."""
        kind = port.operand.type
        if kind.dtype.is_float:
            array: Array = sample(kind.shape, self.seed, plan.batch, number, index)
        else:
            most = min(below, np.iinfo(numpy_dtype(kind.dtype)).max) if kind.dtype.is_integer else 2
            drawn = np.random.RandomState([self.seed, plan.batch, number, index])
            array = np.asarray(drawn.randint(0, most, kind.shape, np.int64))
        return array.astype(numpy_dtype(kind.dtype))

    def _rows(self, port: Port, number: int) -> Array:
        given, shape = self._given[port.name], port.operand.shape
        if given.shape != shape:
            given = given.take(np.arange(number * shape[0], (number + 1) * shape[0]) % len(given), axis=0)
        return np.ascontiguousarray(given).astype(numpy_dtype(port.operand.type.dtype))

    def _read(self, path: Path, ports: tuple[Port, ...]) -> None:
        """The arrays that the ports are named after."""
        if not self._given:
            self._given = _arrays(path, {port.name for port in ports})
        wrong = [found for port in ports if (found := _misfit(path, self._given.get(port.name), port)) is not None]
        if wrong:
            raise BoltError(wrong)


def _arrays(path: Path, names: set[str]) -> dict[str, Array]:
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, Mapping):
                raise ValueError("it is one array, not an archive of arrays by name")
            return {name: np.asarray(archive[name]) for name in archive if name in names}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        message = f"the inputs to verify with cannot be read: {error}"
        raise BoltError([Diagnostic("bad-inputs", message, subject=str(path))]) from error


def _misfit(path: Path, array: Array | None, port: Port) -> Diagnostic | None:
    """What is wrong with the array for a port."""
    shape, dtype = port.operand.shape, port.operand.type.dtype
    wanted = f"{dtype.value}{list(shape)}"
    if array is None:
        hint = f"save it as numpy.savez(..., **{{'{port.name}': array}})"
        return Diagnostic("bad-inputs", f"there is no array '{port.name}', an input of {wanted}", None, hint, str(path))
    fits = array.shape == shape or (
        array.ndim == len(shape) > 0 and array.shape[1:] == shape[1:] and array.shape[0] > 0
    )
    if not fits:
        message = f"the array '{port.name}' is {list(array.shape)}, the input is {wanted}"
        hint = "any number of rows along the first axis, and the input's other extents"
        return Diagnostic("bad-inputs", message, None, hint, str(path))
    if array.dtype.kind not in ("f" if dtype.is_float else "iub"):
        message = f"the array '{port.name}' holds {array.dtype}, the input is {wanted}"
        return Diagnostic("bad-inputs", message, None, None, str(path))
    return None
