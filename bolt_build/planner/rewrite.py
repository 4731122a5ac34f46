"""An editable view of a graph for passes: nodes and values by name, edges kept up to date, order kept stable."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, Constant, Graph, Node, Stored, TensorType, Value, graph_of


class GraphEditor:
    """Collects changes to `graph`; `finish` gives the new graph. The graph itself never changes.

    A node that replaces another takes its place in the order, so a pass does not move work about.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values = {value.name: value for value in graph.values}
        self._nodes: dict[str, Node] = {}
        self._place: dict[str, tuple[int, int]] = {}
        self._producer: dict[str, str] = {}
        self._readers: dict[str, dict[str, None]] = {}
        self._outputs = frozenset(graph.outputs)
        self._added = 0
        self.changed = False
        for index, node in enumerate(graph.nodes):
            self._link(node, (index, 0))

    def nodes(self) -> tuple[Node, ...]:
        """The nodes now, in order."""
        return tuple(sorted(self._nodes.values(), key=lambda node: self._place[node.name]))

    def node(self, name: str) -> Node | None:
        return self._nodes.get(name)

    def type(self, value: str) -> TensorType:
        return self._values[value].type

    def constant(self, value: str) -> Array | None:
        constant = self._values[value].constant
        return None if constant is None else constant.array

    def stored(self, value: str) -> Stored | None:
        """The integers that the model has a constant stored as, None where there are none."""
        constant = self._values[value].constant
        return None if constant is None else constant.stored

    def is_constant(self, value: str) -> bool:
        return self._values[value].constant is not None

    def is_output(self, value: str) -> bool:
        return value in self._outputs

    def is_input(self, value: str) -> bool:
        return value in self._graph.inputs

    def producer(self, value: str) -> Node | None:
        name = self._producer.get(value)
        return None if name is None else self._nodes[name]

    def readers(self, value: str) -> tuple[Node, ...]:
        """Nodes that read the value, each once, in order."""
        names = self._readers.get(value, {})
        return tuple(sorted((self._nodes[n] for n in names), key=lambda node: self._place[node.name]))

    def not_private(self, *values: str) -> str | None:
        """None where exactly one node reads each value, once, and nobody else does; otherwise why not."""
        return next((reason for value in values if (reason := self._not_private(value)) is not None), None)

    def _not_private(self, value: str) -> str | None:
        if self.is_output(value):
            return f"'{value}' is a graph output"
        if len(self._readers.get(value, {})) > 1:
            return f"'{value}' is read by {len(self._readers[value])} nodes"
        readers = self.readers(value)
        if readers and readers[0].inputs.count(value) > 1:
            return f"'{readers[0].name}' reads '{value}' twice"
        return None

    def new_value(self, name: str, type: TensorType) -> str:
        """A synthetic value called `name`, or that with a number behind it where it is taken."""
        free = _free(name, self._values)
        self._values[free] = Value(free, type, synthetic=True)
        return free

    def new_constant(self, name: str, array: Array, dtype: DType, stored: Stored | None = None) -> str:
        """A synthetic constant; `array` has the type of `dtype`, or that of `arrays.held_dtype`, and is what integers,
        `stored`, stand for. Takes the name of one that nobody reads any more: one that nobody has read yet may wait for
        its node."""
        known = self._values.get(name)
        left = name in self._readers and not self._readers[name]
        unread = left and known is not None and known.synthetic and known.constant is not None
        free = name if unread and not self.is_output(name) else _free(name, self._values)
        self._values[free] = Value(free, TensorType(dtype, array.shape), Constant(array, stored), synthetic=True)
        return free

    def free_node_name(self, name: str, waiting: Container[str] = ()) -> str:
        """`name`, or that with a number behind it where a node has it, or one that is still to be added."""
        free, count = _free(name, self._nodes), 0
        while free in waiting:
            count += 1
            free = _free(f"{name}.{count}", self._nodes)
        return free

    def make_constant(self, value: str, array: Array) -> None:
        """The value, whose producer has been removed, is `array` from now on."""
        self._values[value] = replace(self._values[value], constant=Constant(array))
        self.changed = True

    def remove(self, node: Node) -> None:
        self._unlink(node)
        self.changed = True

    def replace(self, old: Node, *new: Node) -> None:
        """`new` in the place of `old`. One whose name another node has gets a free one: of two nodes that are added
        together neither knew the other's."""
        place = self._unlink(old)
        for node in new:
            self._added += 1
            apart = replace(node, name=_free(node.name, self._nodes)) if node.name in self._nodes else node
            self._link(apart, (place[0], self._added))
        self.changed = True

    def prune(self, values: Iterable[str]) -> tuple[Node, ...]:
        """Removes the nodes behind `values` that nobody reads any more; they are returned in order."""
        waiting, removed = list(values), []
        while waiting:
            node = self.producer(waiting.pop())
            if node is None or any(self._readers.get(o) or self.is_output(o) for o in node.outputs):
                continue
            removed.append((self._place[node.name], node))
            self.remove(node)
            waiting += node.inputs
        return tuple(node for _, node in sorted(removed, key=lambda item: item[0]))

    def redirect(self, old: str, new: str) -> None:
        """Every node that reads `old` reads `new` instead."""
        for reader in self.readers(old):
            inputs = tuple(new if name == old else name for name in reader.inputs)
            place = self._unlink(reader)
            self._link(replace(reader, inputs=inputs), place)
        self.changed = True

    def stand_in(self, old: str, new: str) -> str | None:
        """Removes the producer of `old`, whose values are those of `new`: readers take `new` instead.

        A graph output keeps its name, and so does an ONNX tensor beside a synthetic one: then `new` is renamed.
        Returns None, or why it is impossible, with nothing changed.
        """
        keep_old = self.is_output(old)
        if keep_old:
            if self.is_output(new):
                return f"'{old}' and '{new}' are both graph outputs"
            if self.producer(new) is None:
                what = "a constant" if self.is_constant(new) else "a graph input"
                return f"'{old}' is a graph output and '{new}' is {what}"
        named = not self._values[old].synthetic and self._values[new].synthetic
        producer = self._producer.get(old)
        if producer is not None:
            self.remove(self._nodes[producer])
        self.redirect(old, new)
        if keep_old or (named and self.producer(new) is not None and not self.is_output(new)):
            self._rename(new, old)
        return None

    def finish(self) -> Graph:
        """The new graph; the old one where nothing changed."""
        if not self.changed:
            return self._graph
        old = self._graph
        return graph_of(old.name, old.batch, old.inputs, old.outputs, self._values.values(), self.nodes(), old.dims)

    def _rename(self, old: str, new: str) -> None:
        """The producer of `old` produces `new`, which takes all of its readers."""
        producer = self._nodes[self._producer[old]]
        outputs = tuple(new if name == old else name for name in producer.outputs)
        place = self._unlink(producer)
        self._link(replace(producer, outputs=outputs), place)
        self.redirect(old, new)

    def _link(self, node: Node, place: tuple[int, int]) -> None:
        self._nodes[node.name] = node
        self._place[node.name] = place
        for output in node.outputs:
            self._producer[output] = node.name
        for name in node.inputs:
            self._readers.setdefault(name, {})[node.name] = None

    def _unlink(self, node: Node) -> tuple[int, int]:
        del self._nodes[node.name]
        for output in node.outputs:
            if self._producer.get(output) == node.name:
                del self._producer[output]
        for name in dict.fromkeys(node.inputs):
            del self._readers[name][node.name]
        return self._place.pop(node.name)


def joined(*covers: Iterable[str]) -> tuple[str, ...]:
    """ONNX nodes of several nodes that become one, each once."""
    return tuple(dict.fromkeys(name for names in covers for name in names))


def _free(name: str, taken: Iterable[str]) -> str:
    names = taken if isinstance(taken, dict) else set(taken)
    if name not in names:
        return name
    number = 2
    while f"{name}.{number}" in names:
        number += 1
    return f"{name}.{number}"
