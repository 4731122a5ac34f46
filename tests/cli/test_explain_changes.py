"""The list of layout and type changes that are left in an engine."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from planner_checks import graph
from planner_fakes import recipe

from bolt_build.families import load
from bolt_build.graph.ir import Graph
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.zoo.repvgg import build_a0
from bolt_build.graph.zoo.resnet18 import build as build_resnet18
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.report.explained.changes import Change, changes_of, render_changes
from bolt_build.schema.recipe import TargetSpec
from bolt_build.sizes import Sizes
from bolt_build.targets import target_named

H200 = target_named("h200")
FAMILIES = load(H200)
BY_NAME = {family.name: family for family in FAMILIES}
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def changes(of: Graph) -> tuple[Change, ...]:
    engine = plan_engine([of], recipe(), TargetSpec("h200", "fp16"), H200, FAMILIES)
    steps = engine.plan.plans[0].steps
    return changes_of(steps, lambda step: BY_NAME[step.candidate.family].expense(step.problem, step.candidate))


def lines(of: Graph) -> list[str]:
    return [
        f"{c.layer}: {c.tensor} {c.source} to {c.to}, {c.nbytes} bytes, {c.edge or 'inside'}, {c.how}"
        for c in changes(of)
    ]


NET = """
    graph g batch=2 (%x: f32[2,64,8,8]) -> (%y) {{
      const %w: f32[64,64,3,3] #
      const %k: f32[64,{between},3,3] #
      const %v: f32[{between},64,3,3] #
      %a = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] // "a"
      {nodes}
    }}"""


def test_changes_at_the_edges_are_kernels_of_their_own_where_nothing_takes_them() -> None:
    nodes = '%y = conv(%a, %k) pads_begin=[1,1] pads_end=[1,1] // "y"'
    assert lines(graph(NET.format(between=64, nodes=nodes).replace("const %v: f32[64,64,3,3] #\n", ""))) == [
        "x@f16/channels_last: x f32/row to f16/channels_last, 16384 bytes, input, alone",
        "y@f32/row: y f16/channels_last to f32/row, 32768 bytes, output, alone",
    ]


def test_a_first_layer_takes_the_change_into_the_copy_that_it_makes_anyway() -> None:
    of = graph("""
        graph g batch=2 (%x: f32[2,3,64,64]) -> (%y) {
          const %w: f32[64,3,9,9] #
          %a = conv(%x, %w) strides=[2,2] pads_begin=[4,4] pads_end=[4,4] // "a"
          %y = reduce(%a) mode="mean" axes=[2,3] keepdims=false // "y"
        }""")
    found = lines(of)
    assert found[0] == "a: x f32/row to f16 cells of 2x2 pixels of 4 channels, 82944 bytes, input, copied"


def test_a_first_layer_that_reads_the_image_as_it_lies_changes_it_on_the_way() -> None:
    of = graph("""
        graph g batch=2 (%x: f32[2,3,64,64]) -> (%y) {
          const %w: f32[64,3,3,3] #
          %a = conv(%x, %w) strides=[2,2] pads_begin=[1,1] pads_end=[1,1] // "a"
          %y = reduce(%a) mode="mean" axes=[2,3] keepdims=false // "y"
        }""")
    assert lines(of)[0] == "a: x f32/row to f16/channels_last, 98304 bytes, input, fused"


ODD = """
      %b = conv(%a, %v) pads_begin=[1,1] pads_end=[1,1] // "b"
      %s = softmax(%b) axis=1 // "s"
      %c = conv(%b, %k) pads_begin=[1,1] pads_end=[1,1] // "c"
      %t = transpose(%c) perm=[0,2,1,3] // "t"
      %y = concat(%t, %t) axis=0 // "y"
"""
"""46 channels that are read by others than convolutions, too."""


def odd() -> Graph:
    return graph(NET.format(between=46, nodes=ODD).replace("(%y)", "(%y, %s)"))


def test_the_models_own_transpositions_and_copies_inside_are_listed() -> None:
    found = lines(odd())
    inside = [line for line in found if ", inside, " in line]
    assert "c: b f16/channels_last to f16/channels_last of 48 channels, 12288 bytes, inside, copied" in inside
    assert [line.split(":")[0] for line in found if line.endswith(", model")] == ["t"]


def test_the_list_as_text() -> None:
    found = changes(odd())
    own = sum(each.how == "model" for each in found)
    inside = sum(not each.edge for each in found) - own
    text = render_changes(Sizes(2), found, None)
    assert text[:2] == ["", f"layout and type changes, batch 2: {len(found)}, {inside} of them inside"]
    assert len(text) == 3 + len(found)
    edges = [each for each in found if each.edge]
    assert render_changes(Sizes(2), edges, None)[1].endswith(f"{len(edges)}, all at the model's edges")
    assert render_changes(Sizes(2), (), None) == ["", "layout and type changes, batch 2: none"]


def light(name: str, folder: Path) -> Graph:
    return load_model(LIGHT / f"light_{name}.onnx").bind(1, ())


def built(model: onnx.ModelProto, folder: Path) -> Graph:
    onnx.save(model, folder / "model.onnx")
    return load_model(folder / "model.onnx").bind(32, ())


@pytest.mark.parametrize(
    "name",
    [
        "resnet50", "squeezenet", "repvgg_a0",
        *(pytest.param(name, marks=pytest.mark.large) for name in ("vgg19", "inception_v1", "resnet18")),
    ],
)  # fmt: skip
def test_convolutional_networks_change_layouts_at_their_edges_alone(name: str, tmp_path: Path) -> None:
    makers = {"repvgg_a0": build_a0, "resnet18": build_resnet18}
    of = built(makers[name](), tmp_path) if name in makers else light(name, tmp_path)
    found = changes(of)
    assert [change for change in found if not change.edge] == []
    assert {change.edge for change in found} == {"input", "output"}
    assert {change.how for change in found} <= {"copied", "fused"}
