"""Batches and symbolic dimensions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import bound, model, node, ones, saved, tensor

from bolt_build.errors import BoltError, Diagnostic
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.onnx_model.binding import batch_symbols
from bolt_build.planner.structure import graph_digest
from bolt_build.sizes import sizes_of


def shapes(graph) -> dict[str, tuple[int, ...]]:
    return {name: graph.type(name).shape for name in (*graph.inputs, *graph.outputs)}


def two_inputs(*dims: list[int | str | None]) -> onnx.ModelProto:
    inputs = [tensor(f"i{index}", shape) for index, shape in enumerate(dims)]
    return model([node("Relu", "i0", "y")], inputs)


def refused(
    tmp_path: Path, proto: onnx.ModelProto, batch: int = 1, dims: tuple[tuple[str, int], ...] = ()
) -> list[Diagnostic]:
    path = saved(tmp_path, proto)
    with pytest.raises(BoltError) as raised:
        load_model(path).bind(batch, dims)
    assert all(d.subject == str(path) for d in raised.value.diagnostics)
    return list(raised.value.diagnostics)


def test_batch_binds_the_first_dimension_and_every_other_of_its_name(tmp_path: Path) -> None:
    graph = bound(tmp_path, two_inputs(["N", 3], [4, "N"], [None, "N", 2]), batch=4)
    assert shapes(graph) == {"i0": (4, 3), "i1": (4, 4), "i2": (4, 4, 2), "y": (4, 3)}
    assert graph.batch == 4


def test_dims_bind_the_others_by_name(tmp_path: Path) -> None:
    proto = two_inputs(["N", 3, "height", "width"], ["N", None])
    graph = bound(tmp_path, proto, 2, (("height", 5), ("width", 7), ("i1.1", 9)))
    assert shapes(graph) == {"i0": (2, 3, 5, 7), "i1": (2, 9), "y": (2, 3, 5, 7)}


def test_graphs_of_all_batches_share_constants_and_names(tmp_path: Path) -> None:
    proto = model([node("Gemm", "x w", "y", "fc", alpha=0.5)], [tensor("x", ["N", 4])], constants={"w": ones(4, 2)})
    loaded = load_model(saved(tmp_path, proto))
    one, many = loaded.bind(1), loaded.bind(32)
    assert [value.name for value in one.values] == [value.name for value in many.values]
    assert [node.name for node in one.nodes] == [node.name for node in many.nodes]
    assert [value.constant for value in one.values] == [value.constant for value in many.values]


def test_dimensions_left_open_are_all_listed_with_what_to_write(tmp_path: Path) -> None:
    (found,) = refused(tmp_path, two_inputs(["N", 3, "height", "width"], ["N", "height", None]))
    assert found.code == "unbound-dimension"
    assert found.message == (
        "dimensions without an extent: 'height' (dimension 2 of input 'i0'), 'width' (dimension 3 of input 'i0'), "
        "'i1.2' (dimension 2 of input 'i1')"
    )
    assert found.hint == "set model.dims in the recipe: dims: {height: SIZE, width: SIZE, i1.2: SIZE}"


def test_a_fixed_batch_that_is_not_the_one_asked_for(tmp_path: Path) -> None:
    found = refused(tmp_path, two_inputs([1, 3], [2, 3]), batch=32)
    hint = "leave model.batch out, or set it to 1, or export the model with a symbolic first dimension"
    assert [(d.code, d.message, d.hint) for d in found] == [
        ("fixed-batch", "the first dimension of input 'i0' is 1, but batch 32 is asked for", hint),
        ("fixed-batch", "the first dimension of input 'i1' is 2, but batch 32 is asked for", hint),
    ]


@pytest.mark.parametrize(
    ("dims", "batch"),
    [
        (([32, 3],), 32),
        (([], [5], [3, 4]), 5),
        (([3, 4, 5], [5]), 3),
        (([], []), 1),
        (([5], ["N", 3]), 1),
        (([5], [None, 3]), 1),
    ],
)
def test_the_batch_of_a_model_where_none_is_asked_for(
    tmp_path: Path, dims: tuple[list[int | str | None], ...], batch: int
) -> None:
    loaded = load_model(saved(tmp_path, two_inputs(*dims)))
    assert loaded.batches(()) == (batch,)
    assert loaded.batches((4, 8)) == (4, 8)


def test_inputs_with_another_fixed_first_dimension_do_not_share_the_batch(tmp_path: Path) -> None:
    graph = bound(tmp_path, two_inputs(["N", 3], [5], [1, 3]), batch=4)
    assert shapes(graph) == {"i0": (4, 3), "i1": (5,), "i2": (1, 3), "y": (4, 3)}
    graph = bound(tmp_path, two_inputs([3, 4, 5], [5]), batch=3)
    assert shapes(graph) == {"i0": (3, 4, 5), "i1": (5,), "y": (3, 4, 5)}


def test_a_symbolic_first_dimension_that_dims_give_is_not_the_batch(tmp_path: Path) -> None:
    graph = bound(tmp_path, two_inputs(["N", "S"], ["S", 2], [None]), 4, (("S", 7), ("i2.0", 9)))
    assert shapes(graph) == {"i0": (4, 7), "i1": (7, 2), "i2": (9,), "y": (4, 7)}


def test_a_first_dimension_in_front_of_one_that_is_called_a_batch_is_a_dimension_of_its_own(tmp_path: Path) -> None:
    """As recurrent layers have their sequences, lengths and initial states."""
    recurrent = two_inputs(["steps", "batch_size", 5], ["batch_size"], [1, "batch_size", 8])
    graph = bound(tmp_path, recurrent, 3, (("steps", 7),))
    assert shapes(graph) == {"i0": (7, 3, 5), "i1": (3,), "i2": (1, 3, 8), "y": (7, 3, 5)}
    (found,) = refused(tmp_path, recurrent, 3)
    assert (found.code, found.message, found.hint) == (
        "unbound-dimension",
        "dimension without an extent: 'steps' (dimension 0 of input 'i0')",
        "set model.dims in the recipe: dims: {steps: SIZE}",
    )
    assert batch_symbols(load_model(saved(tmp_path, recurrent)).inputs) == ("batch_size",)


def test_a_fixed_first_dimension_in_front_of_one_that_is_called_a_batch_stays(tmp_path: Path) -> None:
    """Recurrent layers over a fixed number of steps, exported with dynamic_axes={"i0": {1: "batch"}}."""
    recurrent = two_inputs([5, "batch", 3], [2, "batch", 8])
    assert load_model(saved(tmp_path, recurrent)).batches(()) == (1,)
    assert shapes(bound(tmp_path, recurrent, 4)) == {"i0": (5, 4, 3), "i1": (2, 4, 8), "y": (5, 4, 3)}
    points = two_inputs([1, "N", 3])
    assert shapes(bound(tmp_path, points, 1, (("N", 7),))) == {"i0": (1, 7, 3), "y": (1, 7, 3)}
    (found,) = refused(tmp_path, points, 4, (("N", 7),))
    assert found.code == "fixed-batch"


def test_the_example_that_a_file_was_exported_with_is_named_where_another_batch_does_not_fit(tmp_path: Path) -> None:
    nodes = [node("Reshape", "x shape", "h"), node("MatMul", "h w", "y")]
    constants = {"shape": np.asarray([4, 8]), "w": np.ones((8, 6), np.float32)}
    traced = model(nodes, [tensor("x", ["batch", 4, 8])], constants=constants)
    assert shapes(bound(tmp_path, traced, 1))["y"] == (4, 6)
    (found,) = refused(tmp_path, traced, 2)
    assert (found.code, found.message, found.hint) == (
        "shape-mismatch",
        "Reshape 'Reshape_0': [2, 4, 8] has 64 elements and cannot become [4, 8]",
        (
            "at batch 1 it fits: the file holds the extents of the example that it was exported with; export it with a "
            "batch that is symbolic everywhere, or set model.batch to 1"
        ),
    )
    wrong = model([node("MatMul", "x w", "y")], [tensor("x", ["batch", 4, 7])], constants=constants)
    assert [each.hint for each in refused(tmp_path, wrong, 2)] == [None]


def test_the_batch_is_the_only_dimension_that_dims_leave(tmp_path: Path) -> None:
    """Whatever it is called. Of a first dimension that is called a batch it stays the batch."""
    graph = bound(tmp_path, two_inputs(["steps", "singers", 5], ["steps"]), 3, (("steps", 7),))
    assert shapes(graph) == {"i0": (7, 3, 5), "i1": (7,), "y": (7, 3, 5)}
    found = refused(tmp_path, two_inputs(["N", "singers"]), 3, (("N", 7),))
    assert [each.code for each in found] == ["unbound-dimension", "unused-dimension"]


def test_a_first_dimension_without_a_name_is_the_batch(tmp_path: Path) -> None:
    graph = bound(tmp_path, two_inputs([None, "N", 5], ["N"]), 3)
    assert shapes(graph) == {"i0": (3, 3, 5), "i1": (3,), "y": (3, 3, 5)}


def test_inputs_of_more_elements_or_axes_than_an_engine_can_have(tmp_path: Path) -> None:
    uncountable = f"has {2**60} elements, whose bytes 63 bits cannot count"
    too_many_axes = "has 9 axes; an engine's tensors have at most 8"
    found = refused(tmp_path, two_inputs([1, 2**30, 2**30], [1] * 9, [2**31]))
    assert [(d.code, d.message) for d in found] == [
        ("model-too-large", f"the input 'i0' cannot be: the shape [1, {2**30}, {2**30}] {uncountable}"),
        ("model-too-large", f"the input 'i1' cannot be: the shape {[1] * 9} {too_many_axes}"),
        ("model-too-large", f"the input 'i2' cannot be: the shape [{2**31}] has an axis of more than {2**31 - 1}"),
    ]


def test_dims_that_bind_nothing(tmp_path: Path) -> None:
    found = refused(tmp_path, two_inputs(["N", 3, "height"]), 2, (("N", 2), ("height", 4), ("heigth", 4)))
    assert [(d.code, d.message, d.hint) for d in found] == [
        (
            "unused-dimension",
            "model.dims sets 'N', which model.batch binds already",
            "leave it out, and set model.batch",
        ),
        ("unused-dimension", "model.dims sets 'heigth', which no input has", "did you mean 'height'?"),
    ]


@pytest.mark.parametrize(("second", "hint"), [("height", "it can set: height"), (5, "leave it out: it can set none")])
def test_a_dimension_that_is_like_no_other(tmp_path: Path, second: str | int, hint: str) -> None:
    given = (("height", 4), ("Q", 2)) if second == "height" else (("Q", 2),)
    (found,) = refused(tmp_path, two_inputs(["N", 3, second]), 2, given)
    assert (found.message, found.hint) == ("model.dims sets 'Q', which no input has", hint)


def test_input_without_dimensions(tmp_path: Path) -> None:
    assert shapes(bound(tmp_path, two_inputs([], ["N"]), batch=3)) == {"i0": (), "i1": (3,), "y": ()}


def test_graphs_of_an_engine_are_those_of_every_batch_with_every_extent(tmp_path: Path) -> None:
    loaded = load_model(saved(tmp_path, two_inputs(["N", "height", "width"], ["N", "width"])))
    graphs = loaded.graphs((1, 4), (("height", 5),), (("width", (7, 8)),))
    assert [str(sizes_of(graph)) for graph in graphs] == [
        "batch 1, width 7", "batch 1, width 8", "batch 4, width 7", "batch 4, width 8",
    ]  # fmt: skip
    assert [graph.type("i0").shape for graph in graphs] == [(1, 5, 7), (1, 5, 8), (4, 5, 7), (4, 5, 8)]
    assert sizes_of(graphs[3]).numbers == (4, 8)
    # Where a dimension has one extent, its graph says no more of it than its shapes do.
    (single,) = loaded.graphs((4,), (("height", 5), ("width", 8)), ())
    assert (single.dims, graph_digest(single)) == ((), graph_digest(graphs[3]))


def test_a_question_mark_is_no_name(tmp_path: Path) -> None:
    """Paddle's exporter calls every open dimension so: they are one by one as if they had no name."""
    proto = model([node("Relu", "x", "y")], [tensor("x", ["?", 3, "?", "?"])])
    with pytest.raises(BoltError) as raised:
        bound(tmp_path, proto)
    (found,) = raised.value.diagnostics
    assert found.message == (
        "dimensions without an extent: 'x.2' (dimension 2 of input 'x'), 'x.3' (dimension 3 of input 'x')"
    )
    assert bound(tmp_path, proto, 2, (("x.2", 4), ("x.3", 8))).type("x").shape == (2, 3, 4, 8)
