"""Scatters whose updates atomic instructions join: what is refused and why, and what is called."""

from __future__ import annotations

from math import prod

import pytest

from bolt_build.dtypes import DType
from bolt_build.families.base import Candidate, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.families.portable.form import candidate_of
from bolt_build.families.portable.kernels.scatter.scatter_atomics import AtomicColumnsTile, AtomicRunsTile
from bolt_build.families.portable.kernels.scatter.scatter_memory_atomics import AtomicTile
from bolt_build.families.portable.kernels.scatter.scatter_parts import ColumnPartsTile, RunPartsTile
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.moves.scatter import ScatterElements, ScatterND
from bolt_build.targets import HOST, target_named

FAMILY, H200 = Portable(), target_named("h200")
AT = StepExpressions(("d", "i", "u"), ("y",), (None, None, None))
Shape = tuple[int, ...]


def problem_of(op: ScatterElements | ScatterND, shapes: tuple[Shape, Shape, Shape], dtype: DType) -> KernelProblem:
    types = (dtype, DType.I64, dtype)
    inputs = tuple(Operand(each, TensorFormat(of, Layout.ROW)) for each, of in zip(shapes, types, strict=True))
    return KernelProblem(op, inputs, inputs[:1], (), dtype, "h200")


def scattered(shape: Shape, many: int, axis: int, how: str = "add", dtype: DType = DType.F16) -> KernelProblem:
    taken = (*shape[:axis], many, *shape[axis + 1 :])
    return problem_of(ScatterElements(axis, how), (shape, taken, taken), dtype)


def sliced(shape: Shape, many: int, how: str = "add", dtype: DType = DType.F16) -> KernelProblem:
    return problem_of(ScatterND(how), (shape, (many, 1), (many, *shape[1:])), dtype)


ROWS, COLUMNS, NODES = scattered((64, 333), 77, 1), scattered((8, 576, 250), 576, 1), scattered((20000, 64), 60000, 0)
SLICES = sliced((5000, 256), 9000)


def columns(many: int) -> Candidate:
    return candidate_of("portable", "atomic_columns", AtomicColumnsTile(many, 256))


def runs(outers: int) -> Candidate:
    return candidate_of("portable", "atomic_runs", AtomicRunsTile(outers, 256))


def in_memory(of: str) -> Candidate:
    return candidate_of("portable", f"atomic_{of}", AtomicTile())


@pytest.mark.parametrize(
    ("problem", "candidate", "reason"),
    [
        (COLUMNS, columns(32), None),
        (COLUMNS, columns(64), "there are blocks of 8, 16 or 32 lines, not of 64"),
        (scattered((8, 2000, 250), 576, 1), columns(16), "takes 256000 bytes of shared memory, a block has 232448"),
        (scattered((8, 2000, 250), 576, 1, "max"), columns(16), None),
        (ROWS, columns(8), "portable algorithm=atomic_columns columns=8 threads=256 is none of its candidates"),
        (ROWS, runs(12), None),
        (ROWS, runs(65), "65 rows are more than the 64 that there are"),
        (ROWS, runs(80), "80 rows are more than the 64 that there are"),
        (scattered((64, 60000), 77, 1), runs(1), "takes 540000 bytes of shared memory, a block has 232448"),
        (scattered((8, 333), 5000000, 1), runs(1),
         "atomic_runs: 5000000 updates of a line are more than the 4194304 that it has room for"),
        (scattered((8, 333), 5000000, 1, "max"), runs(1), None),
        (scattered((64, 333), 77, 1, "mul"), runs(1), "atomic_runs: products depend on the order of updates"),
        (scattered((64, 333), 77, 1, "none", DType.I64), runs(1), None),
        (scattered((90000, 64), 77, 0, "none"), in_memory("elements"),
         "atomic_elements: updates that replace elements are not joined"),
        (scattered((64, 333), 77, 1, "add", DType.BF16), runs(1),
         "atomic_runs: sums of bf16 depend on the order of updates"),
        (scattered((64, 333), 77, 1, "max", DType.BF16), runs(1), None),
        (scattered((64, 333), 77, 1, "add", DType.I64), runs(1),
         "atomic_runs: i64 is not joined in words of 32 bits"),
        (scattered((64, 333), 77, 1, "add", DType.I32), runs(1), None),
        (NODES, in_memory("elements"), None),
        (SLICES, in_memory("slices"), None),
        (SLICES, in_memory("elements"), "portable algorithm=atomic_elements is none of its candidates"),
        (sliced((5000, 256), 9000, "mul"), in_memory("slices"),
         "atomic_slices: products depend on the order of updates"),
        (scattered((1 << 15, 1 << 14), 1, 0), in_memory("elements"),
         "atomic_elements: takes 4429185024 bytes beside its tensors, at most 1073741824 are kept"),
    ],
)  # fmt: skip
def test_what_is_not_legal_has_a_reason(problem: KernelProblem, candidate: Candidate, reason: str | None) -> None:
    assert FAMILY.refuse(problem, candidate, H200) == reason


def test_gpus_alone_have_them() -> None:
    assert [str(each) for each in FAMILY.candidates(NODES, HOST)[0]] == ["portable algorithm=direct"]


def test_the_call_states_lines_and_threads() -> None:
    assert FAMILY.emit(scattered((8, 100, 250), 2047, 1), columns(32), H200, AT).call == (
        "bolt::portable::scatter_atomic_columns<bolt::portable::SharedSum, 32, 256, 2, std::int64_t>(r, "
        "bolt::portable::ScatterLines{.outer = 8, .length = 100, .extent = 2047, .inner = 250, .outers = 1, "
        ".columns = 32}, d, i, u, y);"
    )


def column_parts(many: int, part: int) -> Candidate:
    return candidate_of("portable", "atomic_column_parts", ColumnPartsTile(many, 256, part))


def run_parts(part: int) -> Candidate:
    return candidate_of("portable", "atomic_run_parts", RunPartsTile(512, part))


LONG, NUMBERS = scattered((4, 64, 140800), 12000, 2, "none"), scattered((32, 20000, 16), 60000, 1)


@pytest.mark.parametrize(
    ("problem", "candidate", "reason"),
    [
        (LONG, run_parts(35200), None),
        (LONG, run_parts(140800), "lines of 140800 elements have no parts of 140800"),
        (LONG, run_parts(70400), "takes 316800 bytes of shared memory, a block has 232448"),
        (LONG, run_parts(2000), "71 blocks would go through the updates of a line, 64 at most do"),
        (LONG, column_parts(8, 800),
         "portable algorithm=atomic_column_parts columns=8 threads=256 part=800 is none of its candidates"),
        (NUMBERS, column_parts(8, 3336), None),
        (NUMBERS, column_parts(64, 3336), "there are blocks of 8, 16 or 32 lines, not of 64"),
        (NUMBERS, column_parts(16, 3336), "takes 427008 bytes of shared memory, a block has 232448"),
        (scattered((32, 20000, 16), 60000, 1, "add", DType.BF16), column_parts(8, 3336),
         "atomic_column_parts: sums of bf16 depend on the order of updates"),
    ],
)  # fmt: skip
def test_parts_that_are_not_legal_have_a_reason(
    problem: KernelProblem, candidate: Candidate, reason: str | None
) -> None:
    assert FAMILY.refuse(problem, candidate, H200) == reason


def test_blocks_share_lines_that_none_has_room_for() -> None:
    (first, *_), _ = FAMILY.candidates(LONG, H200)
    assert str(first).startswith("portable algorithm=atomic_run_parts threads=")
    assert FAMILY.emit(LONG, run_parts(35200), H200, AT).call == (
        "bolt::portable::scatter_atomic_runs<bolt::portable::SharedLast<bolt::portable::f16>, 512, std::int64_t, true>("
        "r, "
        "bolt::portable::ScatterLines{.outer = 256, .length = 140800, .extent = 12000, .inner = 1, .outers = 1, "
        ".columns = 1}, d, i, u, y, 35200);"
    )


def test_memory_has_what_is_joined_and_a_byte_of_four_elements() -> None:
    elements = prod(NODES.inputs[0].shape)
    code = FAMILY.emit(NODES, in_memory("elements"), H200, AT)
    assert code.member_arguments == str(8 * elements + elements // 4)
    assert code.call.startswith("bolt::portable::scatter_atomic_elements<bolt::portable::MemorySum, std::int64_t>(r, ")
    code = FAMILY.emit(sliced((5000, 256), 9000, "min", DType.BF16), in_memory("slices"), H200, AT)
    assert code.member_arguments == str(4 * 5000 * 256 + 5000 * 256 // 4)
    assert code.call.startswith(
        "bolt::portable::scatter_atomic_slices<bolt::portable::MemoryExtreme<bolt::portable::bf16, false>, "
    )


@pytest.mark.parametrize("problem", [NODES, scattered((32768, 1024), 200, 1, "min", DType.BF16)])
def test_prediction_puts_it_first_where_updates_are_joined(problem: KernelProblem) -> None:
    legal = FAMILY.candidates(problem, H200)[0]
    assert "atomic" in str(min(legal, key=lambda each: FAMILY.predict(problem, each, H200)))


@pytest.mark.parametrize(
    ("problem", "columns"),
    [
        (scattered((32, 3000, 64), 9000, 1, "max"), 16),
        (scattered((32, 3000, 64), 9000, 1), 8),
    ],
)
def test_a_block_that_is_alone_has_more_threads(problem: KernelProblem, columns: int) -> None:
    first, *others = [str(each) for each in FAMILY.candidates(problem, H200)[0]]
    assert first == f"portable algorithm=atomic_columns columns={columns} threads=1024"
    assert f"portable algorithm=atomic_columns columns={columns} threads=512" in others


def test_blocks_beside_each_other_have_fewer_threads() -> None:
    found = [str(each) for each in FAMILY.candidates(scattered((32, 100, 64), 900, 1, "max"), H200)[0]]
    assert any("atomic_columns" in each for each in found)
    assert not any("threads=1024" in each for each in found)
