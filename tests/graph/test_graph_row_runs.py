"""Runs of rows whose bounds data decide are computed of all rows: mixtures of experts whose rows were sorted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import bound, model, node, tensor
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from bolt_build.errors import BoltError
from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.reference import evaluate

RANDOM = np.random.default_rng(0)
CONSTANTS = {
    "zero": np.int64(0), "one": np.int64(1), "ones": np.ones(8, np.float32), "none": np.zeros(3, np.float32),
    "w": RANDOM.standard_normal((3, 6, 5)).astype(np.float32), "first": np.asarray([0], np.int64),
    "all": np.asarray([-1], np.int64), "shape": np.asarray([-1, 6], np.int64), "last": np.asarray([1], np.int64),
    "b": RANDOM.standard_normal(5).astype(np.float32), "two": np.int64(2),
}  # fmt: skip
BEGUN = [node("Reshape", "given shape", "x"), node("Reshape", "experts all", "expert")]
COUNTED = [
    node("ScatterElements", "none expert ones", "counts", reduction="add"), node("CumSum", "counts zero", "sums"),
    node("Cast", "sums", "ends", to=7), node("Split", "ends", "e0 e1 e2", num_outputs=3),
    node("Split", "w", "w0 w1 w2", num_outputs=3),
    *[node("Squeeze", f"e{each} first", f"end{each}") for each in range(3)],
    *[node("Squeeze", f"w{each} first", f"matrix{each}") for each in range(3)],
]  # fmt: skip
RUNS = [
    node("Range", "zero end0 one", "run0", "first run"), node("Range", "end0 end1 one", "run1", "second run"),
    node("Range", "end1 end2 one", "run2"),
]  # fmt: skip
TAKEN = [node("Gather", f"x run{each}", f"rows{each}", axis=0) for each in range(3)]
MULTIPLIED = [node("MatMul", f"rows{each} matrix{each}", f"made{each}") for each in range(3)]
JOINED = node("Concat", "made0 made1 made2", "y", axis=0)


def proto(nodes: list[onnx.NodeProto], rows: int = 8, counted: int = 8) -> onnx.ModelProto:
    inputs = [tensor("given", [1, rows, 6]), tensor("experts", [1, counted], TensorProto.INT64)]
    constants = CONSTANTS | {"ones": np.ones(counted, np.float32)}
    return model([*BEGUN, *nodes], inputs, ["y"], constants, opset=18)


def drawn(experts: list[int]) -> dict[str, Array]:
    rows = RANDOM.standard_normal((1, len(experts), 6)).astype(np.float32)
    return {"given": rows, "experts": np.asarray([experts], np.int64)}


def compared(tmp_path: Path, made: onnx.ModelProto) -> Graph:
    """The graph, whose results are ONNX's for experts that have rows and for such that have none."""
    graph = bound(tmp_path, made)
    for experts in ([0, 0, 1, 1, 1, 2, 2, 2], [1] * 8, [0, 0, 0, 2, 2, 2, 2, 2], [2] * 8):
        given = drawn(experts)
        (wanted,) = ReferenceEvaluator(made).run(None, given)
        np.testing.assert_allclose(evaluate(graph, given)["y"], wanted, rtol=1e-5, atol=1e-5)
    return graph


def products(graph: Graph) -> list[list[int]]:
    return [list(graph.type(each.outputs[0]).shape) for each in graph.nodes if each.op.kind == "matmul"]


def test_products_with_one_matrix_a_run_are_one_product_with_their_stack(tmp_path: Path) -> None:
    graph = compared(tmp_path, proto([*COUNTED, *RUNS, *TAKEN, *MULTIPLIED, JOINED]))
    assert products(graph) == [[3, 8, 5]]
    assert graph.value("w").constant is not None


def test_rows_that_are_split_by_sizes_of_data_are_runs(tmp_path: Path) -> None:
    """As torch.export writes torch.split by sizes that a tensor's tolist() gave, before each part's linear layer."""
    sizes = [
        node("ScatterElements", "none expert ones", "counts", reduction="add"), node("Cast", "counts", "sizes", to=7),
        node("Split", "x sizes", "rows0 rows1 rows2", axis=0), node("Transpose", "w", "turned", perm=[0, 2, 1]),
        *[node("Gather", f"turned {each}", f"matrix{index}") for index, each in enumerate(("zero", "one", "two"))],
        *[node("Gemm", f"rows{each} matrix{each}", f"made{each}", transB=1) for each in range(3)],
    ]  # fmt: skip
    graph = compared(tmp_path, proto([*sizes, JOINED]))
    assert products(graph) == [[3, 8, 5]]
    assert graph.value("turned").constant is not None


def test_few_rows_take_the_matrices_that_they_need(tmp_path: Path) -> None:
    made = proto([*COUNTED, *RUNS, *TAKEN, *MULTIPLIED, JOINED], 1, 1)
    graph = bound(tmp_path, made)
    assert products(graph) == [[1, 1, 5]]
    for expert in range(3):
        given = drawn([expert])
        (wanted,) = ReferenceEvaluator(made).run(None, given)
        np.testing.assert_allclose(evaluate(graph, given)["y"], wanted, rtol=1e-5, atol=1e-5)


def test_whatever_else_is_made_of_rows_is_made_of_all(tmp_path: Path) -> None:
    more = [node("Add", "made0 b", "added0"), node("Tanh", "made1", "added1"), node("Identity", "made2", "added2")]
    joined = node("Concat", "added0 added1 added2", "y", axis=0)
    graph = compared(tmp_path, proto([*COUNTED, *RUNS, *TAKEN, *MULTIPLIED, *more, joined]))
    assert products(graph) == [[8, 5]] * 3
    assert [each.op.kind for each in graph.nodes].count("where") == 2


REFUSED = {
    "one part of a split": [
        node("ScatterElements", "none expert ones", "count", reduction="add"), node("Cast", "count", "sizes", to=7),
        node("Split", "x sizes", "y other last_one", "first run", axis=0),
    ],
    "runs that begin behind the first row": [
        node("Range", "one end0 one", "run0", "first run"), *RUNS[1:], *TAKEN, *MULTIPLIED, JOINED],
    "runs in another order": [*RUNS, *TAKEN, *MULTIPLIED, node("Concat", "made1 made0 made2", "y", axis=0)],
    "a run left out": [*RUNS, *TAKEN, *MULTIPLIED, node("Concat", "made0 made2", "y", axis=0)],
    "every second row": [
        node("Range", "zero end0 two", "run0", "first run"), *RUNS[1:], *TAKEN, *MULTIPLIED, JOINED],
    "one run by itself": [*RUNS, *TAKEN, node("Identity", "rows0", "y")],
    "the numbers of rows": [*RUNS, node("Concat", "run0 run1 run2", "y", axis=0)],
    "rows that are added elsewhere": [
        *RUNS, *TAKEN, node("Unsqueeze", "run0 last", "places"), node("ScatterND", "x places rows0", "y")],
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_rows_between_bounds_that_data_decide_are_refused(name: str, tmp_path: Path) -> None:
    made = proto([*COUNTED, *REFUSED[name]])
    with pytest.raises(BoltError) as raised:
        bound(tmp_path, made)
    first = raised.value.diagnostics[0]
    label = "second run" if name == "runs in another order" else "first run"
    kind = "Split" if name == "one part of a split" else "Range"
    assert (first.code, first.message) == (
        "unsupported-op", f"{kind} '{label}': {kind} on data is not supported (only on constants)",
    )  # fmt: skip


def test_a_range_without_its_step_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BoltError) as raised:
        bound(tmp_path, proto([*COUNTED, node("Range", "end0 end1", "y", "short")]))
    assert "Range 'short': Range on data is not supported (only on constants)" in [
        each.message for each in raised.value.diagnostics
    ]


def test_a_run_beside_what_could_not_be_had_is_refused(tmp_path: Path) -> None:
    """ONNX's own AffineGrid in three dimensions, written out with a size that data decide."""
    lost = [*COUNTED, RUNS[0], node("NonZero", "x", "places", "other"), node("CastLike", "run0 places", "y")]
    with pytest.raises(BoltError) as raised:
        bound(tmp_path, proto(lost))
    assert [each.message for each in raised.value.diagnostics] == [
        "NonZero 'other': NonZero on data is not supported (only on constants)"
    ]


def test_a_run_inside_a_branch_is_refused(tmp_path: Path) -> None:
    inside = helper.make_graph([RUNS[0], node("Cast", "run0", "cast", to=1)], "inside", [], [tensor("cast", None)])
    made = proto([*COUNTED, node("If", "yes", "y", then_branch=inside, else_branch=inside)])
    made.graph.initializer.append(numpy_helper.from_array(np.asarray(True), "yes"))
    with pytest.raises(BoltError) as raised:
        bound(tmp_path, made)
    assert [each.message for each in raised.value.diagnostics] == [
        "Range 'If_13/first run': Range on data is not supported (only on constants)"
    ]


def test_runs_that_may_end_in_front_of_the_last_row_are_refused(tmp_path: Path) -> None:
    made = proto([*COUNTED, *RUNS, *TAKEN, *MULTIPLIED, JOINED], 10, 9)
    with pytest.raises(BoltError) as raised:
        bound(tmp_path, made)
    (found,) = raised.value.diagnostics
    assert found.message == "Range 'first run': Range on data is not supported (only on constants)"
    assert found.hint == (
        "data decide how many rows it gives, and shapes are static: runs of rows are taken where all of them together "
        "are put behind each other again; let experts be batched products (transformers: "
        "model.set_experts_implementation('batched_mm'))"
    )


SORTED = [
    node("Shape", "x", "shape_of_x", end=1), node("TopK", "expert shape_of_x", "in_order places", largest=0),
    node("Cast", "in_order", "numbers", to=1), node("Div", "numbers width", "scaled"),
    node("Cast", "scaled", "whole", to=7), node("Clip", "whole zero two", "clipped"),
    node("ScatterElements", "none clipped ones", "counts", reduction="add"), *COUNTED[1:],
]  # fmt: skip
"""As a histogram of sorted numbers of experts is exported."""


def test_numbers_that_were_sorted_say_in_which_run_their_rows_lie(tmp_path: Path) -> None:
    CONSTANTS["width"] = np.float32(2 / 3)
    graph = compared(tmp_path, proto([*SORTED, *RUNS, *TAKEN, *MULTIPLIED, JOINED]))
    assert "reduce" not in [each.op.kind for each in graph.nodes]


@pytest.mark.parametrize(
    ("outputs", "largest"), [("in_order places", 1), ("places in_order", 0)], ids=["the largest first", "their places"]
)
def test_others_are_asked_which_bounds_lie_in_front_of_each_row(tmp_path: Path, outputs: str, largest: int) -> None:
    CONSTANTS["width"] = np.float32(2 / 3)
    taken = node("TopK", "expert shape_of_x", outputs, largest=largest)
    graph = bound(tmp_path, proto([SORTED[0], taken, *SORTED[2:], *RUNS, *TAKEN, *MULTIPLIED, JOINED]))
    assert "reduce" in [each.op.kind for each in graph.nodes]
