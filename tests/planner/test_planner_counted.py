"""Lengths of models without a mask: recognised attention counts its keys, and what else padding reaches is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import model, node, saved, tensor
from length_models import encoder
from planner_fakes import POLICY, recipe

from bolt_build.digest import encode
from bolt_build.families import load
from bolt_build.families.base import StepExpressions
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.planner.padded_dims import PaddedDims, decisions_of, exact_lengths, padded_dims, with_counts
from bolt_build.planner.pipeline import optimize, recognised
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.planner.problem_text import describe_problem
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named

LENGTHS = (12, 16)


def followed(folder: Path, proto: onnx.ModelProto) -> PaddedDims:
    loaded = load_model(saved(folder, proto))
    graphs = [loaded.bind(2, (), (("sequence", length),)) for length in LENGTHS]
    return padded_dims(graphs, lambda graph: recognised(graph, POLICY))


def planned(folder: Path, proto: onnx.ModelProto, name: str, precision: str) -> PlannedEngine:
    loaded = load_model(saved(folder, proto))
    graphs = [loaded.bind(2, (), (("sequence", length),)) for length in LENGTHS]
    target = target_named(name)
    return plan_engine(graphs, recipe(), TargetSpec(name, precision), target, load(target))


def test_recognised_attention_counts_its_keys(tmp_path: Path) -> None:
    found = followed(tmp_path, encoder(masked=False))
    assert [(dim.name, dim.refused, dim.counted) for dim in found.dims] == [
        ("batch", "the engine has one of it", 0),
        ("sequence", "", 1),
    ]
    assert dict(found.dims[1].axes) == {"input_ids": (1,), "hidden": (1,)}
    assert [which for _, which in found.counted] == [1]
    (decision,) = decisions_of(found.dims)
    assert (decision.action, decision.reason) == (
        "pads shorter inputs with zeros",
        "attention in 1 node reads as many keys as there are, and no step lets them reach what is not padded",
    )
    assert exact_lengths(found.dims) == ()


def test_a_mask_needs_no_count(tmp_path: Path) -> None:
    found = followed(tmp_path, encoder())
    assert (found.dims[1].refused, found.dims[1].counted, found.counted) == ("", 0, ())


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (node("ReduceMean", "hidden", "y", "mean", axes=[1]), "'mean' takes the mean over it"),
        (node("Softmax", "hidden", "y", "share", axis=1), "'share' is a softmax over it"),
    ],
)
def test_what_else_padding_reaches_is_refused(tmp_path: Path, ending: onnx.NodeProto, reason: str) -> None:
    found = followed(tmp_path, encoder(masked=False, ending=(ending,), outputs=("y",)))
    assert found.dims[1].refused.startswith(reason), found.dims[1].refused
    assert found.counted == ()
    (told,) = exact_lengths(found.dims)
    assert told.startswith("inputs must have one of the extents of 'sequence': shorter ones cannot be padded, for '")


def test_attention_that_is_gone_is_an_error(tmp_path: Path) -> None:
    found = PaddedDims((), (("gone", 1),))
    graph = load_model(saved(tmp_path, encoder(masked=False))).bind(2, (), (("sequence", 12),))
    with pytest.raises(ValueError, match=r"^'gone' was attention when it was recognised, and is none in the optimised"):
        with_counts(optimize(graph, POLICY).graph, found)


@pytest.mark.parametrize(
    ("name", "precision", "family", "said"),
    [
        ("h200", "fp16", "attention", "bolt::attention::Counted{}"),
        ("t4", "fp16", "attention", "bolt::attention::Counted{}"),
        ("h200", "fp32", "portable", ".there = r.size(1)"), ("host", "fp32", "onednn", ".there = r.size(1)"),
    ],
)  # fmt: skip
def test_kernels_ask_the_run(tmp_path: Path, name: str, precision: str, family: str, said: str) -> None:
    engine, target = planned(tmp_path, encoder(masked=False), name, precision), target_named(name)
    (asked,) = [each for each in load(target) if each.name == family]
    for plan in engine.plan.plans:
        (step,) = [step for step in plan.steps if step.problem.op.reads_sizes]
        at = StepExpressions(tuple("abc"[: len(step.inputs)]), ("y",), (None,) * len(step.inputs))
        code = asked.emit(step.problem, asked.candidates(step.problem, target)[0][0], target, at)
        assert said in code.call
        assert "r.size(1)" in code.call
        assert "counted=1" in describe_problem(step.problem)


def test_attention_that_counts_nothing_is_what_it_was() -> None:
    assert "counted" not in encode(Attention(2, 2, 0.25))
    assert encode(Attention(2, 2, 0.25, counted=1))["counted"] == 1


def looked_up(turned: bool = False) -> onnx.ModelProto:
    """Rows times a mask that is looked up place by place, as torch writes `mask[batch, position]`; of the images the
    other way round if `turned`."""
    order = [node("Sub", "last images", "backwards"), node("Mul", "backwards length", "first")]
    nodes = [
        node("Shape", "mask", "shape"), node("Gather", "shape zero", "batch", axis=0),
        node("Gather", "shape one", "length", axis=0),
        node("Range", "zero batch one", "images"), node("Range", "zero length one", "places"),
        node("Sub", "batch one", "last"), *(order if turned else [node("Mul", "images length", "first")]),
        node("Unsqueeze", "first axis", "rows"), node("Add", "rows places", "at"),
        node("Reshape", "mask all", "flat"), node("Gather", "flat at", "seen", axis=0),
        node("Unsqueeze", "seen behind", "column"), node("Mul", "x column", "y", "weigh"),
    ]  # fmt: skip
    constants = {
        "zero": np.asarray(0, np.int64), "one": np.asarray(1, np.int64), "axis": np.asarray([1], np.int64),
        "all": np.asarray([-1], np.int64), "behind": np.asarray([2], np.int64),
    }  # fmt: skip
    return model(nodes, [tensor("x", ["N", 6, 8]), tensor("mask", ["N", 6])], ["y"], constants, opset=17)


def of_batches(folder: Path, proto: onnx.ModelProto) -> PaddedDims:
    loaded = load_model(saved(folder, proto))
    return padded_dims([loaded.bind(batch, (), ()) for batch in (2, 5)], lambda graph: recognised(graph, POLICY))


def test_a_mask_that_is_looked_up_in_its_own_order_pads_images(tmp_path: Path) -> None:
    (batch,) = of_batches(tmp_path, looked_up()).dims
    assert (batch.name, batch.refused, batch.counted) == ("batch", "", 0)
    assert dict(batch.axes) == {"x": (0,), "mask": (0,), "y": (0,)}


def test_images_that_are_looked_up_from_the_end_do_not_pad(tmp_path: Path) -> None:
    (batch,) = of_batches(tmp_path, looked_up(turned=True)).dims
    assert "depends on it" in batch.refused or "looks up other positions" in batch.refused


def test_images_are_never_counted(tmp_path: Path) -> None:
    proto = model(
        [
            node("Reshape", "x rows", "q"), node("Transpose", "q", "k", perm=[0, 2, 1]),
            node("MatMul", "q k", "scores"), node("Softmax", "scores", "shares", axis=2),
            node("MatMul", "shares q", "mixed"), node("Reshape", "mixed back", "y"),
        ],
        [tensor("x", ["N", 4, 8])], ["y"],
        {"rows": np.asarray([1, -1, 8], np.int64), "back": np.asarray([-1, 4, 8], np.int64)}, opset=17,
    )  # fmt: skip
    found = of_batches(tmp_path, proto)
    assert found.counted == ()
    assert found.dims[0].refused
