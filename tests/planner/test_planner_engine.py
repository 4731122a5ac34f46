"""Whole plans: what no family can do, precision by layer, and the table of weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planner_checks import graph
from planner_fakes import FAKE, HOST_TARGET, SPEC, Fake, recipe

from bolt_build.digest import decode, encode
from bolt_build.dtypes import DType
from bolt_build.errors import BoltError, Diagnostic, Mark
from bolt_build.families.base import Candidate, KernelProblem, Refusal
from bolt_build.graph.ir import Graph
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.schema.recipe import LayerSpec, Recipe
from bolt_build.targets import Target

NET = """
    graph g batch={batch} (%x: f32[{batch},3,4,4]) -> (%y) {{
      const %w: f32[4,3,3,3] #{seed}
      const %g: f32[4] #
      const %b: f32[4] #
      const %m: f32[4] #
      const %v: f32[4] positive
      const %k: f32[4,4,1,1] #
      %a = conv(%x, %w) // "conv1"
      %n = batch_norm(%a, %g, %b, %m, %v) epsilon=1e-5 // "bn1"
      %r = relu(%n) // "relu1"
      %y = conv(%r, %k) // "conv2"
    }}"""


def net(batch: int = 1, factor: float = 1.0) -> Graph:
    found = graph(NET.format(batch=batch, seed=""))
    values = []
    for value in found.values:
        constant = value.constant
        if constant is not None:
            value = replace(value, constant=type(constant)((constant.array * factor).astype(np.float32)))
        values.append(value)
    return replace(found, values=tuple(values))


def planned(*graphs: Graph, of: Recipe | None = None, family: Fake = FAKE) -> PlannedEngine:
    return plan_engine(graphs, of or recipe(), SPEC, HOST_TARGET, [family])


def test_every_node_that_nobody_can_compute_is_listed_once_for_all_batches() -> None:
    marked = replace(recipe(), marks=(("targets.host", Mark("r.yaml", 5, 3, 4)),))
    shy = Fake(layouts=lambda node: () if node.op.kind != "conv" or "conv2" in node.covers else (FAKE.layouts(node)))
    text = NET.replace("%y = conv(%r, %k)", '%q = softmax(%r) axis=1 // "soft"\n %y = conv(%q, %k)')
    graphs = [graph(text.format(batch=batch, seed="")) for batch in (1, 8)]
    with pytest.raises(BoltError) as raised:
        planned(*graphs, of=marked, family=shy)
    conv = "conv strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1] groups=1"
    soft_message = "no kernel for node 'soft', softmax axis=1 in f32: fake: does not do softmax"
    conv_message = f"no kernel for node 'conv2', {conv} in f32: fake: does not do conv"
    assert list(raised.value.diagnostics) == [
        Diagnostic("no-kernel", soft_message, Mark("r.yaml", 5, 3, 4), subject="soft"),
        Diagnostic("no-kernel", conv_message, Mark("r.yaml", 5, 3, 4), subject="conv2"),
    ]


def test_double_precision_is_named_as_the_reason_once_for_all_nodes() -> None:
    marked = replace(recipe(), marks=(("targets.host", Mark("r.yaml", 5, 3, 4)),))
    lines = "\n".join(f'%v{i}: f64[1,4] = relu(%{"x" if i == 0 else f"v{i - 1}"}) // "relu{i}"' for i in range(7))
    graphs = [graph(f"graph g batch=1 (%x: f64[1,4]) -> (%v6) {{\n{lines}\n}}")]
    with pytest.raises(BoltError) as raised:
        planned(*graphs, of=marked, family=Fake(layouts=lambda node: ()))
    assert list(raised.value.diagnostics) == [
        Diagnostic(
            "no-kernel",
            "no kernel: nodes 'relu0', 'relu1', 'relu2', 'relu3', 'relu4' and 2 more would be computed in double "
            "precision (f64), and 'host' computes in fp32 and bf16",
            Mark("r.yaml", 5, 3, 4),
            "export the model in single precision (PyTorch: model.float())",
        )
    ]


def test_tensors_whose_bytes_together_nothing_can_count() -> None:
    """Each of them could be: an arena of fewer bytes than they have would be the fault of nobody."""
    nodes = "%a = relu(%x)\n%b = tanh(%a)\n%c = sigmoid(%a)\n%d = add(%b, %c)\n%y = add(%d, %a)"
    many = graph(f"graph g batch=1 (%x: f32[1,{2**29},{2**30}]) -> (%y) {{\n{nodes}\n}}")
    with pytest.raises(BoltError) as raised:
        planned(many)
    (found,) = raised.value.diagnostics
    assert (found.code, found.hint) == ("model-too-large", "bind smaller batches and dimensions")
    assert found.message == f"batch 1 takes {2**63} bytes, which 63 bits cannot count"


def test_an_alternative_without_a_legal_candidate_does_not_count() -> None:
    class Picky(Fake):
        def candidates(
            self, problem: KernelProblem, target: Target
        ) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
            return (), (Refusal("fake", "tile", "no tile fits"),)

    with pytest.raises(BoltError) as raised:
        planned(graph('graph g batch=1 (%x: f32[2]) -> (%y) {\n%y = relu(%x) // "y"\n}'), family=Picky())
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.message.endswith(" in f32: fake: no legal candidate: no tile fits")


def test_layers_choose_their_precision_and_the_last_match_wins() -> None:
    layers = (LayerSpec("conv*", "bf16"), LayerSpec("conv2", "fp32"), LayerSpec("fc*", "bf16"))
    found = planned(net(), of=recipe(layers=layers)).plan
    kinds = {step.name: step.problem.outputs[0].format.dtype for step in found.plans[0].steps}
    assert (kinds["relu1"], kinds["conv2"]) == (DType.BF16, DType.F32)
    assert [(d.subject, d.action, d.reason) for d in found.decisions if d.stage == "precision"] == [
        ("layers[0]", "set precision bf16", "'conv*' matches 2 nodes"),
        ("layers[1]", "set precision fp32", "'conv2' matches 1 node"),
        ("layers[2]", "declined", "'fc*' matches no node of the optimised graph"),
    ]


def test_one_table_of_weights_serves_all_batches() -> None:
    one, both = planned(net(1)), planned(net(1), net(8))
    assert both.plan.weights == one.plan.weights
    assert [slot.name for slot in one.plan.weights] == ["w.folded", "conv1.bias", "k"]
    assert [slot.offset % 64 for slot in one.plan.weights] == [0, 0, 0]
    for slot, array in zip(both.plan.weights, both.constants, strict=True):
        assert (array.shape, array.nbytes) == (slot.shape, slot.nbytes)


def test_weights_are_stored_in_the_type_that_their_reader_asks_for() -> None:
    found = planned(net(), of=recipe(layers=(LayerSpec("conv2", "bf16"),)))
    assert [slot.dtype for slot in found.plan.weights] == [DType.F32, DType.F32, DType.BF16]
    assert [array.dtype.name for array in found.constants] == ["float32", "float32", "bfloat16"]


def test_a_constant_that_depends_on_the_batch_has_a_slot_in_each() -> None:
    def shifted(batch: int) -> Graph:
        return graph(f"""
            graph g batch={batch} (%x: f32[{batch},2]) -> (%y) {{
              const %c: f32[] {{{batch}}}
              %y = add(%x, %c) // "y"
            }}""")

    found = planned(shifted(1), shifted(4))
    assert [slot.name for slot in found.plan.weights] == ["c", "c@batch4"]
    assert [plan.steps[0].inputs[1].location.at for plan in found.plan.plans] == [0, 1]


@pytest.mark.parametrize("factor", [0.0, 1.0, -3.0])
def test_other_weights_of_the_same_model_make_the_same_layout(factor: float) -> None:
    """Zeros, which make many weights equal, change nothing that a decision may rest on."""
    assert planned(net(factor=factor)).plan.layout_digest == planned(net(factor=2.0)).plan.layout_digest


def test_a_number_that_became_an_attribute_is_part_of_the_structure() -> None:
    def capped(top: float) -> Graph:
        return graph(f"""
            graph g batch=1 (%x: f32[2]) -> (%y) {{
              const %low: f32[] {{0}}
              const %top: f32[] {{{top}}}
              %a = max(%x, %low) // "a"
              %y = min(%a, %top) // "y"
            }}""")

    six, seven = planned(capped(6)), planned(capped(7))
    assert six.graphs[0].nodes[0].op == Activation("clip", 0.0, 6.0)
    assert six.plan.structure != seven.plan.structure


def test_a_plan_survives_its_json_form() -> None:
    plan = planned(net(1), net(4)).plan
    assert decode(EnginePlan, encode(plan)) == plan
