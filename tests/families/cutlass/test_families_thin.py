"""Products of few channels, of which each warp computes whole rows by itself: which suit, how candidates state them,
and the C++ of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from families_harness import Layer, graph_with
from gpu_pairs import steps_of
from gpu_products import RESIDUAL, conv, matmul
from gpu_prologues import affine, gate
from gpu_prologues import product as behind_gate
from gpu_thin import tile

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, StepExpressions
from bolt_build.families.cutlass.family import Cutlass
from bolt_build.families.cutlass.kinds.warps.thin import THIN_TILES, ThinTile, refuse_product
from bolt_build.families.cutlass.kinds.warps.thin_gate import ThinGateTile
from bolt_build.families.cutlass.one_product import Kernel, ProductKind
from bolt_build.families.cutlass.problems.product import Product
from bolt_build.families.cutlass.problems.products import product_of
from bolt_build.families.cutlass.registry import KINDS
from bolt_build.targets import Gpu, target_named

H200, A100 = target_named("h200"), target_named("a100")
FAMILY, SPACE = Cutlass(), "bolt::cutlass_kernels"
(THIN,) = (kind for kind in KINDS if isinstance(kind, ProductKind) and tile(16, 8) in kind.tiles)


def gpu(target: str = "h200") -> Gpu:
    found = target_named(target).gpu
    assert found is not None
    return found


def problem(layer: Layer) -> KernelProblem:
    graph, node = graph_with(layer)
    return FAMILY.propose(graph, node, H200, DType.F16)[0][0].steps[0].problem


def product(channels: int, filters: int, extent: int = 56, **more: object) -> Product:
    return product_of(problem(conv("", (32, channels, extent, extent), filters, (1, 1), **more)))  # type: ignore[arg-type]


EXPANDS = product(24, 144)
WINDOWS = product_of(problem(conv("", (32, 48, 56, 56), 64, (3, 3))))


# Which there are.


def test_candidates_say_rows_and_warps() -> None:
    given = problem(conv("", (32, 24, 56, 56), 144, (1, 1)))
    for each in (tile(32, 16), tile(16, 24, "ahead")):
        candidate = Kernel(each).candidate()
        assert THIN.kernel_of(candidate) == Kernel(each)
        assert FAMILY.refuse(given, candidate, H200) is None
    assert str(Kernel(tile(32, 16)).candidate()) == "cutlass rows=32 warps=16 x=whole"
    assert str(Kernel(tile(16, 24, "ahead")).candidate()) == "cutlass rows=16 warps=24 x=ahead"
    assert not THIN.reads(Candidate("cutlass", (("rows", 14), ("steps", 4), ("resident", "turns"))))
    assert str(tile(16, 24, "ahead")) == "16 rows of a warp, 24 warps, loaded ahead"


@pytest.mark.parametrize(
    ("of", "reason"),
    [
        (EXPANDS, None),
        (WINDOWS, "rows of single warps are of no larger windows than 1x1"),
        (product(256, 256), "each multiprocessor would fetch 132096 bytes of weights, over 98304"),
        (replace(EXPANDS, wide=True), "rows of single warps are stored in half precision"),
        (product(24, 36), "stores 8 columns at once, 36 is no multiple"),
    ],
)  # fmt: skip
def test_what_is_not_thin_says_why(of: Product, reason: str | None) -> None:
    assert refuse_product(gpu(), of) == reason


def test_gpus_whose_launches_do_not_overlap_have_none() -> None:
    assert refuse_product(gpu("a100"), EXPANDS) == "rows of single warps need launches that overlap"


@pytest.mark.parametrize(
    ("of", "each", "reason"),
    [
        (product(144, 24), tile(32, 16), "a thread would need 144 registers, 16 warps leave it 128"),
        (replace(EXPANDS, m=16 * 132 * 4), tile(16, 8), None),
        (EXPANDS, tile(16, 8, "runs"), "24 channels are no more than one run"),
        (product(24, 144, 7), tile(32, 8), "1568 rows are work for less than half of its 8 warps"),
    ],
)
def test_tiles_that_do_not_suit_say_why(of: Product, each: ThinTile, reason: str | None) -> None:
    assert each.refuse(gpu(), of) == reason
    assert each.refuse_slices(gpu(), of) == "its warps compute whole rows"


def test_all_tiles_leave_registers_for_their_warps() -> None:
    for each in THIN_TILES:
        if each.refuse(gpu(), EXPANDS) is None:
            assert each.registers(EXPANDS) * 32 * each.warps <= gpu().registers


# C++.


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_a_thin_product_is_called_and_instantiated(dtype: DType) -> None:
    layer = conv("", (32, 24, 56, 56), 144, (1, 1), epilogue=RESIDUAL)
    graph, node = graph_with(replace(layer, precision=dtype))
    given = FAMILY.propose(graph, node, H200, dtype)[0][0].steps[0].problem
    candidate = Kernel(tile(32, 12, "ahead")).candidate()
    at = StepExpressions(("x", "w", "b", "r"), ("y",), (None, "p.weight(1)", "p.weight(2)", None))
    code = FAMILY.emit(given, candidate, H200, at)
    element = ", bolt::portable::bf16" if dtype is DType.BF16 else ""
    own = f"{SPACE}::ThinTile<24, 144, 32, 12, {SPACE}::ThinLoads::ahead{element}>"
    assert code.member_type is not None
    assert code.member_type.startswith(f"{SPACE}::Gemm<{own}, ")
    assert code.call == "kernel.run(r, x, r, y);"
    (unit,) = FAMILY.units([(given, candidate)], H200)
    assert unit.text.startswith('#include "bolt_cutlass/units/gemm_thin_kernel.h"\n\n')
    assert own in unit.text


def test_matrix_products_have_such_kernels_too() -> None:
    given = problem(matmul("", (20000, 40), 24, True, ()))
    assert any(THIN.reads(each) for each in FAMILY.candidates(given, H200)[0])


# Behind a gate.


def gated(channels: int, filters: int, extent: int = 56) -> KernelProblem:
    layer = behind_gate("", gate((32, channels, extent, extent), first=True), filters, epilogue=())
    (step,) = steps_of(layer)
    return step.problem


def test_a_gate_rides_in_the_loads_of_thin_rows() -> None:
    given, candidate = gated(96, 24), Candidate("cutlass", ThinGateTile(tile(16, 16, "ahead")).parameters)
    assert str(candidate) == "cutlass rows=16 warps=16 x=ahead prologue=gate"
    assert FAMILY.refuse(given, candidate, H200) is None
    assert candidate in FAMILY.candidates(given, H200)[0]
    (unit,) = FAMILY.units([(given, candidate)], H200)
    own = f"{SPACE}::ThinGate<96, 24, 16, 16, {SPACE}::ThinLoads::ahead>"
    assert own in unit.text
    assert f"const {SPACE}::Gate<1>&" in unit.text
    at = StepExpressions(("g", "x", "w", "b"), ("y",), (None, None, "p.weight(2)", "p.weight(3)"))
    code = FAMILY.emit(given, candidate, H200, at)
    assert code.member_type is not None
    assert code.member_type.startswith(f"{SPACE}::PrologueGemm<{own}, {SPACE}::Gate<1>, ")
    assert f"{SPACE}::ThinFilter{{" in code.member_arguments


def test_gates_take_registers_beside_the_rows() -> None:
    candidate = Candidate("cutlass", ThinGateTile(tile(32, 16, "ahead")).parameters)
    assert FAMILY.refuse(gated(96, 24), candidate, H200) == "a thread would need 208 registers, 16 warps leave it 128"


def test_scales_of_all_images_have_no_thin_rows() -> None:
    (step,) = steps_of(behind_gate("", affine((32, 96, 56, 56)), 24))
    assert not any("x" in dict(each.parameters) for each in FAMILY.candidates(step.problem, H200)[0])
