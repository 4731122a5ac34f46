"""Kinds of kernels that compute two products, one behind the other: what they have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, TypeVar

from bolt_build.dtypes import DType
from bolt_build.families.base import (
    Candidate,
    Expense,
    KernelProblem,
    KernelUnit,
    StepCode,
    StepExpressions,
)
from bolt_build.families.common.chains import parts
from bolt_build.families.common.element_types import refuse_half
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.text_form import Named, Reader
from bolt_build.families.common.units import named_unit
from bolt_build.families.cutlass.constants import constant
from bolt_build.families.cutlass.epilogue import epilogue_type, epilogue_value, refuse_channels, residual, stage_words
from bolt_build.families.cutlass.expense import copy_seconds
from bolt_build.families.cutlass.expense import expense as product_expense
from bolt_build.families.cutlass.kinds.kind import SPACE, gpu_of
from bolt_build.families.cutlass.problems import conv
from bolt_build.families.cutlass.problems.apart import between_rows, reads_apart
from bolt_build.families.cutlass.problems.padding import refuse_padding
from bolt_build.families.cutlass.problems.product import ALIGNMENT, Product, Work, work
from bolt_build.families.cutlass.problems.products import multiplies, product_of, refuse_problem
from bolt_build.families.cutlass.tile_kind import TileKind
from bolt_build.families.reason import Reason, within
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.targets import Gpu, Target


@dataclass(frozen=True)
class ProductChain:
    """Two products, as the kernels compute them one behind the other: columns of the first are rows of the second's
    depth, and both have the same rows."""

    first: Product
    second: Product


class ChainTile(Protocol):
    """A tile of kernels for two products: all in which their kinds differ.

    `header` ends the name of the C++ header, `memory_mb` is what compiling a kernel takes at its peak, `halves` are the
    types that its kernels compute in, `group` is that of its offers.
    """

    header: ClassVar[str]
    memory_mb: ClassVar[int]
    halves: ClassVar[tuple[DType, ...]]
    group: ClassVar[str]

    @property
    def parameters(self) -> Named:
        """As candidates state it."""
        ...

    def refuse(self, gpu: Gpu, chain: ProductChain) -> str | None:
        """Why no kernel with the tile computes the products on this GPU, None where one does."""
        ...

    def seconds(self, chain: ProductChain, work: Work, target: Target) -> float:
        """Predicted time of both; `work` is the first's, but for its bytes, which are those of the whole kernel."""
        ...

    def cxx(self, gpu: Gpu, chain: ProductChain) -> str:
        """The C++ type."""
        ...

    def packed(self, chain: ProductChain) -> str:
        """How it wants the first's weights packed."""
        ...


T = TypeVar("T", bound=ChainTile)


def chain_of(problem: KernelProblem) -> ProductChain:
    """Both products of a problem that `refuse_products` does not refuse."""
    first, second = map(_product, parts(problem))
    # What lies between is never stored, so it needs no copy with padded rows.
    return ProductChain(first, replace(second, widen=None))


def _product(problem: KernelProblem) -> Product:
    # Two results beside each other would be one row of the second's A operand.
    return conv.product_of(problem, whole_rows=True) if type(problem.op) is Conv else product_of(problem)


def refuse_products(problem: KernelProblem) -> str | None:
    """A reason why no kernel of this family computes both products, whatever its tile."""
    first, second = parts(problem)
    if type(first.op) is not type(second.op) or not multiplies(first.op):
        return f"{second.op.kind} behind {first.op.kind} does not multiply its rows"
    for place, each in (("first", first), ("second", second)):
        if (reason := refuse_problem(each) or refuse_channels(each)) is not None:
            return within(f"the {place} product", reason)
    if (reason := refuse_padding(first, _product(first))) is not None:
        return within("the first product", reason)
    behind = _product(second)
    if behind.kernel != "Gemm":
        return "the second convolution is not 1x1 with a stride of one, without padding"
    if behind.n % ALIGNMENT:
        return Reason("stores {} columns at once, {} is no multiple", ALIGNMENT, behind.n)
    if any(isinstance(stage.op, Activation) and stage.op.function == "reciprocal" for stage in first.epilogue):
        return "the zeros that pad rows of the first product have no reciprocal"
    return None


@dataclass(frozen=True)
class ChainKind(TileKind[T, ProductChain]):
    """A kind of kernels for two products. `tiles` gives those that may do, and why there are none; `read` finds one in
    a candidate's parameters."""

    tiles: Callable[[Gpu, ProductChain], tuple[tuple[T, ...], str | None]]
    read: Callable[[Reader], T]

    def serves(self, problem: KernelProblem) -> bool:
        first, *behind = problem.op.sequence
        return multiplies(first.op) and len(behind) == 1 and multiplies(behind[0].op)

    def read_tile(self, reader: Reader) -> T:
        return self.read(reader)

    def refuse_problem(self, problem: KernelProblem, gpu: Gpu) -> str | None:
        return refuse_products(problem)

    def computed(self, problem: KernelProblem) -> ProductChain:
        return chain_of(problem)

    def tiles_for(self, what: ProductChain, gpu: Gpu) -> tuple[tuple[T, ...], str | None]:
        return self.tiles(gpu, what)

    def refuse_tile(self, tile: T, what: ProductChain, gpu: Gpu) -> str | None:
        return tile.refuse(gpu, what) or refuse_half(tile.halves, what.first.dtype)

    def seconds(self, problem: KernelProblem, what: ProductChain, candidate: Candidate, target: Target) -> float:
        return _seconds(problem, what, self.tile_of(candidate), target)

    def group(self, tile: T) -> str:
        return tile.group

    def expense(self, problem: KernelProblem, candidate: Candidate | None) -> Expense:
        """Of both products, without what lies between them."""
        (first, second), chain = parts(problem), chain_of(problem)
        found = [product_expense(first, chain.first), product_expense(second, chain.second)]
        nbytes = sum(each.nbytes for each in found) - 2 * first.outputs[0].nbytes
        why = "; ".join(each.why for each in found if each.why)
        return Expense(nbytes, sum(each.flops for each in found), why, found[0].copied, found[0].copied_as)

    def reads_apart(self, problem: KernelProblem) -> tuple[int, ...]:
        return reads_apart(problem, chain_of(problem).first, 0, residual(problem))

    def emit(self, problem: KernelProblem, candidate: Candidate, target: Target, at: StepExpressions) -> StepCode:
        (first, second), chain, tile = parts(problem), chain_of(problem), self.tile_of(candidate)
        own, count = op_operands(problem), len(first.inputs)
        types = (tile.cxx(gpu_of(target), chain), epilogue_type(first), epilogue_type(second), chain.first.source)
        product, added = chain.first.reading(first.inputs[0], at.input_pitch(0)), residual(problem)
        member = f"{SPACE}::Pair{chain.first.kernel}<{', '.join(types)}>"
        ones, others = own[:count], own[count:]
        arguments = (
            product.arguments(between_rows(at, added)), product.source_value,
            constant(at, ones[1]), tile.packed(chain), constant(at, *ones[2:]), epilogue_value(first),
            str(chain.second.n), constant(at, others[0]), chain.second.weights, constant(at, *others[1:]),
            epilogue_value(second),
        )  # fmt: skip
        other = "nullptr" if added is None else at.inputs[added]
        call = f"kernel.run(r, {at.inputs[0]}, {other}, {at.outputs[0]});"
        return StepCode(("bolt_cutlass/plans/pair.h",), member, ", ".join(arguments), call)

    def unit(self, problem: KernelProblem, candidate: Candidate, target: Target) -> KernelUnit:
        (first, second), chain, tile = parts(problem), chain_of(problem), self.tile_of(candidate)
        kind = chain.first.kernel.lower()
        text = (
            f'#include "bolt_cutlass/units/{kind}{tile.header}_kernel.h"\n\n'
            f"template void {SPACE}::launch_{kind}(\n    {tile.cxx(gpu_of(target), chain)},\n"
            f"    const {SPACE}::{chain.first.kernel}Arguments&, const {SPACE}::SecondArguments&,\n"
            f"    const {epilogue_type(first)}&,\n    const {epilogue_type(second)}&, void*);\n"
        )
        label = f"{kind}{stage_words(first)} | {kind}{stage_words(second)}, tile {tile}"
        return named_unit(text, tile.memory_mb, label)


def _seconds(problem: KernelProblem, chain: ProductChain, tile: ChainTile, target: Target) -> float:
    """The first product's time with the bytes of both, but for those that are not moved any more."""
    first, second = parts(problem)
    one, other = work(first, chain.first), work(second, chain.second)
    moved = one.nbytes + other.nbytes - 2 * first.outputs[0].nbytes
    needed = replace(one, nbytes=moved, functions=other.functions, between=one.functions)
    return copy_seconds(first, chain.first, target) + tile.seconds(chain, needed, target)
