"""Every broken graph is recognised, with all of its violations."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from bolt_build.dtypes import DType
from bolt_build.graph.invariants import InvariantError, check
from bolt_build.graph.ir import Constant, Graph, Node, TensorType, Value
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.text import parse_graph

SOUND = """
    graph sound batch=1 (%x: f32[1,3,8,8]) -> (%z) {
      const %w: f32[4,3,3,3]
      %y = conv(%x, %w)
      %z = conv(%x, %w, %y) | add(%y) | relu
    }
"""


def with_node(graph: Graph, index: int, **changes: object) -> Graph:
    nodes = list(graph.nodes)
    nodes[index] = dataclasses.replace(nodes[index], **changes)
    return dataclasses.replace(graph, nodes=tuple(nodes))


def with_values(graph: Graph, *values: Value) -> Graph:
    names = {value.name for value in values}
    return dataclasses.replace(graph, values=(*(v for v in graph.values if v.name not in names), *values))


def violations(graph: Graph) -> tuple[str, ...]:
    with pytest.raises(InvariantError) as raised:
        check(graph)
    return raised.value.violations


def test_sound_graph_passes() -> None:
    check(parse_graph(SOUND))


def test_nodes_must_stand_in_topological_order() -> None:
    graph = parse_graph(SOUND)
    reversed_nodes = dataclasses.replace(graph, nodes=graph.nodes[::-1])
    assert violations(reversed_nodes) == ("node 'z' reads 'y' before it is produced",)


def test_what_is_read_must_be_produced() -> None:
    graph = parse_graph(SOUND)
    assert violations(dataclasses.replace(graph, nodes=graph.nodes[1:])) == (
        "node 'z' reads 'y', which nothing produces",
    )


def test_what_is_named_must_exist() -> None:
    graph = parse_graph(SOUND)
    without = dataclasses.replace(graph, values=tuple(v for v in graph.values if v.name != "w"))
    assert violations(without) == ("the value 'w' does not exist",)


def test_names_are_unique() -> None:
    graph = parse_graph(SOUND)
    twice = dataclasses.replace(graph, values=(*graph.values, graph.value("x")), outputs=("z", "z"))
    assert violations(twice) == ("the value name 'x' is used 2 times", "the output name 'z' is used 2 times")
    assert violations(with_node(graph, 0, name="z")) == ("the node name 'z' is used 2 times",)


def test_a_value_has_one_producer() -> None:
    graph = parse_graph(SOUND)
    again = Node("again", Activation("relu"), ("y",), ("z",))
    assert violations(dataclasses.replace(graph, nodes=(*graph.nodes, again))) == ("the value 'z' is produced 2 times",)
    onto_input = Node("again", Activation("relu"), ("x",), ("x",))
    assert violations(dataclasses.replace(graph, nodes=(*graph.nodes, onto_input))) == (
        "node 'again' produces 'x', which is a graph input or a constant",
    )


def test_outputs_are_produced() -> None:
    graph = parse_graph(SOUND)
    idle = Value("idle", TensorType(DType.F32, (1,)))
    assert violations(dataclasses.replace(with_values(graph, idle), outputs=("z", "idle"))) == (
        "the output 'idle' is not produced",
    )
    assert violations(with_values(graph, idle)) == ("the value 'idle' is not used",)


def test_constants_agree_with_their_types() -> None:
    graph = parse_graph(SOUND)
    w = Value("w", TensorType(DType.F32, (4, 3, 3, 3)), Constant(np.zeros((4, 3, 3, 2))))
    assert violations(with_values(graph, w)) == ("the constant 'w' of type f32[4,3,3,3] holds f64[4,3,3,2]",)
    x = Value("x", TensorType(DType.F32, (1, 3, 8, 8)), Constant(np.zeros((1, 3, 8, 8), np.float32)))
    assert violations(with_values(graph, x)) == ("the input 'x' is a constant",)


def test_types_are_what_the_operators_give() -> None:
    graph = parse_graph(SOUND)
    assert violations(with_values(graph, Value("y", TensorType(DType.F32, (1, 4, 6, 7))))) == (
        "node 'y': output 'y' is f32[1,4,6,7], the operator gives f32[1,4,6,6]",
        "node 'z': epilogue stage 0: shapes [1, 4, 6, 6] and [1, 4, 6, 7] do not broadcast",
    )
    assert violations(with_node(graph, 0, inputs=("x", "y"))) == (
        "node 'y' reads 'y' before it is produced",
        "node 'y': the input has 3 channels, the weight [1, 4, 6, 6] with 1 groups takes 4",
    )


def test_an_operator_has_as_many_outputs_as_its_node() -> None:
    graph = parse_graph(SOUND)
    more = with_values(with_node(graph, 0, outputs=("y", "mask")), Value("mask", TensorType(DType.F32, (1,))))
    assert violations(more) == ("node 'y': the operator has 1 outputs, the node 2",)


def test_epilogue_keeps_the_type_of_the_output() -> None:
    graph = parse_graph("""
        graph grows batch=1 (%x: f32[1,4,1,1], %big: f32[1,4,6,6], %half: f16[1,4,1,1]) -> (%y) {
          %y = identity(%x, %big, %half) | add(%big) | relu | mul(%half)
        }
    """)
    assert violations(graph) == (
        "node 'y': epilogue stage 0 turns f32[1,4,1,1] into f32[1,4,6,6]",
        "node 'y': epilogue stage 2: the inputs have different element types: f32, f16",
    )


def test_epilogue_operands_stand_behind_the_operators_own_inputs() -> None:
    graph = parse_graph("""
        graph first batch=1 (%x: f32[1,4], %r: f32[1,4]) -> (%y) {
          %y: f32[1,4] = identity(%r, %x) | add(%r)
        }
    """)
    assert violations(graph) == ("node 'y': epilogue operands [0] do not stand behind the op's own inputs",)


def test_epilogue_stages_are_activations_or_binary_functions_with_an_operand() -> None:
    graph = parse_graph("""
        graph odd batch=1 (%x: f32[1,4], %r: f32[1,4]) -> (%y) {
          %y: f32[1,4] = identity(%x, %r) | add | relu(%r) | relu swapped | softmax axis=1
        }
    """)
    neither = "is neither an activation alone nor a binary function with an operand"
    assert violations(graph) == (
        f"node 'y': epilogue stage 0 {neither}",
        f"node 'y': epilogue stage 1 {neither}",
        "node 'y': epilogue stage 2 has no operand to swap with",
        f"node 'y': epilogue stage 3 {neither}",
    )


def test_the_message_has_all_violations() -> None:
    graph = with_node(parse_graph(SOUND), 0, name="z")
    idle = Value("idle", TensorType(DType.F32, (1,)))
    with pytest.raises(InvariantError) as raised:
        check(with_values(graph, idle))
    assert str(raised.value) == (
        "graph 'sound' is broken: the node name 'z' is used 2 times; the value 'idle' is not used"
    )


def test_beside_a_graph_that_was_checked_a_changed_node_is_found() -> None:
    right = parse_graph(SOUND)
    wrong = with_node(right, 1, epilogue=())
    with pytest.raises(InvariantError) as raised:
        check(wrong, right)
    assert raised.value.violations == violations(wrong)


def test_beside_a_graph_that_was_checked_a_changed_type_is_found_at_every_node_that_has_it() -> None:
    right = parse_graph(SOUND)
    wrong = with_values(right, Value("y", TensorType(DType.F32, (1, 4, 5, 6))))
    with pytest.raises(InvariantError) as raised:
        check(wrong, right)
    assert raised.value.violations == violations(wrong)
    assert [text.partition(":")[0] for text in raised.value.violations] == ["node 'y'", "node 'z'"]
