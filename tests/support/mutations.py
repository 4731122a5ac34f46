"""Graphs that nearly are what a pass looks for: a graph with one thing changed, so that a recogniser that reads too
little is found out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Any

import numpy as np

from bolt_build.graph import invariants
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import Constant, Graph, Node, ShapeError, TensorType, Value
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Transpose

FLOATS = ("f32", "f16")
ACTIVATIONS = ("relu", "sigmoid", "tanh", "exp", "neg", "abs", "silu", "gelu", "sqrt", "reciprocal", "log", "erf")
BINARIES = ("add", "sub", "mul", "div", "max", "min")


@dataclass
class Changing:
    """A graph while it is changed: nodes in order, the names of outputs, and values that are new or have others."""

    graph: Graph
    random: Random
    nodes: list[Node]
    outputs: list[str]
    values: dict[str, Value] = field(default_factory=dict)

    def node(self) -> int:
        return self.random.randrange(len(self.nodes))

    def type(self, name: str) -> TensorType:
        return self.values[name].type

    def is_float(self, name: str) -> bool:
        return self.type(name).dtype.value in FLOATS

    def free(self, name: str) -> str:
        while name in self.values:
            name += "'"
        return name

    def numbers(self, shape: tuple[int, ...], like: TensorType) -> Constant:
        drawn = np.random.default_rng(self.random.randrange(1 << 30)).normal(size=shape)
        return Constant(drawn.astype(numpy_dtype(like.dtype)))

    def another_input(self, at: int, place: int, name: str) -> None:
        inputs = list(self.nodes[at].inputs)
        inputs[place] = name
        self.nodes[at] = replace(self.nodes[at], inputs=tuple(inputs))


Change = Callable[[Changing], bool]


def _another_output(g: Changing) -> bool:
    """A value between is asked for too."""
    inner = [v.name for v in g.graph.values if v.constant is None and v.name not in (*g.outputs, *g.graph.inputs)]
    if inner:
        g.outputs.append(g.random.choice(inner))
    return bool(inner)


def _another_reader(g: Changing) -> bool:
    """A value between is read by one node more."""
    sources = [v.name for v in g.graph.values if v.constant is None and g.is_float(v.name)]
    if not sources:
        return False
    source, name = g.random.choice(sources), g.free("reader")
    g.values[name] = Value(name, g.type(source))
    behind = next((at for at, node in enumerate(g.nodes) if source in node.outputs), -1) + 1
    g.nodes.insert(behind, Node(name, Activation(g.random.choice(("neg", "relu"))), (source,), (name,), covers=(name,)))
    g.outputs.append(name)
    return True


def _another_constant(g: Changing) -> bool:
    """All numbers of a constant, or one of them, are others."""
    stored = [v for v in g.graph.values if v.constant is not None and v.constant.stored is None and g.is_float(v.name)]
    stored = [v for v in stored if v.type.elements]
    if not stored:
        return False
    value = g.random.choice(stored)
    assert value.constant is not None
    array = np.array(value.constant.array)
    if g.random.random() < 0.5:
        array.reshape(-1)[g.random.randrange(array.size)] = g.random.choice((0, 1, -1, 2, 0.5))
        made = Constant(array)
    else:
        made = g.numbers(array.shape, value.type)
    g.values[value.name] = replace(value, constant=made)
    return True


def _other_sides(g: Changing) -> bool:
    """Two inputs of a node in turn."""
    at = g.node()
    if len(g.nodes[at].inputs) < 2:
        return False
    inputs = list(g.nodes[at].inputs)
    one, other = g.random.sample(range(len(inputs)), 2)
    inputs[one], inputs[other] = inputs[other], inputs[one]
    g.nodes[at] = replace(g.nodes[at], inputs=tuple(inputs))
    return True


def _another_attribute(g: Changing) -> bool:
    """A flag, a number, or two axes of a node."""
    at = g.node()
    op = g.nodes[at].op
    named = [(each.name, getattr(op, each.name)) for each in fields(op)]
    if not named:
        return False
    name, value = g.random.choice(named)
    made: Any
    match value:
        case bool():
            made = not value
        case int():
            made = value + g.random.choice((-1, 1))
        case float():
            made = g.random.choice((0.0, 1.0, -1.0, value * 2))
        case (int(), *_):
            several = list(value)
            one = g.random.randrange(len(several))
            if len(several) > 1 and g.random.random() < 0.5:
                other = g.random.randrange(len(several))
                several[one], several[other] = several[other], several[one]
            else:
                several[one] += g.random.choice((-1, 1))
            made = tuple(several)
        case _:
            return False
    g.nodes[at] = replace(g.nodes[at], op=replace(op, **{name: made}))
    return True


def _another_source(g: Changing) -> bool:
    """A node reads another value of the same type, or of the same rank."""
    at = g.node()
    if not g.nodes[at].inputs:
        return False
    place = g.random.randrange(len(g.nodes[at].inputs))
    own = g.nodes[at].inputs[place]
    known = {*g.graph.inputs, *(name for each in g.nodes[:at] for name in each.outputs)}
    known |= {value.name for value in g.values.values() if value.constant is not None}
    of_rank = [
        name for name in sorted(known - {own})
        if g.type(name).dtype is g.type(own).dtype and g.type(name).rank in (g.type(own).rank, 0)
    ]  # fmt: skip
    alike = [name for name in of_rank if g.type(name) == g.type(own)]
    if not of_rank:
        return False
    g.another_input(at, place, g.random.choice(alike if alike and g.random.random() < 0.7 else of_rank))
    return True


def _another_function(g: Changing) -> bool:
    at = g.node()
    match g.nodes[at].op:
        case Activation():
            op: Activation | Binary = Activation(g.random.choice(ACTIVATIONS))
        case Binary():
            op = Binary(g.random.choice(BINARIES))
        case _:
            return False
    g.nodes[at] = replace(g.nodes[at], op=op)
    return True


def _one_more_node(g: Changing) -> bool:
    """A function, a constant that broadcasts, or two equal axes in turn, between two nodes."""
    at = g.node()
    places = [place for place, name in enumerate(g.nodes[at].inputs) if g.is_float(name)]
    if not places:
        return False
    place, name = g.random.choice(places), g.free("between")
    source = g.nodes[at].inputs[place]
    own = g.type(source)
    g.values[name] = Value(name, own)
    op: Activation | Binary | Transpose
    match g.random.choice(("function", "constant", "turned")):
        case "function":
            op, inputs = Activation(g.random.choice(("neg", "relu", "tanh", "abs"))), (source,)
        case "constant":
            some = tuple(extent if g.random.random() < 0.5 else 1 for extent in own.shape)
            shape = g.random.choice(((), (1,), own.shape, some, own.shape[-1:], own.shape[1:]))
            constant = g.free("constant")
            g.values[constant] = Value(constant, TensorType(own.dtype, shape), g.numbers(shape, own))
            op, inputs = Binary(g.random.choice(("mul", "add"))), (source, constant)
        case _:
            if own.rank < 2:
                return False
            perm = list(range(own.rank))
            one, other = g.random.sample(perm, 2)
            perm[one], perm[other] = other, one
            if own.shape[one] != own.shape[other]:
                return False
            op, inputs = Transpose(tuple(perm)), (source,)
    g.another_input(at, place, name)
    g.nodes.insert(at, Node(name, op, inputs, (name,), covers=(name,)))
    return True


CHANGES: tuple[Change, ...] = (
    _another_output, _another_reader, _another_constant, _other_sides, _another_attribute, _another_source,
    _another_function, _one_more_node, _one_more_node,
)  # fmt: skip


def mutated(graph: Graph, random: Random) -> Graph | None:
    """The graph with one thing changed; None where what was drawn is none, or leaves no graph."""
    if not graph.nodes:
        return None
    values = {value.name: value for value in graph.values}
    changing = Changing(graph, random, list(graph.nodes), list(graph.outputs), values)
    if not random.choice(CHANGES)(changing):
        return None
    try:
        made = _typed(changing)
        invariants.check(made)
    except (ShapeError, invariants.InvariantError, ValueError, IndexError):
        return None
    return made


def _typed(g: Changing) -> Graph:
    """With the types that follow now. Raises ShapeError where none do."""
    for node in g.nodes:
        types = node.op.infer([g.type(name) for name in node.op_inputs])
        if node.epilogue and types[0].shape != g.type(node.outputs[0]).shape:
            raise ShapeError("stages are of the type that a result had")
        for name, made in zip(node.outputs, types, strict=True):
            g.values[name] = replace(g.values[name], type=made)
    used = {*g.graph.inputs, *(name for node in g.nodes for name in (*node.inputs, *node.outputs))}
    values = tuple(value for value in g.values.values() if value.name in used)
    return replace(g.graph, values=values, nodes=tuple(g.nodes), outputs=tuple(g.outputs))
