"""All that is wrong with a model, in one run: what is missing, what is refused of data, and what would help."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graph_models import bound, model, node, ones, refusals, tensor
from onnx import TensorProto

from bolt_build.errors import BoltError
from bolt_build.graph.onnx_model.binding import INPUT_DTYPES

IMAGE = tensor("x", [1, 3, 8, 8])


def test_missing_operators_and_what_is_refused_of_data_are_reported_together(tmp_path: Path) -> None:
    """Also what hangs on a missing operator, as far as it is known without its result."""
    nodes = [
        node("Unique", "x", "e", "det"),
        node("Range", "e e e", "g", "behind the missing one"),
        node("Range", "x x x", "h", "of the input"),
        node("Bernoulli", "i", "n", "constant"),
        node("Gather", "i n", "m", "perhaps constant"),
        node("Conv", "x w", "c", "conv"),
        node("Clip", "x low -", "k", "clip"),
        node("Sum", "g h m c k", "y"),
    ]
    inputs = [IMAGE, tensor("low", [1, "length"]), tensor("u", [1], TensorProto.STRING)]
    proto = model(nodes, inputs, constants={"i": np.asarray([0]), "w": ones(2, 4, 3, 3)})
    assert refusals(tmp_path, proto) == [
        ("unsupported-dtype", f"the input 'u' is of type string; supported are {', '.join(INPUT_DTYPES)}"),
        ("unbound-dimension", "dimension without an extent: 'length' (dimension 1 of input 'low')"),
        ("unsupported-op", "operator Bernoulli is not supported: node 'constant'"),
        ("unsupported-op", "operator Unique is not supported: node 'det'"),
        (
            "unsupported-op",
            "Range 'behind the missing one', 'of the input': Range on data is not supported (only on constants)",
        ),
        ("shape-mismatch", "Conv 'conv': the input has 3 channels, the weight [2, 4, 3, 3] with 1 groups takes 4"),
    ]


def test_what_hangs_on_a_dimension_without_an_extent_is_no_second_problem(tmp_path: Path) -> None:
    """Positions of tokens, as exporters of language models write them."""
    nodes = [
        node("Shape", "ids", "s"),
        node("Gather", "s one", "length", axis=0),
        node("Range", "zero length one", "positions"),
        node("Gather", "table positions", "y", axis=0),
    ]
    inputs = [tensor("ids", [1, "sequence"], TensorProto.INT64)]
    constants = {"zero": np.asarray(0), "one": np.asarray(1), "table": ones(8, 4)}
    assert refusals(tmp_path, model(nodes, inputs, constants=constants)) == [
        ("unbound-dimension", "dimension without an extent: 'sequence' (dimension 1 of input 'ids')"),
    ]


def test_nodes_with_one_problem_share_a_line(tmp_path: Path) -> None:
    nodes = [node("Relu", "x" if i == 0 else f"v{i}", f"v{i + 1}", f"n{i}", slope=0.1) for i in range(30)]
    idle = [node("Relu", "x", f"w{i}", f"m{i}", slope=0.1) for i in range(10)]
    proto = model([*idle, *nodes, node("Sum", " ".join(f"w{i}" for i in range(10)), "y")])
    shown = ", ".join(f"'m{i}'" for i in range(8))
    assert refusals(tmp_path, proto) == [
        ("unsupported-attribute", f"Relu {shown} and 2 more: attribute 'slope' is not understood")
    ]


def test_every_refusal_says_what_would_help(tmp_path: Path) -> None:
    found = node("NonMaxSuppression", "boxes scores", "f")
    nodes = [node("Det", "x", "e", domain="own"), found, node("Range", "x x x", "g"), node("NonZero", "x", "n")]
    nodes += [node("Sum", "e f g n", "y")]
    boxes, scores = tensor("boxes", [1, 9, 4]), tensor("scores", [1, 2, 9])
    with pytest.raises(BoltError) as raised:
        bound(tmp_path, model(nodes, [IMAGE, boxes, scores], opsets=[("own", 1)]))
    counted = "data decide how many it finds, and shapes are static: end the model in front of it (model.outputs)"
    assert [d.hint for d in raised.value.diagnostics] == [
        counted,
        "export the model without it, or offer an importer for it (entry points of bolt_build.ops)",
        "it is computed where its inputs are constants: bind what they depend on (model.dims), or export without it",
        counted,
    ]
