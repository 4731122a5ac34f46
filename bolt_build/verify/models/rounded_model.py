"""The model with switches: a layer's results rounded to what an engine stores them in, or kept wide as the model has
them. What rounding does to the outputs is so found without an engine, and without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array
from bolt_build.graph.ops.lines.lines import TopElements
from bolt_build.graph.ops.moves.shape import Convert
from bolt_build.graph.ops.norms.row_sum import RowSum
from bolt_build.graph.ops.products.gated import Gated
from bolt_build.planner.engine_plan import BatchPlan
from bolt_build.verify.taps import Tap, taps_of

LARGEST = {DType.F16: 65504.0, DType.BF16: 3.3895313892515355e38}
"""The largest number of a half type."""
_SPLIT = 65537.0
"""2^16 + 1: what a number of fp32 is multiplied with to be split into its first 8 bits and the rest (Dekker, 1971)."""


@dataclass(frozen=True)
class Layer:
    """A step that computes in the half type `narrow`; `names` are the ONNX nodes that it stands for, of which `own`
    names the one that leaves its results: of a kernel for two products that is the second."""

    step: int
    name: str
    names: tuple[str, ...]
    own: str
    narrow: DType


def layers_of(plan: BatchPlan) -> tuple[Layer, ...]:
    """The steps of a plan that compute in half precision, in execution order. Views and conversions are none."""
    found = []
    for step in plan.steps:
        types = [tensor.operand.format.dtype for tensor in (*step.inputs, *step.outputs)]
        narrow = next((dtype for dtype in LARGEST if dtype in types), None)
        if narrow is not None and not step.view and not isinstance(step.problem.op, Convert):
            names = step.covers or (step.name,)
            several = len(step.problem.op.sequence) > 1 or isinstance(step.problem.op, RowSum | Gated | TopElements)
            own = names[-1] if several else names[0]
            found.append(Layer(step.index, step.name, names, own, narrow))
    return tuple(found)


class RoundedModel:
    """`model`, whose numbers are all fp32, with one switch for each layer of `plan`.

    `graph` is the model to run. A layer's factors and what it reads are rounded to its half type, and its results to
    what the plan stores them in, unless its switch says that it is wide. Activations beyond the half type become
    infinite, as they do in an engine. `sizes` names, by tensor of the plan, an output with its largest magnitude.
    """

    def __init__(self, model: ModelProto, plan: BatchPlan) -> None:
        self.layers = {layer.step: layer for layer in layers_of(plan)}
        self.graph = ModelProto()
        self.graph.CopyFrom(model)
        self._floats = _floats(model.graph, plan)
        self._owners = _owners(model.graph, plan)
        self._constants = {each.name: each for each in model.graph.initializer}
        self._stored = {tap.tensor: tap for tap in reversed(taps_of(plan)) if tap.step in self.layers and not tap.view}
        self.sizes = {name: f"{_PREFIX}size:{name}" for name in self._floats if name in self._owners.made}
        nodes = [made for node in model.graph.node for made in self._rewritten(node)]
        graph = self.graph.graph
        del graph.node[:]
        graph.node.extend([*self._shared(), *nodes])
        for step in self.layers:
            graph.input.append(helper.make_tensor_value_info(_switch(step), TensorProto.BOOL, []))
        for name in self.sizes.values():
            graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))

    def feeds(self, inputs: Mapping[str, Array], wide: frozenset[int]) -> dict[str, Array]:
        """What to run the graph on, the layers of the steps `wide` kept wide."""
        return {**inputs, **{_switch(step): np.asarray(step in wide) for step in self.layers}}

    def readers(self, tensor: str) -> frozenset[int]:
        """The layers that read a tensor of the plan, also behind what only gives it another shape."""
        return self._owners.readers(tensor) & frozenset(self.layers)

    def maker(self, tensor: str) -> int | None:
        """The layer that leaves a tensor, None where none of half precision does."""
        tap = self._stored.get(tensor)
        return None if tap is None or tap.stored not in LARGEST else tap.step

    @staticmethod
    def _shared() -> Iterator[NodeProto]:
        split = helper.make_tensor("split", TensorProto.FLOAT, [], [_SPLIT])
        yield helper.make_node("Constant", [], [f"{_PREFIX}split"], value=split)

    def _rewritten(self, node: NodeProto) -> Iterator[NodeProto]:
        """The node reading what its layer reads, and behind it what is stored of its results."""
        owner = self._owners.of(node)
        changed = NodeProto()
        changed.CopyFrom(node)
        if owner in self.layers:
            for at, name in enumerate(node.input):
                if self._is_read_narrow(name, owner) or self._is_factor(name, node):
                    read = f"{_PREFIX}{name}:{owner}:{node.output[0]}:{at}"
                    yield from _chosen(name, read, self.layers[owner])
                    changed.input[at] = read
        ends = [
            name for name in node.output if self.maker(name) is not None and self._owners.of(node) == self.maker(name)
        ]
        for at, name in enumerate(changed.output):
            if name in ends:
                changed.output[at] = f"{_PREFIX}{name}:whole"
        yield changed
        for name in ends:
            yield from _chosen(f"{_PREFIX}{name}:whole", name, self.layers[self._stored[name].step])
        for name in node.output:
            if name in self.sizes:
                source = f"{_PREFIX}{name}:whole" if name in ends else name
                yield helper.make_node("Abs", [source], [f"{self.sizes[name]}:each"])
                axes = f"{self.sizes[name]}:each"
                yield helper.make_node("ReduceMax", [axes], [self.sizes[name]], keepdims=0)

    def _is_read_narrow(self, name: str, owner: int) -> bool:
        """True for numbers that another layer, or the caller, leaves."""
        return name in self._floats and self._owners.made.get(name) != owner

    def _is_factor(self, name: str, node: NodeProto) -> bool:
        """True for weights that the engine stores in half precision."""
        held = self._constants.get(name)
        factors = node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul")
        return factors and held is not None and held.data_type == TensorProto.FLOAT and len(held.dims) > 1


_PREFIX = "rounded:"


def _switch(step: int) -> str:
    return f"{_PREFIX}wide:{step}"


def _chosen(name: str, to: str, layer: Layer) -> Iterator[NodeProto]:
    """`to` is `name` as it is where the layer is wide, otherwise rounded to its half type."""
    rounded = f"{to}:rounded"
    if layer.narrow is DType.F16:
        yield helper.make_node("Cast", [name], [f"{to}:half"], to=TensorProto.FLOAT16)
        yield helper.make_node("Cast", [f"{to}:half"], [rounded], to=TensorProto.FLOAT)
    else:
        # Without a cast, which older operator sets have not: the first 8 bits, to nearest.
        yield helper.make_node("Mul", [name, f"{_PREFIX}split"], [f"{to}:times"])
        yield helper.make_node("Sub", [f"{to}:times", name], [f"{to}:rest"])
        yield helper.make_node("Sub", [f"{to}:times", f"{to}:rest"], [rounded])
    yield helper.make_node("Where", [_switch(layer.step), name, rounded], [to])


class _Owners:
    """Which step of the plan computes each node of the model, and who makes and reads each tensor."""

    def __init__(self, graph: GraphProto, taps: tuple[Tap, ...]) -> None:
        makers = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
        self._of: dict[str, int] = {}
        self.made: dict[str, int] = {}
        """The step that a tensor of the plan comes from."""
        for tap in taps:
            if tap.tensor in self.made or tap.tensor not in makers:
                continue
            self.made[tap.tensor] = tap.step
            left = [tap.tensor]
            while left:
                at = makers.get(left.pop())
                if at is not None and graph.node[at].output[0] not in self._of:
                    self._of[graph.node[at].output[0]] = tap.step
                    left += graph.node[at].input
        self._views = {tap.tensor for tap in taps if tap.view}
        self._consumers: dict[str, list[NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self._consumers.setdefault(name, []).append(node)

    def of(self, node: NodeProto) -> int:
        """The node's step, -1 for a node that nothing of the plan needs."""
        return self._of.get(node.output[0], -1)

    def readers(self, tensor: str) -> frozenset[int]:
        found, left, seen = set[int](), [tensor], set[str]()
        while left:
            for node in self._consumers.get(left.pop(), ()):
                found.add(self.of(node))
                behind = [name for name in node.output if name in self._views and name not in seen]
                seen.update(behind)
                left += behind
        return frozenset(found)


def _owners(graph: GraphProto, plan: BatchPlan) -> _Owners:
    return _Owners(graph, taps_of(plan))


def _floats(graph: GraphProto, plan: BatchPlan) -> frozenset[str]:
    """Tensors of the plan and inputs of the model that hold fp32 numbers."""
    ports = {each.name for each in graph.input if each.type.tensor_type.elem_type == TensorProto.FLOAT}
    return frozenset(ports | {tap.tensor for tap in taps_of(plan) if tap.stored.is_float})
