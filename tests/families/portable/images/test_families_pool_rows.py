"""Poolings along columns and then along rows, and places of windows side by side: which planes they are for, and what
their calls say."""

from __future__ import annotations

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.images.placed_rows import PlacedRowsTile
from bolt_build.families.portable.kernels.images.pool_separated import SeparatedTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.images.pool_places import PoolPlaces
from bolt_build.targets import target_named

H200, FAMILY, SPACE = target_named("h200"), Portable(), "bolt::portable"
AT = StepExpressions(("x",), ("y",), (None,))


def asked(op: Pool | PoolPlaces, *shape: int, dtype: DType = DType.F16, layout: Layout = Layout.ROW) -> KernelProblem:
    source = Operand(shape, TensorFormat(dtype, layout))
    (made,) = op.infer([source.type])
    to = made.dtype if isinstance(op, PoolPlaces) else dtype
    return KernelProblem(op, (source,), (Operand(made.shape, TensorFormat(to, layout)),), (), DType.F32, "h200")


def pool(mode: str, cells: int, stride: int, pad: int, gap: int = 1) -> Pool:
    return Pool(mode, (cells,) * 2, (stride,) * 2, (pad,) * 2, (pad,) * 2, (gap,) * 2)


SPP, MEANS = asked(pool("max", 13, 1, 6), 32, 512, 13, 13), asked(pool("average", 11, 1, 5), 32, 16, 128, 128)
STEM = asked(PoolPlaces((3, 3), (2, 2), (1, 1), (1, 1), (1, 1)), 32, 64, 112, 112)


@pytest.mark.parametrize("problem", [SPP, MEANS], ids=["spatial pyramid", "means of 11"])
def test_large_windows_over_planes_are_taken_along_columns_and_then_along_rows(problem: KernelProblem) -> None:
    assert FAMILY.candidates(problem, H200)[0][0].parameters[0] == ("algorithm", "separated")


@pytest.mark.parametrize(
    ("problem", "tile", "reason"),
    [
        (SPP, SeparatedTile(32, 13, 13, 13, 1), None),
        (SPP, SeparatedTile(2, 6, 6, 13, 1), "a block has whole planes, or rows of one"),
        (MEANS, SeparatedTile(1, 32, 16, 64, 1), "runs of 74 elements are longer than the 44 that a thread holds"),
        (MEANS, SeparatedTile(1, 128, 32, 32, 1), "planes of 98848 bytes are more than the 73728 of a block"),
        (asked(pool("max", 5, 1, 4, 2), 1, 8, 16, 16), SeparatedTile(1, 16, 16, 16, 1), "separated: windows have gaps"),
        (asked(pool("max", 3, 2, 1), 1, 8, 16, 16), SeparatedTile(1, 8, 8, 8, 1),
         "is none of its candidates"),
        (asked(pool("max", 5, 1, 2), 1, 8, 16, 16, layout=Layout.CHANNELS_LAST), SeparatedTile(1, 16, 16, 16, 1),
         "parts of 1 channels are no whole words of 8"),
        (asked(pool("max", 5, 1, 2), 1, 12, 16, 16, layout=Layout.CHANNELS_LAST), SeparatedTile(1, 16, 16, 16, 4),
         "separated: 12 channels are no multiple of 8"),
        (asked(pool("max", 5, 1, 2), 1, 24, 16, 16, layout=Layout.CHANNELS_LAST), SeparatedTile(1, 16, 16, 16, 8),
         None),
        (asked(pool("max", 5, 5, 2), 64, 64, 728, 728), SeparatedTile(1, 8, 8, 8, 1),
         "separated: elements are counted in 32 bits"),
    ],
)  # fmt: skip
def test_what_no_kernel_takes_apart_is_refused(problem: KernelProblem, tile: SeparatedTile, reason: str | None) -> None:
    found = FAMILY.refuse(problem, candidate_of("portable", "separated", tile), H200)
    assert (found is None) == (reason is None)
    assert reason is None or (found is not None and found.endswith(reason))


def test_the_compiler_knows_both_axes() -> None:
    code = FAMILY.emit(SPP, candidate_of("portable", "separated", SeparatedTile(32, 13, 13, 7, 1)), H200, AT)
    assert code.call.startswith(
        f"{SPACE}::pool_separated<{SPACE}::PoolMax, {SPACE}::f16, {SPACE}::f16, "
        f"{SPACE}::RunAxis<13, 13, 13, 1, 6, 13>, {SPACE}::RunAxis<13, 13, 13, 1, 6, 7>, 32, 13, 1, 1>(r, "
    )


def test_places_of_windows_side_by_side_read_what_they_share_once() -> None:
    assert FAMILY.candidates(STEM, H200)[0][0] == candidate_of("portable", "rows", PlacedRowsTile(4))
    code = FAMILY.emit(STEM, candidate_of("portable", "rows", PlacedRowsTile(4)), H200, AT)
    assert code.call.startswith(f"{SPACE}::placed_rows<{SPACE}::f16, 1, 3, 3, 2, 4>(r, {SPACE}::Pool{{")


@pytest.mark.parametrize(
    ("problem", "each", "reason"),
    [
        (STEM, 3, "threads have 1, 2 or 4 windows, not 3"),
        (asked(PoolPlaces((3, 3), (8, 8), (0, 0), (0, 0), (1, 1)), 1, 8, 64, 64), 4,
         "windows side by side have 27 elements of a row, at most 16 are taken"),
        (asked(PoolPlaces((3, 3), (1, 1), (0, 0), (0, 0), (1, 2)), 1, 8, 64, 64), 1,
         "rows: windows have gaps along rows"),
        (asked(PoolPlaces((8, 8), (8, 8), (0, 0), (0, 0), (1, 1)), 1, 8, 64, 64), 1,
         "rows: windows of 64 cells are larger than 49"),
        (asked(PoolPlaces((2, 2), (2, 2), (0, 0), (0, 0), (1, 1)), 1, 8, 64, 64, dtype=DType.I8), 1,
         "rows: compares numbers of half precision"),
        (asked(PoolPlaces((3, 3), (2, 2), (1, 1), (1, 1), (1, 1)), 64, 64, 728, 728), 4,
         "rows: elements are counted in 32 bits"),
    ],
)  # fmt: skip
def test_other_places_have_a_reason(problem: KernelProblem, each: int, reason: str) -> None:
    assert FAMILY.refuse(problem, candidate_of("portable", "rows", PlacedRowsTile(each)), H200) == reason
