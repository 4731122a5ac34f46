"""Gated products in a graph: f(a) * g(b), where a and b are products with the same A operand, or parts of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bolt_build.graph.ir import EpilogueOp, Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.moves.shape import Slice
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul


@dataclass(frozen=True)
class Side:
    """One factor of a gate: a product, the slice of its columns where it is not all of them, and the activations that
    follow. `nodes` are all of them but the gate, in the order in which they follow each other."""

    product: Node
    part: Node | None
    stages: tuple[EpilogueOp, ...]
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class GatedProducts:
    """Nodes of a gated product, in the graph's order; `last` leaves it, and `after` are its stages behind the gate.

    `first` and `second` are the sides in the order of their columns, or of two products one with activations in front,
    by their names. `neighbours`: columns of even and of odd number. `obstacle` says why one kernel cannot compute all
    of it; None where nothing in the graph is against it.
    """

    nodes: tuple[Node, ...]
    first: Side
    second: Side
    neighbours: bool
    last: Node
    after: tuple[EpilogueOp, ...]
    obstacle: str | None

    @property
    def region(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)

    @property
    def products(self) -> tuple[Node, ...]:
        """One or two."""
        both = (self.first.product, self.second.product)
        return both[:1] if both[0] is both[1] else both


def gated_from(graph: Graph, first: Node) -> GatedProducts | None:
    """The gated product whose first node in the graph's order is the product `first`, None where there is none."""
    if not isinstance(first.op, Conv | MatMul):
        return None
    for last in _multiplied(graph, first):
        found = _gated(graph, last)
        if found is not None and found.nodes[0] is first:
            return found
    return None


def gated_in(graph: Graph) -> tuple[GatedProducts, ...]:
    """Every gated product of the graph, in the order of their first nodes."""
    return tuple(found for found in (gated_from(graph, node) for node in graph.nodes) if found is not None)


def _multiplied(graph: Graph, node: Node) -> Iterator[Node]:
    """Nodes that multiply what becomes of the node's result, activations and slices behind it, with another tensor."""
    if _factor(graph, node) is not None and not isinstance(node.op, Binary):
        yield node
    for reader in graph.consumers(node.outputs[0]):
        if _gate(graph, reader) is not None:
            yield reader
        elif isinstance(reader.op, Activation | Slice):
            yield from _multiplied(graph, reader)


def _factor(graph: Graph, node: Node) -> int | None:
    """Of an epilogue the stage that multiplies with another tensor of the same shape, with activations alone in front
    of it; None where there is none."""
    for place, stage in enumerate(node.epilogue):
        if stage.operand is None:
            continue
        name = node.inputs[stage.operand]
        same = graph.type(name) == graph.type(node.outputs[0]) and graph.constant(name) is None
        return place if stage.op == Binary("mul") and same else None
    return None


def _gate(graph: Graph, node: Node) -> tuple[Side | None, Side | None, tuple[EpilogueOp, ...]] | None:
    """Both sides of the product that a node computes of two tensors, None each that is none, and the stages behind it.
    None where the node computes no such product."""
    if node.op == Binary("mul"):
        types = {graph.type(name) for name in (*node.inputs[:2], *node.outputs)}
        if len(types) > 1 or len({graph.constant(name) is None for name in node.inputs[:2]}) > 1:
            return None
        a, b = (_side(graph, name) for name in node.inputs[:2])
        return a, b, node.epilogue
    place = _factor(graph, node)
    if place is None:
        return None
    operand = node.epilogue[place].operand
    assert operand is not None
    own, other = node.epilogue[:place], _side(graph, node.inputs[operand])
    if isinstance(node.op, Conv | MatMul):
        return Side(node, None, own, ()), other, node.epilogue[place + 1 :]
    if isinstance(node.op, Activation):
        mine = _side(graph, node.inputs[0], (EpilogueOp(node.op), *own))
        return mine, other, node.epilogue[place + 1 :]
    return None


def _side(graph: Graph, name: str, stages: tuple[EpilogueOp, ...] = ()) -> Side | None:
    """What `name` and the activations `stages` behind it are of a product, None where it is of none."""
    nodes: list[Node] = []
    part: Node | None = None
    while (node := graph.producer(name)) is not None and all(stage.operand is None for stage in node.epilogue):
        nodes.insert(0, node)
        if isinstance(node.op, Conv | MatMul):
            return Side(node, part, (*node.epilogue, *stages), tuple(nodes))
        if isinstance(node.op, Activation):
            stages = (EpilogueOp(node.op), *node.epilogue, *stages)
        elif isinstance(node.op, Slice) and part is None and not node.epilogue:
            part = node
        else:
            return None
        name = node.inputs[0]
    return None


def _gated(graph: Graph, last: Node) -> GatedProducts | None:
    gate = _gate(graph, last)
    if gate is None:
        return None
    one, other, after = gate
    if one is None or other is None or one.product.inputs[0] != other.product.inputs[0]:
        return None
    neighbours = False
    if one.part is None or other.part is None:
        if one.product is other.product or one.part is not other.part:
            return None
        one, other = sorted((one, other), key=_order)
    else:
        joined = _parts(graph, one, other)
        if joined is None:
            return None
        one, other, neighbours = joined
    places = {node.name: place for place, node in enumerate(graph.nodes)}
    names = dict.fromkeys(node.name for node in (*one.nodes, *other.nodes, last))
    nodes = tuple(graph.nodes[place] for place in sorted(places[name] for name in names))
    obstacle = _obstacle(graph, one.product, other.product) or _read(graph, nodes, last)
    return GatedProducts(nodes, one, other, neighbours, last, after, obstacle)


def _order(side: Side) -> tuple[bool, list[str]]:
    """By which two products come in the same order however a graph has them, so that equal layers share a tuning."""
    return not side.stages, [stage.op.function for stage in side.stages if isinstance(stage.op, Activation)]


def _parts(graph: Graph, one: Side, other: Side) -> tuple[Side, Side, bool] | None:
    """The sides in the order of their columns, and whether these are neighbours; None where they are no halves of one
    product."""
    product = one.product
    if product is not other.product or one.part is None or other.part is None:
        return None
    whole = graph.type(product.outputs[0]).shape
    axis = 1 if isinstance(product.op, Conv) else len(whole) - 1
    half = whole[axis] // 2
    forms = {(0, 1): (half, 1), (0, 2): (1, 2)}
    for sides in ((one, other), (other, one)):
        begins = [_columns(side.part, whole, axis, half) for side in sides]
        if begins[0] in forms and forms[begins[0]] == begins[1] and 2 * half == whole[axis]:
            return *sides, begins[0] == (0, 2)
    return None


def _columns(part: Node | None, whole: tuple[int, ...], axis: int, half: int) -> tuple[int, int]:
    """Where a slice of half of the columns, and of all else, begins, and its step; (-1, 0) of another one."""
    assert part is not None
    op = part.op
    assert isinstance(op, Slice)
    wanted = tuple(half if at == axis else extent for at, extent in enumerate(whole))
    others = [(op.begin[at], op.step[at]) for at in range(len(whole)) if at != axis]
    if op.count != wanted or any(each != (0, 1) for each in others):
        return (-1, 0)
    return (op.begin[axis], op.step[axis])


def _obstacle(graph: Graph, one: Node, other: Node) -> str | None:
    """Why two products cannot be one."""
    if one.op != other.op:
        return "the sides of the gate are multiplied in different ways"
    weights = [graph.type(node.inputs[1]).shape for node in (one, other)]
    if weights[0] != weights[1]:
        return f"the sides of the gate have weights {list(weights[0])} and {list(weights[1])}"
    return None


def _read(graph: Graph, nodes: tuple[Node, ...], last: Node) -> str | None:
    """Why what lies between must be stored, None where nothing asks for it."""
    inside = {node.name for node in nodes}
    for node in nodes:
        if node is last:
            continue
        (between,) = node.outputs
        if between in graph.outputs:
            return f"'{between}' is an output of the graph"
        others = [reader.name for reader in graph.consumers(between) if reader.name not in inside]
        if others:
            return f"'{others[0]}' reads '{between}' as well"
    return None
