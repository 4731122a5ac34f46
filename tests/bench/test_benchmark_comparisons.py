"""What the benchmarks that compare engines rest on: one tuning for all models, locks without some kernels, turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from planner_checks import graph
from tuning_evidence import ON_H200, ok

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Candidate
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.zoo import repvgg
from bolt_build.planner.plan_engine import plan_engine, search_spaces
from bolt_build.planner.selection import Selection, Winner
from bolt_build.schema.load import load_recipe
from bolt_build.schema.recipe import Recipe
from bolt_build.targets import target_named
from bolt_build.tuning.choice.lock_part import lock_from
from bolt_build.tuning.exchange.results import RESULTS_VERSION, Results, Row, results_text
from bolt_build.tuning.records.kernel_record import Statistics, Status
from bolt_build.tuning.trials.tuning_set import TuningSet, tuning_set

ROOT = Path(__file__).resolve().parents[2]
H200 = target_named("h200")
FAMILIES = load(H200)


def recipe(folder: Path, model: str, persistent: str = "auto") -> Recipe:
    path = folder / f"{model}_{persistent}.yaml"
    path.write_text(
        f"bolt: 1\nmodel: {{onnx: {model}.onnx, batch: 32}}\ntargets: {{h200: {{precision: fp16}}}}\n"
        f"policy: {{fusion: {{persistent: {persistent}}}}}\n"
    )
    return load_recipe(path)


def problems(folder: Path, model: str, candidates: int = 3) -> TuningSet:
    found = recipe(folder, model)
    graph = load_model(folder / f"{model}.onnx").bind(32, ())
    return tuning_set(search_spaces([graph], found, found.targets[0], H200, FAMILIES), FAMILIES, H200, candidates)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from benchmarks.engines import fusion_models

    folder = tmp_path_factory.mktemp("models")
    onnx.save(repvgg.build_a0(), str(folder / "a0.onnx"))
    names = ("mlp_32768", "mlp_128320")
    paths = [fusion_models.write_model(fusion_models.Model(name), folder) for name in names]
    fusion_models.write_together([*paths, folder / "a0.onnx"], folder / "together.onnx")
    return folder


@pytest.mark.large
def test_models_side_by_side_have_the_problems_of_each(models: Path) -> None:
    together = {each.problem for each in problems(models, "together").problems}
    for model in ("mlp_32768", "mlp_128320", "a0"):
        alone = {each.problem for each in problems(models, model).problems}
        assert alone <= together


@pytest.mark.parametrize(
    "persistent", ["auto", *(pytest.param(each, marks=pytest.mark.large) for each in ("always", "never"))]
)
def test_one_tuning_has_every_kernel_of_each_policy(models: Path, persistent: str) -> None:
    found = problems(models, "together").problems
    winners = (Winner(each.problem.digest, each.trials[0].candidate, each.trials[0].predicted) for each in found)
    by = Selection("records", tuple(sorted(winners, key=lambda winner: winner.problem)))
    for model in ("mlp_32768", "mlp_128320"):
        graph, of = load_model(models / f"{model}.onnx").bind(32, ()), recipe(models, model, persistent)
        engine = plan_engine([graph], of, of.targets[0], H200, FAMILIES, by)
        assert all(each.measured for each in engine.used)
        assert sum(each.fused for each in engine.chains) == (0 if persistent == "never" else 1)


def save_classifier(folder: Path) -> None:
    """A product of few rows and a deep sum, for which slices of the depth pay."""
    weights = numpy_helper.from_array(np.ones((2048, 1000), np.float32), "w")
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", c]) for n, c in (("x", 2048), ("y", 1000))]
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="fc")
    graph = helper.make_graph([node], "classifier", ports[:1], ports[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(folder / "classifier.onnx"))


@pytest.mark.parametrize(
    ("recorded", "source"),
    [(lambda candidate: True, "records"), (lambda candidate: "partial" in dict(candidate.parameters), "predicted")],
)
def test_a_step_is_left_out_of_a_lock_as_if_it_had_never_been_measured(
    tmp_path: Path, recorded: Callable[[Candidate], bool], source: str
) -> None:
    """The kernels of slices take least; what is recorded of the others counts, else what is predicted of them."""
    from benchmarks.engines import ablation
    from bolt_build.workflows.evidence import Evidence

    save_classifier(tmp_path)
    found = problems(tmp_path, "classifier", 12)  # so that some are without slices
    records = tuple(
        (ON_H200, ok(each.problem.digest, trial.candidate, 1.0 if ablation.has(trial.candidate, "partial") else 9.0))
        for each in found.problems
        for trial in each.trials
        if recorded(trial.candidate)
    )
    part = lock_from(found, records, ())
    of = recipe(tmp_path, "classifier")
    engine = plan_engine([load_model(tmp_path / "classifier.onnx").bind(32, ())], of, of.targets[0], H200, FAMILIES)
    evidence = Evidence(engine, H200, FAMILIES, found, "a.lock", part, records)
    (step,) = (each for each in ablation.STEPS if each.name == "slices")
    sliced = {entry.problem for entry in part.entries if ablation.has(entry.winner, "partial")}
    assert sliced
    made = ablation.rewritten(evidence, step)
    assert not any(ablation.has(entry.winner, "partial") for entry in made.part.entries)
    assert {entry.problem for entry in made.part.entries} == {entry.problem for entry in part.entries}
    assert made.counts[source] > 0
    assert sum(made.counts.values()) == len(part.entries)
    assert made.counts["as it was"] == len(part.entries) - len(sliced)
    (everything,) = (each for each in ablation.STEPS if each.name == "all")
    assert ablation.rewritten(evidence, everything).part == part


STEM = """
    graph g batch=2 (%x: f32[2,3,224,224]) -> (%z) {
      const %w: f32[64,3,7,7] #
      %y = conv(%x, %w) strides=[2,2] pads_begin=[3,3] pads_end=[3,3] | relu // "stem"
      %z = pool(%y) mode=max kernel=[3,3] strides=[2,2] pads_begin=[1,1] pads_end=[1,1] // "pool"
    }"""


def test_a_stem_reads_planes_whatever_is_computed_behind_it() -> None:
    from benchmarks.engines import ablation

    of = graph(STEM)
    (cutlass,) = (family for family in FAMILIES if family.name == "cutlass")
    offered = cutlass.propose(of, of.nodes[0], H200, DType.F16)[0]
    forms = {(bool(each.apart), str(each.steps[0].problem.inputs[0].format)): each.steps[0].problem for each in offered}
    planes = {key: ablation.from_planes(problem) for key, problem in forms.items()}
    assert planes == {
        (pooled, form): form != "f16/channels_last"
        for pooled in (False, True)
        for form in ("f16/channels_last", "f16/row", "f32/row")
    }


@pytest.mark.parametrize("overlap", [False, True])
def test_times_of_launches_that_wait_are_of_such_alone(tmp_path: Path, overlap: bool) -> None:
    from benchmarks.kernels import back_to_back

    recipe = tmp_path / "table1.yaml"
    times = [Statistics(median, median, median, 0.0, 8, 8) for median in (7.0, 5.0)]
    rows = tuple(Row("p", f"c{place}", 0, Status.OK, "", each, 0.1) for place, each in enumerate(times))
    found = Results(RESULTS_VERSION, "b", "h200", (ON_H200.device,), rows, (), True, 1.0, overlap=overlap)
    results = tmp_path / "table1.waiting.jsonl"
    results.write_text(results_text(found))
    if not overlap:
        assert back_to_back.times_apart(recipe, "h200", here=False) == {"p": 5.0}
        return
    with pytest.raises(SystemExit) as caught:
        back_to_back.times_apart(recipe, "h200", here=False)
    assert str(caught.value) == (
        f"{results} was measured without --no-overlap: its launches did not wait for each other"
    )


def turns(**ms: float) -> Any:
    """Every engine takes the same in all turns, but for a hundredth to and fro."""
    from bolt_build.bench.replays import Turns

    return Turns("a GPU", {name: (each, each * 1.01, each * 0.99, each) for name, each in ms.items()}, {}, {})


@pytest.mark.parametrize(("auto", "slower"), [(1.00, False), (1.02, True), (0.90, False)])
def test_auto_is_slower_where_it_is_slower_than_the_better_of_the_others(auto: float, slower: bool) -> None:
    from benchmarks.engines import fusion_choices
    from benchmarks.engines.fusion_models import Model
    from benchmarks.engines.fusion_plans import Planned

    model = Model("net", policies=True)
    pair = {"nodes": ("a", "b"), "notable": True, "fused": False, "reason": "one kernel computes 'b' and 'c' already"}
    plan = Planned("net_auto", "1", "a.lock", 1, 9, 9, 1000, (pair,), ())
    plans = {f"net_{policy}": replace(plan, engine=f"net_{policy}") for policy in fusion_choices.POLICIES}
    names = {("net", policy): policy for policy in fusion_choices.POLICIES}
    found = fusion_choices.choices(model, plans, names, turns(auto=auto, always=1.5, never=1.0))
    assert found["better"] == "never"
    assert found["auto_is_slower"] is slower
    assert found["auto_over_better"]["median"] == pytest.approx(auto)
    assert found["notable_and_apart"] == ["a then b: one kernel computes 'b' and 'c' already"]


def test_samples_a_second_are_those_of_the_batch_that_ran() -> None:
    from benchmarks.engines import fusion_choices
    from benchmarks.engines.fusion_models import Model
    from benchmarks.engines.fusion_plans import Engine, Planned

    plan = Planned("net_auto", "1", "a.lock", 0, 1, 1, 10, (), ())
    built = fusion_choices.Built("net_auto", "there", True)
    row = fusion_choices.engine_row(Engine(Model("net"), "auto"), plan, built, turns(net_auto=2.0), 4)
    assert (row["ms"], row["samples_per_second"]) == (2.0, 2000.0)


def test_a_row_beside_peers_is_the_median_of_what_was_measured_before_and_after() -> None:
    from benchmarks.peers import against_peers

    row = next(each for each in against_peers.ROWS if each.name == "resnet50_b32")
    peer = {"graph_ms": 2.4, "compile_max_autotune_ms": 1.6, "compile_s": 180.0}
    before, after = {"ms": {"planes": [0.8, 0.8]}}, {"ms": {"planes": [0.8, 0.9]}}
    found = against_peers.line(row, {"before": before, "after": after, "peer": peer})
    assert found["engine_ms"] == {"planes": 0.8}
    assert found["torch_compile_over"] == {"planes": pytest.approx(2.0)}
    assert found["eager_in_graph_over"] == {"planes": pytest.approx(3.0)}
    assert found["reached"] == {"planes": True}
    assert found["peer_as_expected"] is False  # 1.469 ms when the targets were set, which is 9 % less
    of_row = {"least_row": "resnet50_b32"}
    assert dict(against_peers.summary([found])) == {
        "planes": {
            "measured": of_row | {"geometric_mean": pytest.approx(2.0), "least": pytest.approx(2.0)},
            "measured or expected": of_row
            | {"geometric_mean": pytest.approx(1.469 / 0.8), "least": pytest.approx(1.469 / 0.8)},
        },
    }
