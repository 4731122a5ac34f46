"""An ONNX model without graphs inside nodes and without sequences, for inputs of given shapes.

Verification cuts a model between any two tensors, and follows roundings from node to node. So what an If, a Loop, a
Scan or a SequenceMap does is written in its place, as often as onnxruntime itself runs it. Sequences are their tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from bolt_build.graph.ir import Array
from bolt_build.graph.nodes.control_flow import CONTROL_FLOW
from bolt_build.graph.onnx_model.onnx_parse import subgraphs
from bolt_build.verify.models.known import giving, made_of_constants, shape_reads

Ask = Callable[[ModelProto, tuple[str, ...]], Mapping[str, Array]]
"""Runs a model and gives the tensors of these names."""

_LISTS = frozenset((
    "SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SequenceAt", "SequenceLength",
    "ConcatFromSequence", "SplitToSequence", "Optional", "OptionalGetElement", "OptionalHasElement",
))  # fmt: skip
_INPUTS = 13
"""From this operator set on Squeeze, Unsqueeze and Split have their axes and sizes as inputs."""


def unrolled(model: ModelProto, ask: Ask) -> ModelProto:
    """The model as it computes for the shapes that `ask` runs it with; itself where it has nothing of the kind.

    Tensors of the model keep their names. Those inside a node begin with its first output and the number of a turn.
    """
    if not has_graphs(model):
        return model
    work = _Work(model)
    while any(map(_is_flow, work.graph.node)):
        work.unroll(ask)
    if any(map(_is_list, work.graph.node)):
        work.spell_lists(ask)
    return work.model


def has_graphs(model: ModelProto) -> bool:
    """Whether nodes of the model have graphs inside them, or sequences."""
    return any(_is_flow(node) or _is_list(node) for node in model.graph.node)


def _is_flow(node: NodeProto) -> bool:
    return node.op_type in CONTROL_FLOW and node.domain in ("", "ai.onnx")


def _is_list(node: NodeProto) -> bool:
    return node.op_type in _LISTS and node.domain in ("", "ai.onnx")


class _Work:
    """A copy of a model that is being changed."""

    def __init__(self, model: ModelProto) -> None:
        self.model = ModelProto()
        self.model.CopyFrom(model)
        self.opset = max(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
        self._made = 0

    @property
    def graph(self) -> GraphProto:
        return self.model.graph

    def constant(self, array: Array) -> str:
        """The name of a new initializer."""
        self._made += 1
        name = f"unrolled/constant{self._made}"
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> NodeProto:
        return helper.make_node(op_type, list(inputs), [output], **attributes)

    def along(self, op_type: str, name: str, axis: int, output: str) -> NodeProto:
        """A Squeeze or Unsqueeze of one axis."""
        if self.opset >= _INPUTS:
            return self.node(op_type, [name, self.constant(np.asarray([axis], np.int64))], output)
        return helper.make_node(op_type, [name], [output], axes=[axis])

    # -- control flow ------------------------------------------------------------------------------------------

    def unroll(self, ask: Ask) -> None:
        """Writes out the outermost graphs inside nodes once."""
        flow, steady = [node for node in self.graph.node if _is_flow(node)], self._steady()
        # What an If that shapes decide leaves may decide another.
        decided = [node for node in flow if node.op_type != "If" or node.input[0] in steady]
        values = self._asked(decided, ask) if decided else {}
        nodes: list[NodeProto] = []
        for node in self.graph.node:
            if node.output and node.output[0] in values and _is_flow(node):
                nodes += self._written(node, values[node.output[0]])
            elif not decided and _is_flow(node):
                nodes += self._either(node)
            else:
                nodes.append(node)
        self._replace(nodes)

    def _steady(self) -> Set[str]:
        """What follows from constants and shapes alone."""
        fixed = {tensor.name for tensor in self.graph.initializer} | {*shape_reads(self.model)}
        return fixed | made_of_constants(self.graph, fixed)

    def _either(self, node: NodeProto) -> Iterable[NodeProto]:
        """Both branches of an If that data decide, and a choice of each result."""
        graphs = {attribute.name: attribute.g for attribute in node.attribute if attribute.HasField("g")}
        then = yield from self._placed(node, graphs["then_branch"], 0, {})
        other = yield from self._placed(node, graphs["else_branch"], 1, {})
        for output, *pair in zip(node.output, then, other, strict=False):
            if output:
                yield self.node("Where", [node.input[0], *pair], output)

    def _asked(self, flow: Iterable[NodeProto], ask: Ask) -> dict[str, Array]:
        """Of each node, by its first output: the condition of an If, or an array with an element a turn."""
        probe = ModelProto()
        probe.CopyFrom(self.model)
        named: dict[str, str] = {}
        own = {node.output[0]: node for node in probe.graph.node if node.output}
        for node in flow:
            key, asked = node.output[0], f"unrolled/asked/{node.output[0]}"
            copy = own[key]
            if node.op_type == "If":
                asked = node.input[0]
            elif node.op_type == "Loop":
                (body,) = subgraphs(_body(copy))
                turn = f"{asked}/turn"
                body.node.append(helper.make_node("Identity", [body.input[0].name], [turn]))
                body.output.append(helper.make_tensor_value_info(turn, TensorProto.INT64, []))
                copy.output.extend([""] * (len(body.output) - 2 - len(copy.output)))
                copy.output.append(asked)
            elif node.op_type == "Scan":
                axis, name = _scan_axes(node)[0], node.input[len(node.input) - _int(node, "num_scan_inputs", 0)]
                probe.graph.node.append(helper.make_node("Shape", [name], [f"{asked}/shape"]))
                index = numpy_helper.from_array(np.asarray(axis, np.int64), f"{asked}/axis")
                probe.graph.initializer.append(index)
                probe.graph.node.append(helper.make_node("Gather", [f"{asked}/shape", f"{asked}/axis"], [asked]))
            else:
                probe.graph.node.append(helper.make_node("SequenceLength", [node.input[0]], [asked]))
            named[key] = asked
        given = ask(giving(probe, tuple(dict.fromkeys(named.values()))), tuple(dict.fromkeys(named.values())))
        counted = {node.output[0] for node in flow if node.op_type in ("Scan", "SequenceMap")}
        return {key: np.arange(int(given[name])) if key in counted else given[name] for key, name in named.items()}

    def _written(self, node: NodeProto, value: Array) -> Iterable[NodeProto]:
        graphs = {attribute.name: attribute.g for attribute in node.attribute if attribute.HasField("g")}
        if node.op_type == "If":
            results = yield from self._placed(node, graphs["then_branch" if value.all() else "else_branch"], 0, {})
            yield from self._identities(results, node.output)
            return
        body, turns = graphs["body"], len(value)
        if node.op_type == "Loop":
            carried = [*node.input[2:]]
            each: list[list[str]] = [[] for _ in body.output[len(carried) + 1 :]]
            for turn in range(turns):
                told = (np.asarray(turn, np.int64), np.asarray(True))
                rows = [len(port.type.tensor_type.shape.dim) == 1 for port in body.input[:2]]
                first = [self.constant(each.reshape(-1) if row else each) for each, row in zip(told, rows, strict=True)]
                given = dict(zip((port.name for port in body.input), [*first, *carried], strict=True))
                results = yield from self._placed(node, body, turn, given)
                carried = results[1 : len(carried) + 1]
                _gather(each, results[len(carried) + 1 :])
            yield from self._identities(carried, node.output)
            yield from self._stacked(each, node.output[len(carried) :], [0] * len(each), [0] * len(each))
        elif node.op_type == "Scan":
            yield from self._scan(node, body, turns)
        else:
            yield from self._map(node, body, turns)

    def _scan(self, node: NodeProto, body: GraphProto, turns: int) -> Iterable[NodeProto]:
        scanned = _int(node, "num_scan_inputs", 0)
        states, sources = [*node.input[: len(node.input) - scanned]], node.input[len(node.input) - scanned :]
        axes, back = _scan_axes(node), _ints(node, "scan_input_directions", scanned)
        each: list[list[str]] = [[] for _ in body.output[len(states) :]]
        for turn in range(turns):
            slices = [f"{node.output[0]}/{turn}/slice{index}" for index in range(scanned)]
            for name, axis, reverse, part in zip(sources, axes, back, slices, strict=True):
                at = self.constant(np.asarray(turns - 1 - turn if reverse else turn, np.int64))
                yield self.node("Gather", [name, at], part, axis=axis)
            given = dict(zip((port.name for port in body.input), [*states, *slices], strict=True))
            results = yield from self._placed(node, body, turn, given)
            states = results[: len(states)]
            _gather(each, results[len(states) :])
        yield from self._identities(states, node.output)
        out = (_ints(node, f"scan_output_{what}", len(each)) for what in ("axes", "directions"))
        yield from self._stacked(each, node.output[len(states) :], *out)

    def _map(self, node: NodeProto, body: GraphProto, turns: int) -> Iterable[NodeProto]:
        """Inputs behind the first are taken for sequences where nothing says that they are tensors."""
        tensors = {value.name for value in (*self.graph.input, *self.graph.initializer)}
        tensors |= {name for each in self.graph.node if not _gives_lists(each) for name in each.output}
        each: list[list[str]] = [[] for _ in body.output]
        for turn in range(turns):
            at, picked = self.constant(np.asarray(turn, np.int64)), list(node.input)
            for index, name in enumerate(node.input):
                if index == 0 or name not in tensors:
                    picked[index] = f"{node.output[0]}/{turn}/part{index}"
                    yield self.node("SequenceAt", [name, at], picked[index])
            given = dict(zip((port.name for port in body.input), picked, strict=True))
            _gather(each, (yield from self._placed(node, body, turn, given)))
        for output, names in zip(node.output, each, strict=False):
            if output:
                yield self.node("SequenceConstruct", names, output)

    def _placed(
        self, node: NodeProto, graph: GraphProto, turn: int, given: Mapping[str, str]
    ) -> Generator[NodeProto, None, list[str]]:
        """The nodes of a graph inside `node` under names of their own. Returns what its outputs are called."""
        prefix = f"{node.output[0]}/{turn}/"
        names = dict(given)
        for tensor in graph.initializer:
            names[tensor.name] = prefix + tensor.name
            copy = TensorProto()
            copy.CopyFrom(tensor)
            copy.name = names[tensor.name]
            self.graph.initializer.append(copy)
        names.update((name, prefix + name) for inner in graph.node for name in inner.output if name)
        for inner in graph.node:
            made = _renamed(inner, names)
            made.name = made.name and prefix + made.name  # onnxruntime takes no two nodes of one name
            yield made
        return [names.get(port.name, port.name) for port in graph.output]

    def _identities(self, sources: Sequence[str], outputs: Sequence[str]) -> Iterable[NodeProto]:
        for source, output in zip(sources, outputs, strict=False):
            if output:
                yield self.node("Identity", [source], output)

    def _stacked(
        self, each: Sequence[list[str]], outputs: Sequence[str], axes: Sequence[int], back: Sequence[int]
    ) -> Iterable[NodeProto]:
        """What turns gave, along a new axis each. What is wanted of turns that there were none of stays undefined."""
        for names, output, axis, reverse in zip(each, outputs, axes, back, strict=False):
            if output and names:
                parts = [f"{output}/{index}" for index in range(len(names))]
                for name, part in zip(names[::-1] if reverse else names, parts, strict=True):
                    yield self.along("Unsqueeze", name, axis, part)
                yield self.node("Concat", parts, output, axis=axis)

    # -- sequences ---------------------------------------------------------------------------------------------

    def spell_lists(self, ask: Ask) -> None:
        """Writes out what is done with sequences; nothing of them is left."""
        probe, names = ModelProto(), list[str]()
        probe.CopyFrom(self.model)
        for node in self.graph.node:
            if node.op_type == "SplitToSequence":
                asked = f"unrolled/asked/{node.output[0]}"
                probe.graph.node.append(helper.make_node("Shape", [node.input[0]], [asked]))
                names += [asked, *node.input[1:2]]
            elif node.op_type in _PLACES and len(node.input) > _PLACES[node.op_type]:
                names.append(node.input[_PLACES[node.op_type]])
        wanted = tuple(dict.fromkeys(filter(None, names)))
        fixed = {
            tensor.name: numpy_helper.to_array(tensor) for tensor in self.graph.initializer if tensor.name in wanted
        }
        rest = tuple(name for name in wanted if name not in fixed)
        values = {**fixed, **(ask(giving(probe, rest), rest) if rest else {})}
        lists: dict[str, list[str]] = {}
        nodes: list[NodeProto] = []
        for node in self.graph.node:
            if _is_list(node) or (node.op_type == "Identity" and node.input[0] in lists):
                nodes += self._spelled(node, lists, values)
            else:
                nodes.append(node)
        self._replace(nodes)

    def _spelled(
        self, node: NodeProto, lists: dict[str, list[str]], values: Mapping[str, Array]
    ) -> Iterable[NodeProto]:
        kind, output = node.op_type, node.output[0]
        tensors = lists.get(node.input[0], []) if node.input else []
        place = _PLACES.get(kind, len(node.input))
        at = int(values[node.input[place]].reshape(-1)[0]) if place < len(node.input) and node.input[place] else None
        if kind in ("SequenceConstruct", "SequenceEmpty"):
            lists[output] = list(node.input)
        elif kind == "SequenceInsert":
            end = len(tensors) if at is None else at if at >= 0 else at + len(tensors)
            lists[output] = [*tensors[:end], node.input[1], *tensors[end:]]
        elif kind == "SequenceErase":
            gone = (-1 if at is None else at) % len(tensors)
            lists[output] = [*tensors[:gone], *tensors[gone + 1 :]]
        elif kind == "SequenceAt":
            yield self.node("Identity", [tensors[at or 0]], output)
        elif kind == "SequenceLength":
            yield self.node("Identity", [self.constant(np.asarray(len(tensors), np.int64))], output)
        elif kind == "OptionalHasElement":
            yield self.node("Identity", [self.constant(np.asarray(bool(node.input)))], output)
        elif kind == "SplitToSequence":
            yield from self._split(node, lists, values)
        elif kind == "ConcatFromSequence":
            axis = _int(node, "axis", 0)
            if _int(node, "new_axis", 0):
                parts = [f"{output}/{index}" for index in range(len(tensors))]
                for name, part in zip(tensors, parts, strict=True):
                    yield self.along("Unsqueeze", name, axis, part)
                tensors = parts
            yield self.node("Concat", tensors, output, axis=axis)
        elif node.input[0] in lists:
            lists[output] = tensors
        else:
            yield self.node("Identity", [node.input[0]], output)

    def _split(self, node: NodeProto, lists: dict[str, list[str]], values: Mapping[str, Array]) -> Iterable[NodeProto]:
        output, axis = node.output[0], _int(node, "axis", 0)
        extent = int(values[f"unrolled/asked/{output}"][axis])
        given = len(node.input) > 1 and node.input[1] != ""
        sizes = values[node.input[1]] if given else np.asarray(1, np.int64)
        squeezes = not (given and (sizes.ndim or sizes != 1)) and not _int(node, "keepdims", 1)
        if not sizes.ndim:
            begins = np.arange(0, extent, int(sizes))
            sizes = np.minimum(int(sizes), extent - begins)
        parts = [f"{output}/{index}" for index in range(len(sizes))]
        if self.opset >= _INPUTS:
            inputs = [node.input[0], self.constant(np.asarray(sizes, np.int64))]
            yield helper.make_node("Split", inputs, parts, axis=axis)
        else:
            yield helper.make_node("Split", [node.input[0]], parts, axis=axis, split=[int(size) for size in sizes])
        if squeezes:
            for part in parts:
                yield self.along("Squeeze", part, axis, f"{part}/squeezed")
            parts = [f"{part}/squeezed" for part in parts]
        lists[output] = parts

    def _replace(self, nodes: Sequence[NodeProto]) -> None:
        del self.graph.node[:]
        self.graph.node.extend(nodes)


_PLACES = {"SequenceInsert": 2, "SequenceErase": 1, "SequenceAt": 1}
"""Which input is a position."""


def _gives_lists(node: NodeProto) -> bool:
    return node.op_type == "SequenceMap" or (
        _is_list(node) and node.op_type not in ("SequenceAt", "ConcatFromSequence")
    )


def _gather(each: Sequence[list[str]], names: Sequence[str]) -> None:
    for found, name in zip(each, names, strict=True):
        found.append(name)


def _renamed(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    for of in (copy.input, copy.output):
        of[:] = [names.get(name, name) for name in of]
    for attribute in copy.attribute:
        for graph in subgraphs(attribute):
            own = {port.name for port in (*graph.input, *graph.initializer)}
            own |= {name for inner in graph.node for name in inner.output}
            seen = {name: new for name, new in names.items() if name not in own}
            inner_nodes = [_renamed(inner, seen) for inner in graph.node]
            del graph.node[:]
            graph.node.extend(inner_nodes)
            for port in graph.output:
                port.name = seen.get(port.name, port.name)
    return copy


def _body(node: NodeProto) -> AttributeProto:
    found: AttributeProto = next(attribute for attribute in node.attribute if attribute.name == "body")
    return found


def _scan_axes(node: NodeProto) -> list[int]:
    return _ints(node, "scan_input_axes", _int(node, "num_scan_inputs", 0))


def _int(node: NodeProto, name: str, default: int) -> int:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == name), default)


def _ints(node: NodeProto, name: str, count: int) -> list[int]:
    return next(([*attribute.ints] for attribute in node.attribute if attribute.name == name), [0] * count)
