"""What rounding can do to a layer: the variance of its result, computed by onnxruntime beside the result itself.

Every stored weight, every addition and every stored result is off by a random part of itself, at most a unit roundoff.
To first order the variance of what comes out follows from the layer's own inputs: for y = sum of w x over n products it
is the sum of w^2 x^2, times the variance of a weight's rounding and a share of n for the additions, whose partial sums
grow with the square root of their number where signs are mixed, and with the number itself where they are not (y^2).
So a rule for an operator (`rounding_rules`) is a few more nodes: the same convolution over squares, say.
Variances are in units of the square of fp32's unit roundoff, `UNIT`; a tensor without one is exact.

Rounding errors are taken as independent, except over positions: a weight's is the same at each of them, so that means
and windows over them do not level it out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from onnx import NodeProto

from bolt_build.dtypes import DType
from bolt_build.verify.emitter import Emitter
from bolt_build.verify.taps import Tap

UNIT = 2.0**-24
"""fp32's unit roundoff: the largest relative error of rounding to nearest."""
UNITS = {DType.F64: 2.0**-29, DType.F32: 1.0, DType.F16: 2.0**13, DType.BF16: 2.0**16}
"""Unit roundoffs in `UNIT`s."""
SMALLEST = {DType.F32: 2.0**-126, DType.F64: 2.0**-126, DType.BF16: 2.0**-126, DType.F16: 2.0**-25}
"""The most that rounding is off by where numbers are smaller than the smallest normal one, where that can count."""
FUNCTION = 16.0**2
"""Variance of a function that is computed by a polynomial: 2^-20, the most that fast forms on GPUs are off by."""

Variance = str | None


@dataclass(frozen=True)
class Roundings:
    """Variances, relative and in units of UNIT^2: of a constant as it is stored (`weight`), of what a node leaves
    (`result`) and of an addition (`addition`). The engine's and the reference's roundings are counted together.

    `least`: the variance of a constant that is stored as a subnormal number, whose rounding is no part of itself.
    `once`: what linear nodes leave is not stored in between. Then the roundings that are relative to their results
    count once, at the end (`at_the_end`), which spares passes over every tensor.
    """

    weight: float
    result: float
    addition: float
    once: bool
    least: float = 0.0

    def at_the_end(self, additions: float) -> float:
        """The variance, relative to the tap, of its last result and of `additions` partial sums as large as it is."""
        return self.result + self.addition / 3.0 * additions


OF_CONSTANTS = Roundings(weight=0.0, result=2.0 / 3.0, addition=2.0 / 3.0, once=False)
"""Of what a model computes of constants, in fp32 whatever the engine computes in: constants themselves are exact."""


def variance_of(dtype: DType) -> float:
    """Of rounding to nearest, relative, at its largest; 0 for integers and booleans."""
    return UNITS.get(dtype, 0.0) ** 2 / 3.0


def roundings_of(tap: Tap) -> Roundings:
    """Those on the way from a tap's sources to it. The last, of the tap itself, is not among them."""
    own = variance_of(DType.F32)
    coarse = variance_of(tap.computed) if tap.computed in (DType.F16, DType.BF16) else own
    # What matrix instructions of half precision add in fp32 is cut off, not rounded, and aligned before.
    addition = own if coarse == own else 16.0 * own
    stored = coarse if tap.roundings > 1 else own
    # bf16's are as small as fp32's: their squares are none.
    least = (SMALLEST[tap.computed] / UNIT) ** 2 / 3.0 if tap.computed is DType.F16 else 0.0
    return Roundings(coarse + own, stored + own, addition + own, tap.roundings <= 1, least)


@dataclass(frozen=True)
class Work:
    """One node of a segment under its rule: its inputs, their variances and its outputs as the graph names them.
    `fixed` says which inputs do not depend on the segment's; `counts` are how many products each sum of the segment
    has had so far, as names of scalars. `means`: the rows of input 0 are shares of 1, as softmax leaves them. `stored`
    says which inputs are floating-point constants. `careful`: no effort is spared. `apart`: of sums with constants, by
    name, what emits the same without them. `floors` and `unscaled`: see `small_weights`."""

    emit: Emitter
    node: NodeProto
    inputs: Sequence[str]
    variances: Sequence[Variance]
    outputs: Sequence[str]
    fixed: Sequence[bool]
    roundings: Roundings
    counts: list[str]
    means: bool = False
    stored: Sequence[bool] = ()
    careful: bool = False
    apart: dict[str, Callable[[], str]] = field(default_factory=dict)
    floors: dict[str, Callable[[], str]] = field(default_factory=dict)
    unscaled: dict[str, Callable[[], str]] = field(default_factory=dict)

    def again(self, inputs: Sequence[str], **changed: object) -> str:
        """The same operator on other inputs."""
        return self.emit.again(self.node, inputs, changed)

    def plus(self, *terms: Variance) -> Variance:
        """The sum of those terms that are not None."""
        total: Variance = None
        for term in terms:
            if term is not None:
                total = term if total is None else self.emit.sum(total, term)
        return total

    def real(self, name: str, default: float) -> float:
        return next((attribute.f for attribute in self.node.attribute if attribute.name == name), default)

    def integer(self, name: str, default: int) -> int:
        return next((attribute.i for attribute in self.node.attribute if attribute.name == name), default)

    def rounded(self, variance: Variance, relative: float, output: int = 0) -> Variance:
        """`variance` and that of a relative rounding of the result."""
        return self.plus(variance, self.emit.scaled(self.emit.square(self.outputs[output]), relative))

    def kept(self, variance: Variance) -> Variance:
        """`variance` and that of storing the result of a linear node."""
        return variance if self.roundings.once else self.rounded(variance, self.roundings.result)

    def between(self, variance: Variance) -> Variance:
        """`variance` of a product or scale and, where its result may be stored in between, that of numbers below the
        normal ones."""
        if variance is None or self.roundings.once or not self.roundings.least:
            return variance
        return self.emit.affine(variance, 1.0, self.roundings.least)

    def summed(self, variance: Variance, count: str) -> Variance:
        """`variance` and that of partial sums as large as the result, of `count` products."""
        self.counts.append(count)
        if self.roundings.once:
            return variance
        each = self.emit.affine(count, self.roundings.addition / 3.0, self.roundings.result)
        return self.plus(self.between(variance), self.emit.product(self.emit.square(self.outputs[0]), each))

    def settled(self) -> tuple[Variance, ...]:
        """The variances of inputs with the roundings that are relative to these: at the end only those would count that
        are relative to the end. A sum may come to much less than what it adds, and a gate to less than what it lets
        through."""
        emit = self.emit
        if not self.roundings.once or not self.counts:
            return tuple(self.variances)
        each = emit.constant(self.roundings.result)
        for count in self.counts:
            each = emit.sum(each, emit.scaled(count, self.roundings.addition / 3.0))
        return tuple(
            None if variance is None else emit.sum(variance, emit.product(emit.square(name), each))
            for name, variance in zip(self.inputs, self.variances, strict=True)
        )

    def without_constants(self, index: int) -> str:
        """Input `index` of a sum, without the constants that were added: 0 for a constant."""
        name = self.inputs[index]
        if self.fixed[index]:
            return self.emit.zeros_like(name)
        return self.apart[name]() if name in self.apart else name

    def keep_apart(self, index: int = 0) -> None:
        """A linear operator with constants beside input `index`: if that was a sum with constants, so is the result."""
        part = self.apart.get(self.inputs[index])
        if part is not None:
            before, behind = self.inputs[:index], self.inputs[index + 1 :]
            self.apart[self.outputs[0]] = functools.cache(lambda: self.again([*before, part(), *behind]))

    def weight(self, index: int) -> float:
        """The relative variance of input `index` by its own storing: that of a constant."""
        return self.roundings.weight if self.fixed[index] else 0.0

    def storing(self, constant: str) -> Variance:
        """The variance of each element of what is stored as a constant; 0 of what masks, whose square no type holds."""
        square = self.emit.square(self._unmasked(constant))
        return self.emit.affine(square, self.roundings.weight, self.roundings.least)

    def _unmasked(self, name: str) -> str:
        """A constant, 0 where it is a mask's. Opsets before 9 cannot say so."""
        emit = self.emit
        if emit.opset < 9:
            return name
        small = emit.add("Less", [emit.add("Abs", [name]), emit.constant(1e18)])
        return emit.add("Where", [small, name, emit.constant(0.0)])


Rule = Callable[[Work], Variance]


def additions(work: Work, count: str) -> tuple[str, str]:
    """What n additions do, as factors of the sum of squares and of the squared sum: the mean partial sum's square is
    their mean for random signs, n/2 and n^2/3."""
    half = work.emit.scaled(count, work.roundings.addition / 6.0)
    return half, work.emit.scaled(count, work.roundings.addition / 3.0)


def measured(work: Work, output: int = 0, step: float = 256.0) -> Variance:
    """For an operator without a rule: what a push of its inputs by `step` times their errors does, in proportion,
    and the mean of that over the tensor, for a push may have no effect where an error has one."""
    emit = work.emit
    pushed = []
    for name, variance, fixed in zip(work.inputs, work.variances, work.fixed, strict=True):
        if fixed or not name:
            pushed.append(name)
            continue
        size = emit.square(name) if variance is None else emit.sum(emit.square(name), variance)
        pushed.append(emit.sum(name, emit.scaled(emit.add("Sqrt", [size]), step * UNIT)))
    change = emit.add("Sub", [emit.again(work.node, pushed, output=output), work.outputs[output]])
    squared = emit.scaled(emit.square(emit.scaled(change, 1.0 / UNIT)), 1.0 / step**2)
    smooth = emit.sum(squared, emit.add("ReduceMean", [squared]))
    size = emit.square(work.outputs[output])
    own = emit.scaled(emit.sum(size, emit.add("ReduceMean", [size])), FUNCTION)
    return work.rounded(emit.sum(smooth, own), work.roundings.result, output)
