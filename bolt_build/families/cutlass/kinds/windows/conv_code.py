"""What is emitted for one convolution whose kernel packs its filters in a form of its own: kernels of groups and of
volumes."""

from __future__ import annotations

from bolt_build.families.base import KernelProblem, KernelUnit, StepCode, StepExpressions
from bolt_build.families.common.problems import op_operands
from bolt_build.families.common.units import named_unit
from bolt_build.families.cutlass.constants import constant
from bolt_build.families.cutlass.epilogue import EpilogueCode, channels, residual, stage_words
from bolt_build.families.cutlass.kinds.kind import SPACE
from bolt_build.families.cutlass.problems.apart import between_rows
from bolt_build.families.cutlass.problems.product import Product


def conv_step(
    problem: KernelProblem, product: Product, tile: str, packed: str, at: StepExpressions,
    fields: tuple[tuple[str, str], ...] = (), epilogue: EpilogueCode | None = None,
) -> StepCode:  # fmt: skip
    """The member, its arguments and the call. `tile` is the C++ type, `packed` the value that says how filters lie, and
    `fields` are those of the kernel's arguments beside the product's. `epilogue`: the problem's, unless said."""
    own, added, epilogue = op_operands(problem), residual(problem), epilogue or EpilogueCode.of(problem)
    member = f"{SPACE}::{product.kernel}<{tile}, {epilogue.type}, {product.source}>"
    arguments = (
        product.arguments((*between_rows(at, added), *fields)), product.source_value, constant(at, own[1]), packed,
        constant(at, *own[2:]), epilogue.value, *(constant(at, each) for each in channels(problem)),
    )  # fmt: skip
    other = "nullptr" if added is None else at.inputs[added]
    call = f"kernel.run(r, {at.inputs[own[0]]}, {other}, {at.outputs[0]});"
    return StepCode(("bolt_cutlass/plans/prepared.h",), member, ", ".join(arguments), call)


def conv_unit(
    problem: KernelProblem, header: str, tile: str, memory_mb: int, shown: str, kernel: str = "Conv",
    epilogue: EpilogueCode | None = None,
) -> KernelUnit:  # fmt: skip
    """What instantiates the kernel of `header` for the C++ type `tile`, which people read as `shown`. Its compiler
    takes `memory_mb` MB. `kernel`: as `Product` has it. `epilogue`: the problem's, unless said."""
    epilogue = epilogue or EpilogueCode.of(problem)
    text = (
        f'#include "bolt_cutlass/units/{header}"\n\n'
        f"template void {SPACE}::launch_{kernel.lower()}(\n    {tile},\n"
        f"    const {SPACE}::{kernel}Arguments&,\n    const {epilogue.type}&, void*);\n"
    )
    return named_unit(text, memory_mb, f"{kernel.lower()} tile {shown}{stage_words(problem)}")
