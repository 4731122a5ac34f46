"""Variants of a model: what each change does to a graph, as text, and that it does nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from graph_models import bound, model, node, ones, tensor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from planner_checks import body
from planner_fakes import POLICY

from bolt_build.graph.ir import Array
from bolt_build.graph.variants import vary
from bolt_build.graph.variants.mistake import VariantError
from bolt_build.graph.zoo.calibrate import calibrate
from bolt_build.graph.zoo.repvgg import build_a0, build_a1, build_b0
from bolt_build.planner.parameters import count_parameters
from bolt_build.planner.pipeline import optimize
from bolt_build.schema.recipe import ActivationChange, VariantSpec

DEEP = VariantSpec("deep", deepen="*")
ALIGNED = VariantSpec("aligned", align=8)


def swapped(to: str, match: str | None = None) -> VariantSpec:
    return VariantSpec("swapped", ActivationChange(to, match))


def block(activation: str = "Relu", opset: int = 17, dtype: type = np.float32) -> onnx.ModelProto:
    """A 3x3 convolution, its BatchNorm and activation, and a 1x1 one."""
    constants: dict[str, Array] = {"w": ones(4, 3, 3, 3), "v": ones(5, 4, 1, 1)}
    constants |= {name: ones(4) for name in ("scale", "shift", "mean", "var")}
    nodes = [
        node("Conv", "x w", "c", "/a/conv/Conv", pads=[1, 1, 1, 1]),
        node("BatchNormalization", "c scale shift mean var", "n", "/a/bn/BatchNormalization"),
        node(activation, "n", "r", f"/a/act/{activation}"),
        node("Conv", "r v", "y", "/b/conv/Conv"),
    ]
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    typed = {name: array.astype(dtype) for name, array in constants.items()}
    proto = model(nodes, [tensor("x", [1, 3, 8, 8], kind)], ["y"], typed, opset)
    proto.graph.output[0].CopyFrom(tensor("y", None, kind))
    return proto


def check(proto: onnx.ModelProto) -> None:
    """Fails where the model is not valid, or the types of its tensors do not fit together."""
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True))


def varied(tmp_path: Path, proto: onnx.ModelProto, spec: VariantSpec) -> str:
    """The nodes of the variant, as text; it is a valid model."""
    found = vary(proto, spec).model
    check(found)
    return body(bound(tmp_path, found))


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
    assert varied(tmp_path, block(), VariantSpec("deep", deepen="/a/*")) == (
        f"%c = conv(%x, %w) {CONV}\n"
        f"{NORM}\n"
        '%/a/act/deepen/input = relu(%n)  // "/a/act/Relu"\n'
        f"%/a/act/deepen/Conv_output_0 = conv(%/a/act/deepen/input, %a.act.deepen.weight, %a.act.deepen.bias) {at}\n"
        '%r = relu(%/a/act/deepen/Conv_output_0)  // "/a/act/deepen/Relu"\n'
        f"%y = conv(%r, %v) {LAST}"
    )


def test_several_changes_are_made_together(tmp_path: Path) -> None:
    spec = VariantSpec("all", ActivationChange("hardswish"), "/a/*", 8)
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
    found = vary(base, VariantSpec("deep", deepen="/a/*")).model
    arrays = {item.name: numpy_helper.to_array(item) for item in found.graph.initializer}
    for item in base.graph.initializer:
        np.testing.assert_array_equal(arrays[item.name], numpy_helper.to_array(item))
    found.graph.output.append(onnx.ValueInfoProto(name="/a/act/deepen/Conv_output_0"))
    session = onnxruntime.InferenceSession(found.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.RandomState(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    (deepened,) = session.run(["/a/act/deepen/Conv_output_0"], {"x": x})
    assert 0.3 < deepened.std() < 3


@pytest.mark.parametrize(("build", "plain", "deepened"), [
    (build_a0, 8_309_384, 8_872_472), (build_a1, 12_789_864, 13_789_480), (build_b0, 14_339_048, 15_511_592),
])  # fmt: skip
def test_parameters_of_deepened_repvgg(tmp_path: Path, build: object, plain: int, deepened: int) -> None:
    """Bolt's Table 5 has 8.31, 12.79 and 14.34 million, and 13.35, 21.7 and 24.85 deepened. The latter is what 3x3
    convolutions of as many channels add, to the last digit given, and not what 1x1 convolutions do."""
    assert callable(build)
    base = build()
    found = vary(base, VariantSpec("deep", deepen="/stage[0-3]*/rbr_dense/*"), draw=False).model
    check(found)
    assert [count_parameters(bound(tmp_path, each), POLICY) for each in (base, found)] == [plain, deepened]
    added = [item.dims for item in found.graph.initializer if item.name.endswith("deepen.weight")]
    assert deepened - plain == sum(rows * columns + rows for rows, columns, _, _ in added)
    as_3x3 = plain + sum(9 * rows * columns + rows for rows, columns, _, _ in added)
    published = {build_a0: 13.35, build_a1: 21.75, build_b0: 24.85}[build]
    assert round(as_3x3 / 1e6, 2) == published


def test_a_deepened_repvgg_still_merges_into_one_3x3_a_block(tmp_path: Path) -> None:
    spec = VariantSpec("deep", ActivationChange("gelu"), "/stage[0-3]*/rbr_dense/*")
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
    spec = VariantSpec("bad", ActivationChange("gelu", "/a/b*"), "/b/conv/Conv")
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
        (VariantSpec("d", deepen="/z"), "deepen.behind", "no-match", "'/z' matches no node of the model", None),
        (
            VariantSpec("d", deepen="*/bn/*"), "deepen.behind", "not-3x3",
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


def test_aligning_repeats_channels_where_they_are_made_and_adds_zeros_where_they_are_read() -> None:
    base = calibrate(block(), seed=1)
    found = {item.name: numpy_helper.to_array(item) for item in vary(base, ALIGNED).model.graph.initializer}
    before = {item.name: numpy_helper.to_array(item) for item in base.graph.initializer}
    for name in ("w", "scale", "shift", "mean", "var"):
        np.testing.assert_array_equal(found[name], np.concatenate([before[name]] * 2))
    np.testing.assert_array_equal(found["v"], np.concatenate([before["v"], np.zeros((5, 4, 1, 1))], 1))


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (
            [node("Concat", "c c", "y", "join", axis=1)],
            "'join' (Concat) does not keep channels apart, as far as is known",
        ),
        ([node("Conv", "c g", "y", "half", group=2)], "'half' (Conv) has 2 groups"),
        ([node("Conv", "c v", "d", "b"), node("Conv", "d v", "y", "b2")], "'v' is read in several places"),
    ],
)  # fmt: skip
def test_channels_that_cannot_be_followed_are_left_with_the_reason(nodes: list[onnx.NodeProto], reason: str) -> None:
    constants: dict[str, Array] = {"w": ones(6, 3, 3, 3), "g": ones(4, 3, 1, 1), "v": ones(6, 6, 1, 1)}
    proto = model([node("Conv", "x w", "c", "conv"), *nodes], constants=constants)
    variation = vary(proto, ALIGNED)
    assert variation.changes[0] == "no hidden channels to round up to a multiple of 8"
    assert f"6 channels of 'c' left: {reason}" in variation.changes
    assert list(variation.model.graph.initializer) == list(proto.graph.initializer)


def gated(*gate: onnx.NodeProto) -> onnx.ModelProto:
    """16 channels of a convolution, all of which one tensor 's' is multiplied with, and a convolution behind that."""
    random = np.random.RandomState(1)
    shapes = {"w": (16, 3, 3, 3), "v": (1, 16, 1, 1), "u": (6, 16, 1, 1), "t": (5, 6, 1, 1)}
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [node("Conv", "x w", "c", "conv"), *gate, node("Mul", "c s", "m", "gate")]
    nodes += [node("Conv", "m u", "d", "next"), node("Conv", "d t", "y", "last")]
    return model(nodes, constants=weights)


def agree(before: onnx.ModelProto, after: onnx.ModelProto, **more: Array) -> None:
    """Fails where onnxruntime computes something else with the one than with the other."""
    feeds = {"x": np.random.RandomState(5).standard_normal((1, 3, 8, 8)).astype(np.float32), **more}
    expected, found = (
        onnxruntime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
        for each in (before, after)
    )
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-4 * np.abs(expected[0]).max())


def test_one_channel_that_is_broadcast_stays_one() -> None:
    proto = gated(node("Conv", "c v", "a", "attend"), node("Sigmoid", "a", "s", "squash"))
    variation = vary(proto, ALIGNED)
    check(variation.model)
    assert variation.changes == (
        "6 channels of 'd' widened to 8",
        "3 channels of 'x' left: 'x' is an input of the model",
        "1 channel of 'a' left: 'gate' (Mul) broadcasts it",
        "5 channels of 'y' left: 'y' is an output of the model",
    )
    agree(proto, variation.model)


def test_a_tensor_of_lower_rank_that_is_broadcast_stays_as_it_is() -> None:
    proto = gated(
        node("GlobalAveragePool", "c", "p"), node("Flatten", "p", "f"), node("MatMul", "f columns", "s", "by_column")
    )
    proto.graph.initializer.append(numpy_helper.from_array(ones(16, 6), "columns"))
    variation = vary(proto, ALIGNED)
    check(variation.model)
    assert "6 channels of 's' left: 'gate' (Mul) broadcasts it" in variation.changes
    agree(proto, variation.model)


def test_what_only_a_subgraph_reads_stays_as_it_is() -> None:
    branches = {
        f"{word}_branch": onnx.helper.make_graph(
            [node(op, "d", f"{word}_d", f"{word}/{op}")], word, [], [tensor(f"{word}_d", [1, 6, 6, 6])]
        )
        for word, op in (("then", "Relu"), ("else", "Neg"))
    }
    random = np.random.RandomState(1)
    shapes = {"w": (6, 3, 3, 3), "v": (5, 6, 1, 1), "u": (6, 6, 1, 1)}
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [node("Conv", "x w", "d", "conv"), node("If", "b", "i", "choose", **branches)]
    nodes += [node("Conv", "d v", "e", "aside"), node("GlobalMaxPool", "e", "z", "pool")]
    nodes += [node("Conv", "i u", "y", "last")]
    inputs = [tensor("x", [1, 3, 8, 8]), tensor("b", [], onnx.TensorProto.BOOL)]
    proto = model(nodes, inputs, ["y", "z"], weights)
    variation = vary(proto, ALIGNED)
    check(variation.model)
    reason = "'choose' (If) does not keep channels apart, as far as is known"
    assert f"6 channels of 'd' left: {reason}" in variation.changes
    for way in (False, True):
        agree(proto, variation.model, b=np.asarray(way))


@pytest.mark.parametrize("spec", [ALIGNED, VariantSpec("deep", deepen="/a/*"), swapped("hardswish"), swapped("gelu")])
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


@st.composite
def networks(draw: st.DrawFn) -> onnx.ModelProto:
    """Convolutions of odd widths, residuals, depthwise ones, pooling and a fully connected end."""
    random = np.random.RandomState(draw(st.integers(0, 2**31)))
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, Array] = {}
    x, channels = "x", 3

    def weight(name: str, *shape: int) -> str:
        constants[name] = (0.4 * random.standard_normal(shape)).astype(np.float32)
        return name

    for at in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(("plain", "residual", "depthwise", "gated", "normed")))
        wide = draw(st.integers(1, 20)) if kind in ("plain", "normed") else channels
        group = channels if kind == "depthwise" else 1
        w, b = weight(f"w{at}", wide, channels // group, 3, 3), weight(f"b{at}", wide)
        nodes.append(node("Conv", f"{x} {w} {b}", f"c{at}", pads=[1, 1, 1, 1], group=group))
        y = f"c{at}"
        if kind == "residual" and x != "x":
            nodes.append(node("Add", f"{y} {x}", f"s{at}"))
            y = f"s{at}"
        if kind == "gated":
            nodes.append(node("Mul", f"{y} {weight(f'm{at}', wide, 1, 1)}", f"g{at}"))
            y = f"g{at}"
        if kind == "normed":
            parts = " ".join(weight(f"n{at}{part}", wide) for part in "abc")
            constants[f"n{at}v"] = random.uniform(0.5, 2, wide).astype(np.float32)
            nodes.append(node("BatchNormalization", f"{y} {parts} n{at}v", f"n{at}"))
            y = f"n{at}"
        nodes.append(node(draw(st.sampled_from(("Relu", "Softplus", "HardSwish"))), y, f"r{at}"))
        x, channels = f"r{at}", wide
    if draw(st.booleans()):
        nodes.append(node("GlobalAveragePool", x, "p"))
        x, inner = "p", channels
    else:
        inner = channels * 64
    nodes.append(node("Flatten", x, "f"))
    nodes.append(node("Gemm", f"f {weight('wf', 7, inner)} {weight('bf', 7)}", "h", transB=1))
    nodes.append(node("Relu", "h", "hr"))
    nodes.append(node("MatMul", f"hr {weight('wl', 7, 4)}", "y"))
    return model(nodes, constants=constants)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(networks(), st.sampled_from((2, 4, 8, 12)))
def test_aligning_never_changes_what_a_network_computes(proto: onnx.ModelProto, multiple: int) -> None:
    variation = vary(proto, VariantSpec("aligned", align=multiple))
    found = variation.model
    check(found)
    x = np.random.RandomState(5).standard_normal((1, 3, 8, 8)).astype(np.float32)
    before, after = (
        onnxruntime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})
        for each in (proto, found)
    )
    np.testing.assert_allclose(after[0], before[0], rtol=1e-4, atol=1e-4 * np.abs(before[0]).max())
    left = [change for change in variation.changes if " left: " in change]
    assert all(change.endswith(("is an input of the model", "is an output of the model")) for change in left)
