"""Steps of measured engines beside their predictions: found, grouped, tabled."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bolt_build.digest import encode
from bolt_build.families import load
from bolt_build.graph.onnx_import import load_model
from bolt_build.planner.engine_plan import Step
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.planner.problem_text import describe_problem
from bolt_build.schema.load import load_recipe
from bolt_build.targets import target_named

ROOT = Path(__file__).resolve().parents[2]
H200 = target_named("h200")


def save_engine(folder: Path, name: str) -> Step:
    """The plan of two equal products beside each other, as a build leaves it; the first of them."""
    weights = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 64]) for n in ("x", "u", "y", "v")]
    nodes = [helper.make_node("MatMul", [a, "w"], [b], name=b) for a, b in (("x", "y"), ("u", "v"))]
    graph = helper.make_graph(nodes, "two", ports[:2], ports[2:], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")
    (folder / "m.yaml").write_text(
        "bolt: 1\nmodel: {onnx: m.onnx, batch: 8}\ntargets: {h200: {precision: fp16}}\nengine: {io: {dtype: fp16}}\n"
    )
    recipe = load_recipe(folder / "m.yaml")
    graphs = [load_model(folder / "m.onnx").bind(8, ())]
    plan = plan_engine(graphs, recipe, recipe.targets[0], H200, load(H200)).plan
    made = folder / "generated" / name / "h200"
    made.mkdir(parents=True)
    (made / "engine.json").write_text(json.dumps(encode(plan)))
    taken = [{"step": step.name, "us": us} for step, us in zip(plan.plans[0].steps, (3.0, 4.0), strict=True)]
    head = {"environment": {"date": "today"}, "bench": {"device": "NVIDIA H200"}}
    (folder / f"row_{name}_b8.json").write_text(json.dumps(head | {"steps": taken}))
    return plan.plans[0].steps[0]


def test_a_networks_steps_have_the_prediction_and_the_bound_of_their_kernels(tmp_path: Path) -> None:
    from benchmarks.planning.problem_texts import text_of
    from benchmarks.planning.untuned_steps import network_of, rows_of

    first = save_engine(tmp_path, "two_products")
    ((network, batch, path),) = rows_of([tmp_path])
    found = network_of(path, network, batch, H200)
    (step,) = found.pop("steps")
    assert found == {"batch": 8, "gpu": "NVIDIA H200", "date": "today"}
    family = next(each for each in load(H200) if each.name == first.candidate.family)
    assert step == {
        "kind": "matmul", "kernel": text_of(first.candidate), "problem": first.problem.digest,
        "what": describe_problem(first.problem),
        "predicted_us": round(1e6 * family.predict(first.problem, first.candidate, H200), 2),
        "bound_us": 2.0,
        "count": 2, "us": 3.5,
    }  # fmt: skip


def test_equal_steps_of_a_network_are_one_with_their_mean() -> None:
    from benchmarks.planning.untuned_steps import grouped

    conv = {"kind": "1x1 conv", "kernel": "cutlass m=64", "bound_us": 2.0, "predicted_us": 3.0}
    assert grouped([(conv, 4.0), (conv | {"predicted_us": 5.0}, 7.0), (dict(conv), 4.126)]) == [
        conv | {"count": 2, "us": 4.06}, conv | {"predicted_us": 5.0, "count": 1, "us": 7.0},
    ]  # fmt: skip


def test_rows_of_steps_are_found_by_their_names(tmp_path: Path) -> None:
    from benchmarks.planning.untuned_steps import rows_of

    for name in ("row_swin_v2_t_b32.json", "row_gpt2_b8.json", "engines.json", "row_odd.json"):
        (tmp_path / name).touch()
    assert list(rows_of([tmp_path])) == [
        ("gpt2", 8, tmp_path / "row_gpt2_b8.json"), ("swin_v2_t", 32, tmp_path / "row_swin_v2_t_b32.json"),
    ]  # fmt: skip


def test_steps_are_tabled_by_kind_with_what_they_take_of_their_predictions() -> None:
    from benchmarks.rendered.other_steps import other_steps

    step = {"kind": "binary + 1x1 conv", "kernel": "cutlass m=64", "bound_us": 2.0}
    steps = [step | {"predicted_us": 4.0, "us": 8.0, "count": 9}, step | {"predicted_us": 8.0, "us": 4.0, "count": 3},
             step | {"kind": "pad", "kernel": "portable x=1", "predicted_us": 1.0, "us": 16.0, "count": 1}]  # fmt: skip
    made = other_steps({"networks": {"a": {"gpu": "NVIDIA H200", "steps": steps}}})
    assert made["other_steps"].splitlines()[2:] == [
        "| all | 13 | 1.70 | 0.50 to 2.00 | 26% |  |",
        "| cutlass: elementwise + 1x1 conv | 12 | 1.41 | 0.50 to 2.00 | 29% | 84.0% |",
        "| other kinds, each of fewer than 10 steps | 1 | 16.00 | 16.00 to 16.00 | 12% |  |",
    ]
    assert (made["other_steps.steps"], made["other_steps.networks"]) == ("13", "1")
