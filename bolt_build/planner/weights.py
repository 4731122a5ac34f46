"""The table of weights: one for all batches, in the order of first use."""

from __future__ import annotations

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import Array, Graph
from bolt_build.planner.engine_plan import WeightSlot
from bolt_build.planner.memory import aligned
from bolt_build.sizes import sizes_of


def _stored(array: Array, dtype: DType) -> Array:
    """`array` in `dtype`. Numbers beyond a half type end at its largest: exporters write masks with the least of fp32,
    which must stay finite, for it is multiplied by 0 where nothing is masked."""
    kind = numpy_dtype(dtype)
    if dtype not in (DType.F16, DType.BF16) or array.dtype == kind:
        return array.astype(kind, copy=False)
    most = float(ml_dtypes.finfo(kind).max)  # type: ignore[no-untyped-call]
    wide = array if array.dtype == np.float64 else array.astype(np.float32, copy=False)
    if array.size == 0 or (-most <= wide.min() and wide.max() <= most):  # false where there is a NaN
        return wide.astype(kind)
    return np.where(np.isfinite(wide), np.clip(wide, -most, most), wide).astype(kind)


@dataclass(frozen=True)
class Weight:
    """A constant, and the element type of its slot. Plans are made by the hundred and hardly any is written, so it is
    converted when its bytes are asked for."""

    constant: Array = field(compare=False, repr=False)
    dtype: DType

    @property
    def nbytes(self) -> int:
        return self.constant.size * numpy_dtype(self.dtype).itemsize

    @property
    def array(self) -> Array:
        """In memory's order, in the slot's element type."""
        return np.ascontiguousarray(_stored(self.constant, self.dtype)).reshape(self.constant.shape)


class WeightTable:
    """Collects constants under (name, element type); the same in another batch is the same slot.

    Slots are told apart by name, not by contents: two equal weights of one model may differ in the next one that is
    loaded into the same engine. Contents count only between batches: a constant that depends on the batch gets a slot
    in each.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, DType, str], int] = {}
        self._taken: set[tuple[str, DType]] = set()
        self._slots: list[WeightSlot] = []
        self._weights: list[Weight] = []

    def index(self, graph: Graph, name: str, dtype: DType) -> int:
        """The slot that holds constant `name` of `graph` as `dtype`."""
        constant = graph.value(name).constant
        assert constant is not None, f"'{name}' is no constant"
        key = (name, dtype, constant.digest)
        if key not in self._found:
            weight = Weight(constant.array, dtype)
            taken = (name, dtype) in self._taken
            self._taken.add((name, dtype))
            self._found[key] = len(self._slots)
            offset = aligned(self._slots[-1].offset + self._slots[-1].nbytes) if self._slots else 0
            slot_name = f"{name}@batch{sizes_of(graph).key}" if taken else name
            self._slots.append(WeightSlot(slot_name, dtype, constant.array.shape, offset, weight.nbytes))
            self._weights.append(weight)
        return self._found[key]

    def slots(self) -> tuple[WeightSlot, ...]:
        return tuple(self._slots)

    def weights(self) -> tuple[Weight, ...]:
        """What the slots hold."""
        return tuple(self._weights)
