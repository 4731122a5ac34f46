"""Variants of a model: what each change does to a graph, as text, and that it does nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from graph_models import bound, model, node, ones, tensor
from onnx import numpy_helper
from planner_fakes import POLICY
from variant_models import agree, block, check, varied

from bolt_build.graph.variants import vary
from bolt_build.graph.variants.mistake import VariantError
from bolt_build.graph.zoo.calibrate import calibrate
from bolt_build.graph.zoo.repvgg import build_a0, build_a1, build_b0
from bolt_build.planner.parameters import count_parameters
from bolt_build.planner.pipeline import optimize
from bolt_build.schema.recipe import ActivationChange, Alignment, Deepening, VariantSpec

DEEP = VariantSpec("deep", deepen=Deepening("*"))
DEEP_A = VariantSpec("deep", deepen=Deepening("/a/*"))
NOWHERE = VariantSpec("d", deepen=Deepening("/z"))
ALIGNED = VariantSpec("aligned", align=Alignment(8))


def swapped(to: str, match: str | None = None) -> VariantSpec:
    return VariantSpec("swapped", ActivationChange(to, match))


CONV = 'strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]  // "/a/conv/Conv"'
LAST = 'strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]  // "/b/conv/Conv"'
NORM = '%n = batch_norm(%c, %scale, %shift, %mean, %var) epsilon=1e-05  // "/a/bn/BatchNormalization"'


SPELLED = {
    "relu": '%r = relu(%n)  // "/a/act/Relu"',
    "softplus": '%r = softplus(%n)  // "/a/act/Relu"',
    "hardswish": '%r = hard_swish(%n)  // "/a/act/Relu"',
    "gelu": '%r = gelu(%n)  // "/a/act/Relu"',
    "hardswish before opset 14": """\
%/a/act/Relu/HardSigmoid_output_0 = hard_sigmoid(%n) alpha=0.16666667 beta=0.5  // "/a/act/Relu/HardSigmoid"
%r = mul(%n, %/a/act/Relu/HardSigmoid_output_0)  // "/a/act/Relu\"""",
    "silu": """\
%/a/act/Relu/Sigmoid_output_0 = sigmoid(%n)  // "/a/act/Relu/Sigmoid"
%r = mul(%n, %/a/act/Relu/Sigmoid_output_0)  // "/a/act/Relu\"""",
    "gelu before opset 20": """\
%/a/act/Relu/Div_output_0 = div(%n, %/a/act/Relu.root)  // "/a/act/Relu/Div"
%/a/act/Relu/Erf_output_0 = erf(%/a/act/Relu/Div_output_0)  // "/a/act/Relu/Erf"
%/a/act/Relu/Add_output_0 = add(%/a/act/Relu/Erf_output_0, %/a/act/Relu.one)  // "/a/act/Relu/Add"
%/a/act/Relu/Mul_output_0 = mul(%n, %/a/act/Relu/Add_output_0)  // "/a/act/Relu/Mul"
%r = mul(%/a/act/Relu/Mul_output_0, %/a/act/Relu.half)  // "/a/act/Relu\"""",
}


@pytest.mark.parametrize("spelled", SPELLED)
def test_an_activation_takes_anothers_place_name_and_output(tmp_path: Path, spelled: str) -> None:
    function, _, before = spelled.partition(" before opset ")
    expected = f"%c = conv(%x, %w) {CONV}\n{NORM}\n{SPELLED[spelled]}\n%y = conv(%r, %v) {LAST}"
    assert varied(tmp_path, block(opset=int(before or 21) - 1), swapped(function)) == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("function", ["relu", "gelu", "hardswish", "silu", "softplus"])
@pytest.mark.parametrize("opset", [13, 17, 20])
def test_the_planner_takes_every_activation_for_one(tmp_path: Path, opset: int, function: str, dtype: type) -> None:
    found = vary(block(opset=opset, dtype=dtype), swapped(function)).model
    check(found)
    graph = optimize(bound(tmp_path, found), POLICY).graph
    word = {"hardswish": "hard_swish"}.get(function, function)
    assert [[stage.op.function for stage in each.epilogue] for each in graph.nodes] == [[word], []]  # type: ignore[attr-defined]


def test_a_glob_chooses_activations_of_any_kind(tmp_path: Path) -> None:
    text = varied(tmp_path, block("HardSwish"), swapped("relu", "/a/*"))
    assert '%r = relu(%n)  // "/a/act/HardSwish"' in text


def test_deepening_puts_a_1x1_and_its_activation_behind_the_block(tmp_path: Path) -> None:
    at = 'strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]  // "/a/act/deepen/Conv"'
    assert varied(tmp_path, block(), DEEP_A) == (
        f"%c = conv(%x, %w) {CONV}\n"
        f"{NORM}\n"
        '%/a/act/deepen/input = relu(%n)  // "/a/act/Relu"\n'
        f"%/a/act/deepen/Conv_output_0 = conv(%/a/act/deepen/input, %a.act.deepen.weight, %a.act.deepen.bias) {at}\n"
        '%r = relu(%/a/act/deepen/Conv_output_0)  // "/a/act/deepen/Relu"\n'
        f"%y = conv(%r, %v) {LAST}"
    )


def test_several_changes_are_made_together(tmp_path: Path) -> None:
    spec = VariantSpec("all", ActivationChange("hardswish"), Deepening("/a/*"), Alignment(8))
    assert vary(block(), spec).changes == (
        "deepened by 1 1x1 convolution",
        "hardswish in the place of 2 activations",
        "4 channels of 'c' widened to 8",
        "4 channels of '/a/act/deepen/Conv_output_0' widened to 8",
        "3 channels of 'x' left: 'x' is an input of the model",
        "5 channels of 'y' left: 'y' is an output of the model",
    )
    text = varied(tmp_path, block(), spec)
    assert text.count("hard_swish") == 2
    assert "relu" not in text


def test_what_two_branches_share_is_deepened_once_behind_their_sum(tmp_path: Path) -> None:
    nodes = [
        node("Conv", "x w", "a", "one", pads=[1, 1, 1, 1]),
        node("Conv", "x v", "b", "two", pads=[1, 1, 1, 1]),
        node("Add", "a b", "s", "sum"),
        node("Sigmoid", "s", "g", "gate"),
        node("Mul", "s g", "y", "silu"),
    ]
    text = varied(tmp_path, model(nodes, constants={"w": ones(4, 3, 3, 3), "v": ones(4, 3, 3, 3)}), DEEP)
    at = 'strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]  // "silu/deepen/Conv"'
    assert text.splitlines()[2:] == [
        '%s = add(%a, %b)  // "sum"',
        '%g = sigmoid(%s)  // "gate"',
        '%silu/deepen/input = mul(%s, %g)  // "silu"',
        f"%silu/deepen/Conv_output_0 = conv(%silu/deepen/input, %silu.deepen.weight, %silu.deepen.bias) {at}",
        '%silu/deepen/Sigmoid_output_0 = sigmoid(%silu/deepen/Conv_output_0)  // "silu/deepen/Sigmoid"',
        '%y = mul(%silu/deepen/Conv_output_0, %silu/deepen/Sigmoid_output_0)  // "silu/deepen/Mul"',
    ]


def test_new_weights_are_calibrated_and_the_others_stay() -> None:
    base = calibrate(block(), seed=1)
    found = vary(base, DEEP_A).model
    arrays = {item.name: numpy_helper.to_array(item) for item in found.graph.initializer}
    for item in base.graph.initializer:
        np.testing.assert_array_equal(arrays[item.name], numpy_helper.to_array(item))
    found.graph.output.append(onnx.ValueInfoProto(name="/a/act/deepen/Conv_output_0"))
    session = onnxruntime.InferenceSession(found.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.RandomState(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    (deepened,) = session.run(["/a/act/deepen/Conv_output_0"], {"x": x})
    assert 0.3 < deepened.std() < 3


@pytest.mark.parametrize(("build", "plain", "deepened"), [
    (build_a0, 8_309_384, 8_872_472),
    pytest.param(build_a1, 12_789_864, 13_789_480, marks=pytest.mark.large),
    pytest.param(build_b0, 14_339_048, 15_511_592, marks=pytest.mark.large),
])  # fmt: skip
def test_parameters_of_deepened_repvgg(tmp_path: Path, build: object, plain: int, deepened: int) -> None:
    """Bolt's Table 5 has 8.31, 12.79 and 14.34 million, and 13.35, 21.7 and 24.85 deepened. The latter is what 3x3
    convolutions of as many channels add, to the last digit given, and not what 1x1 convolutions do."""
    assert callable(build)
    base = build()
    found = vary(base, VariantSpec("deep", deepen=Deepening("/stage[0-3]*/rbr_dense/*")), draw=False).model
    check(found)
    assert [count_parameters(bound(tmp_path, each), POLICY) for each in (base, found)] == [plain, deepened]
    added = [item.dims for item in found.graph.initializer if item.name.endswith("deepen.weight")]
    assert deepened - plain == sum(rows * columns + rows for rows, columns, _, _ in added)
    as_3x3 = plain + sum(9 * rows * columns + rows for rows, columns, _, _ in added)
    published = {build_a0: 13.35, build_a1: 21.75, build_b0: 24.85}[build]
    assert round(as_3x3 / 1e6, 2) == published


def test_a_deepened_repvgg_still_merges_into_one_3x3_a_block(tmp_path: Path) -> None:
    spec = VariantSpec("deep", ActivationChange("gelu"), Deepening("/stage[0-3]*/rbr_dense/*"))
    graph = optimize(bound(tmp_path, vary(build_a0(), spec, draw=False).model), POLICY).graph
    kernels = [graph.type(each.inputs[1]).shape[2:] for each in graph.nodes if each.op.kind == "conv"]
    assert kernels == [(3, 3), (1, 1)] * 21 + [(3, 3)]
    assert {stage.op.function for each in graph.nodes for stage in each.epilogue} == {"gelu"}  # type: ignore[attr-defined]


def mistakes(proto: onnx.ModelProto, spec: VariantSpec) -> list[tuple[str, str, str, str | None]]:
    with pytest.raises(VariantError) as raised:
        vary(proto, spec)
    return [(each.key, each.code, each.message, each.hint) for each in raised.value.mistakes]


SWAPPABLE = "activations are Relu, LeakyRelu, PRelu, Elu, Selu, Celu, HardSwish, Gelu, Swish, Softplus, Mish nodes"


def test_every_mistake_of_a_variant_is_told_at_once() -> None:
    spec = VariantSpec("bad", ActivationChange("gelu", "/a/b*"), Deepening("/b/conv/Conv"))
    assert mistakes(block(), spec) == [
        (
            "deepen.behind", "not-3x3", "'/b/conv/Conv' matches '/b/conv/Conv', whose kernel is 1x1, not 3x3",
            "narrow the glob to 3x3 convolutions",
        ),
        (
            "activation.match", "nothing-to-swap", "'/a/b*' matches no activation: only BatchNormalization", SWAPPABLE
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "key", "code", "message", "hint"),
    [
        (swapped("gelu", "/z"), "activation.match", "no-match", "'/z' matches no node of the model", None),
        (
            swapped("gelu"), "activation", "nothing-to-swap", "the model has no Relu",
            "name its activations with 'match', such as '/a/act/HardSwish' (HardSwish)",
        ),
        (NOWHERE, "deepen.behind", "no-match", "'/z' matches no node of the model", None),
        (
            VariantSpec("d", deepen=Deepening("*/bn/*")), "deepen.behind", "not-3x3",
            "'*/bn/*' matches no convolution: only BatchNormalization", None,
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_model(spec: VariantSpec, key: str, code: str, message: str, hint: str | None) -> None:
    assert mistakes(block("HardSwish"), spec) == [(key, code, message, hint)]


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([node("MaxPool", "c", "y", "pool", kernel_shape=[2, 2])], "'pool' (MaxPool) reads 'c' before any activation"),
        (
            [node("Relu", "c", "r", "act"), node("Add", "c r", "y", "sum")],
            "'c' has 2 readers before any activation",
        ),
        ([node("BatchNormalization", "c s s s s", "y", "norm")], "'y' has 1 readers before any activation"),
    ],
)  # fmt: skip
def test_a_block_that_ends_in_no_activation_cannot_be_deepened(nodes: list[onnx.NodeProto], reason: str) -> None:
    proto = model(
        [node("Conv", "x w", "c", "conv", pads=[1, 1, 1, 1]), *nodes], constants={"w": ones(4, 3, 3, 3), "s": ones(4)}
    )
    assert mistakes(proto, DEEP) == [(
        "deepen.behind", "no-activation", f"the block of 'conv' cannot be deepened: {reason}",
        "narrow the glob to blocks that end in one",
    )]  # fmt: skip


@pytest.mark.parametrize("spec", [ALIGNED, DEEP_A, swapped("hardswish"), swapped("gelu")])
def test_files_that_list_initializers_among_their_inputs(spec: VariantSpec) -> None:
    """As all did before version 4 of the format."""
    plain = calibrate(block(opset=9), seed=1)
    proto = onnx.ModelProto()
    proto.CopyFrom(plain)
    proto.ir_version = 3
    proto.graph.input.extend(tensor(item.name, item.dims) for item in proto.graph.initializer)
    found = vary(proto, spec)
    assert found.changes == vary(plain, spec).changes
    assert [item.name for item in found.model.graph.input] == ["x"]
    check(found.model)
    agree(vary(plain, spec).model, found.model)
    if spec is ALIGNED:
        assert "4 channels of 'c' widened to 8" in found.changes
        agree(proto, found.model)
