"""A function of quantised tensors element by element, whose result is quantised: integers in, integers out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, EpilogueOp, Op, ShapeError, TensorType
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.quantised.quantize import Dequantize, Quantize


@dataclass(frozen=True)
class QuantisedMap(Op):
    """`function` of the first sides and then `stages`, whose operands are sides too, rounded to `to`.

    Inputs are the sides one behind the other, each real or, where `quantised` says so, integers with scale and zero
    point; at the end scale and zero point of the result. All is computed in fp32.
    """

    kind = "quantised-map"
    function: Activation | Binary
    to: DType
    quantised: tuple[bool, ...]
    stages: tuple[EpilogueOp, ...] = ()

    @property
    def sides(self) -> tuple[tuple[int, ...], ...]:
        """Of each side which inputs it has."""
        found, at = list[tuple[int, ...]](), 0
        for quantised in self.quantised:
            found.append(tuple(range(at, at + (3 if quantised else 1))))
            at = found[-1][-1] + 1
        return tuple(found)

    @property
    def first(self) -> int:
        """Sides of the function."""
        return 2 if isinstance(self.function, Binary) else 1

    def infer(self, inputs: Sequence[TensorType]) -> tuple[TensorType, ...]:
        if len(inputs) != sum(map(len, self.sides)) + 2:
            raise ShapeError(f"takes {sum(map(len, self.sides)) + 2} inputs, not {len(inputs)}")
        back, sides = Dequantize(DType.F32), list[TensorType]()
        for side in self.sides:
            given = [inputs[index] for index in side]
            sides.append(given[0] if len(given) == 1 else back.infer(given)[0])
        (made,) = self.function.infer(sides[: self.first])
        for stage in self.stages:
            own = [made] if stage.operand is None else [made, sides[stage.operand]]
            if stage.op.infer(own)[0] != made:
                raise ShapeError(f"{stage.op.kind} changes {list(made.shape)}")
        return Quantize(self.to).infer([made, *inputs[-2:]])

    def evaluate(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        back, sides = Dequantize(DType.F32), list[Array]()
        for side in self.sides:
            given = [inputs[index] for index in side]
            sides.append(given[0].astype(np.float32) if len(given) == 1 else back.evaluate(given)[0])
        (made,) = self.function.evaluate(sides[: self.first])
        for stage in self.stages:
            own = [made] if stage.operand is None else [made, sides[stage.operand]]
            (made,) = stage.op.evaluate(own[::-1] if stage.swapped else own)
        return Quantize(self.to).evaluate([made, *inputs[-2:]])
