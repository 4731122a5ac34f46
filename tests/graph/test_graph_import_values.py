"""From an ONNX model to the graph of one batch: what values and nodes are called, inputs, outputs and constants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from graph_models import body, bound, model, node, ones, refusals, tensor

IMAGE = tensor("x", [1, 3, 8, 8])


# -- names -------------------------------------------------------------------------------------------------------


def test_values_keep_onnx_names_and_nodes_get_unique_ones(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "x", "Relu_1"),
        node("Neg", "Relu_1", "/a.b:0", "same"),
        node("Abs", "/a.b:0", "c", "same"),
        node("Relu", "c", "y", "Relu_0"),
    ]
    assert body(bound(tmp_path, model(nodes, [IMAGE]))) == [
        '%Relu_1: f32[1,3,8,8] = relu(%x)  // "Relu_0#2"',
        '%"/a.b:0": f32[1,3,8,8] = neg(%Relu_1)  // "same"',
        '%c: f32[1,3,8,8] = abs(%"/a.b:0")  // "same#2"',
        '%y: f32[1,3,8,8] = relu(%c)  // "Relu_0"',
    ]


def test_helpers_are_synthetic_and_collide_with_nothing(tmp_path: Path) -> None:
    nodes = [
        node("Sum", "x x x", "s.binary", "s"),
        node("Relu", "s.binary", "y", "s.binary"),
    ]
    assert body(bound(tmp_path, model(nodes, [IMAGE]))) == [
        '%\'s.binary.2: f32[1,3,8,8] = add(%x, %x) @s.binary.2  // "s"',
        '%s.binary: f32[1,3,8,8] = add(%\'s.binary.2, %x)  // "s"',
        '%y: f32[1,3,8,8] = relu(%s.binary)  // "s.binary"',
    ]


def test_gemm_with_scales_becomes_a_product_and_an_addition(tmp_path: Path) -> None:
    constants = {"w": ones(2, 4), "c": ones(2)}
    nodes = [node("Gemm", "x w c", "y", "fc", transB=1, alpha=0.5, beta=2.0)]
    assert body(bound(tmp_path, model(nodes, [tensor("x", [1, 4])], constants=constants))) == [
        "const %'fc.binary: f32[2,4] {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5}",
        "const %'fc.binary.2: f32[2] {2, 2}",
        "%y: f32[1,2] = matmul(%x, %'fc.binary, %'fc.binary.2) transpose_b=true  // \"fc\"",
    ]


def test_the_logarithm_of_a_sum_of_exponentials_is_one_node_and_keeps_what_is_not_finite(tmp_path: Path) -> None:
    nodes = [node("ReduceLogSumExp", "x", "y", "s", axes=[2], keepdims=0)]
    graph = bound(tmp_path, model(nodes, [tensor("x", [1, 5, 3])]))
    assert body(graph) == ['%y: f32[1,5] = reduce(%x) mode=log_sum_exp axes=[2] keepdims=false  // "s"']
    inf, nan = np.inf, np.nan
    x = np.array([[0, 0, 0], [900, 900, -inf], [-inf, -inf, -inf], [1, inf, inf], [nan, inf, 0]], np.float32)
    (y,) = graph.nodes[0].op.evaluate([x[None]])
    np.testing.assert_allclose(y[0], [np.log(3), 900 + np.log(2), -inf, inf, nan], rtol=1e-6)


def test_single_elements_that_repeat_are_broadcast_and_others_padded_with_themselves(tmp_path: Path) -> None:
    nodes = [node("Tile", "x wide", "a", "a"), node("Tile", "x once", "b", "b"), node("Tile", "x twice", "c", "c")]
    constants = {"wide": np.array([5, 1, 1]), "once": np.array([1, 1, 1]), "twice": np.array([5, 1, 2])}
    graph = bound(tmp_path, model(nodes, [tensor("x", [1, 1, 4])], ["a", "b", "c"], constants))
    assert body(graph) == [
        '%a: f32[5,1,4] = expand(%x) shape=[5,1,4]  // "a"',
        '%b: f32[1,1,4] = identity(%x)  // "b"',
        '%c: f32[5,1,8] = pad(%x) begin=[0,0,0] end=[4,0,4] mode=wrap  // "c"',
    ]


# -- inputs, outputs, constants ----------------------------------------------------------------------------------


def test_initializer_that_is_also_an_input_is_a_constant(tmp_path: Path) -> None:
    proto = model([node("Add", "x w", "y")], [IMAGE, tensor("w", [1])], constants={"w": ones(1)})
    graph = bound(tmp_path, proto)
    assert graph.inputs == ("x",)
    assert graph.constant("w") is not None


def test_unused_input_stays_and_unused_nodes_go(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "y", "used"), node("Relu", "idle", "lost", "unused")]
    graph = bound(tmp_path, model(nodes, [IMAGE, tensor("idle", [1, 2])]))
    assert graph.inputs == ("x", "idle")
    assert body(graph) == ['%y: f32[1,3,8,8] = relu(%x)  // "used"']


def test_outputs_that_are_constants_are_copied_and_repeated_ones_stand_once(tmp_path: Path) -> None:
    nodes = [node("Add", "x c", "y", "add")]
    graph = bound(tmp_path, model(nodes, [IMAGE], ["y", "c", "y"], {"c": ones(1)}))
    assert graph.outputs == ("y", "c")
    assert body(graph) == [
        "const %'c.constant: f32[1] {1}",
        '%y: f32[1,3,8,8] = add(%x, %\'c.constant)  // "add"',
        "%c: f32[1] = identity(%'c.constant) @c.copy",
    ]


def test_output_that_is_an_input_is_refused(tmp_path: Path) -> None:
    assert refusals(tmp_path, model([node("Relu", "x", "y")], [IMAGE], ["y", "x"])) == [
        ("unsupported-output", "the output 'x' is a graph input: there is nothing to compute for it")
    ]


def test_optional_inputs_and_outputs_may_be_left_out(tmp_path: Path) -> None:
    nodes = [
        node("Clip", "x - six", "c", "clip"),
        node("Conv", "c w -", "y", "conv"),
        node("Dropout", "y", "z -", "drop"),
        node("Einsum", "x", "lost -", "dead", equation="ij->ji"),
    ]
    graph = bound(tmp_path, model(nodes, [IMAGE], ["z"], {"w": ones(1, 3, 8, 8), "six": np.float32(6).reshape(())}))
    assert body(graph)[1:] == [
        '%c: f32[1,3,8,8] = clip(%x) alpha=-3.4028234663852886e+38 beta=6.0  // "clip"',
        '%y: f32[1,1,1,1] = conv(%c, %w) strides=[1,1] pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]  // "conv"',
        '%z: f32[1,1,1,1] = identity(%y)  // "drop"',
    ]
