"""Cuts an ONNX model where an engine shows its tensors: each observed tensor as a function of the nearest ones before.

A `Piece` is one graph for a group of taps, which onnxruntime computes at once. Every tap has nodes of its own in it:
those of the model between its sources and itself. What is made of constants alone stands there once for all taps:
exporters write thousands of nodes for a mask that every layer reads. What the engine holds in the sources is fed, so
that errors of earlier layers do not count. Beside each tensor comes the variance that rounding gives it
(`verify.rounding`). All is computed in fp32, whatever the model's own floating-point type is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import replace

import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array
from bolt_build.verify.emitter import EXACT, Emitter, unused_prefix
from bolt_build.verify.models.duplicates import first_of
from bolt_build.verify.models.known import made_of_constants
from bolt_build.verify.models.piece import Care, Piece, Wanted
from bolt_build.verify.models.real_numbers import (
    REAL,
    in_fp32,
    is_own,
    is_real,
    makes_others,
    makes_real,
    whole_outputs,
)
from bolt_build.verify.rounding.rounding import (
    OF_CONSTANTS,
    Roundings,
    Variance,
    Work,
    roundings_of,
    variance_of,
)
from bolt_build.verify.rounding.rounding_rules import in_proportion, is_exact, variances_of
from bolt_build.verify.rounding.tried import tried
from bolt_build.verify.taps import Source, Tap
from bolt_build.verify.tolerance import coarser

ROWS = 8
"""Rows of a large batch whose variances are computed; those of the others follow from them (`verify.judgement`)."""
BY_ROWS = frozenset((
    "Conv", "BatchNormalization", "Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Erf",
    "Softplus", "Gelu", "Swish", "Neg", "Abs", "Exp", "Sqrt", "Add", "Sub", "Mul", "Div", "MaxPool", "AveragePool",
    "GlobalAveragePool", "GlobalMaxPool", "Identity",
))  # fmt: skip
"""Operators that treat every row of the first axis by itself."""
_KEEPS_ROWS = ("Cast", "CastLike", "Dropout", "Identity", "Reshape", "Where")
"""Operators that leave a softmax's rows what they are where attention has them."""


class CutModel:
    """A model without local functions as `Piece`s. External data stays where it is. Of tensors that are `known`, such
    as shapes, the numbers are taken as constants."""

    def __init__(self, model: ModelProto, known: Mapping[str, Array]) -> None:
        graph = model.graph
        self._model = model
        self._first = first_of(graph)
        self._initializers = {item.name: item for item in graph.initializer}
        self._initializers |= {name: numpy_helper.from_array(array, name) for name, array in known.items()}
        self._inputs = {value.name: value for value in graph.input if value.name not in self._initializers}
        made = ((name, index) for index, node in enumerate(graph.node) for name in node.output if name)
        self._makers = {name: index for name, index in made if name not in known}
        self._prefix = unused_prefix([*self._initializers, *self._inputs, *self._makers])
        self._steady = made_of_constants(graph, self._initializers)
        self._opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)

    @property
    def tensors(self) -> frozenset[str]:
        """The names of all that nodes make, and of the initializers: an output may be one."""
        return frozenset((*self._makers, *self._initializers))

    def key(self, taps: Sequence[Tap], held: Mapping[str, Array]) -> Hashable:
        """Equal where `piece` gives the same graph but for how many rows there are."""
        values = {source.value: held[source.value].shape for tap in taps for source in tap.sources}
        rows = tuple(values[source.value][:1] == tap.shape[:1] for tap in taps for source in tap.sources)
        asked = tuple((tap.tensor, tap.value, tap.sources, tap.computed, tap.roundings, tap.shape[1:]) for tap in taps)
        return asked, rows, tuple((value, shape[1:]) for value, shape in values.items())

    def piece(
        self, taps: Sequence[Tap], held: Mapping[str, Array], ports: Mapping[str, str], care: Care = Care.FIRST_ROWS
    ) -> Piece:
        """The graph for `taps`. `held` are the engine's values by name, for their shapes and types; `ports` says which
        of them is the model's input of a name."""
        return _Cut(self, held, ports, care).piece(taps)

    def acts_by_rows(self, nodes: Iterable[NodeProto], shape: tuple[int, ...]) -> bool:
        """True where the first axis passes through the nodes row by row."""
        return (
            self._opset >= 10
            and len(shape) > 1
            and all(node.op_type in BY_ROWS and self._keeps_rows(node, len(shape)) for node in nodes)
            and all(self._steady.isdisjoint(node.input) for node in nodes)
        )

    def is_steady(self, tensor: str) -> bool:
        """True of what nodes make of constants alone."""
        return tensor in self._steady

    def is_of_shares(self, tensor: str) -> bool:
        """True of what a softmax leaves, and of the same behind what keeps its rows."""
        node = self._model.graph.node[self._makers[tensor]] if tensor in self._makers else None
        if node is None or not is_own(node):
            return False
        return node.op_type == "Softmax" or (node.op_type in _KEEPS_ROWS and any(map(self.is_of_shares, node.input)))

    def _keeps_rows(self, node: NodeProto, rank: int) -> bool:
        """True where no constant of the node lies along the first axis."""
        if node.op_type in ("Conv", "BatchNormalization"):
            return all(name in self._initializers for name in node.input[1:])
        extents = [self._initializers[name].dims for name in node.input if name in self._initializers]
        return all(len(dims) < rank or dims[0] == 1 for dims in extents)

    def _between(
        self, tensor: str, stops: Set[str], *, shared: bool
    ) -> tuple[list[NodeProto], set[str], dict[str, str]]:
        """The nodes that make `tensor` from `stops`, in the model's order, without those of constants alone where these
        are `shared`; the model's inputs that they read; and what they read that is the same as one of `stops`."""
        seen, reached, same = set(), set(), dict[str, str]()
        shown = {self._first.get(name, name): name for name in stops}
        waiting = [tensor]
        while waiting:
            name = waiting.pop()
            if name in stops or name in self._initializers or not name or (shared and name in self._steady):
                continue
            if name != tensor and self._first.get(name, name) in shown:
                same[name] = shown[self._first.get(name, name)]
            elif name in self._inputs:
                reached.add(name)
            elif self._makers[name] not in seen:
                seen.add(self._makers[name])
                waiting += self._model.graph.node[self._makers[name]].input
        return [self._model.graph.node[index] for index in sorted(seen)], reached, same


class _Cut:
    """One piece in the making."""

    def __init__(self, model: CutModel, held: Mapping[str, Array], ports: Mapping[str, str], care: Care) -> None:
        self._of, self._held, self._ports, self._care = model, held, ports, care
        self._emit = Emitter(model._opset, model._prefix)
        self._fed: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._used: dict[str, TensorProto] = {}
        self._steady = _Segment(self, OF_CONSTANTS, {}, set(), False)

    def piece(self, taps: Sequence[Tap]) -> Piece:
        wanted = tuple(self._wanted(tap) for tap in taps)
        graph = self._emit.graph("piece")
        graph.initializer.extend(self._used.values())
        for value, name in self._fed.items():
            array = self._held[value]
            kind = TensorProto.FLOAT if is_real(array) else helper.np_dtype_to_tensor_dtype(array.dtype)
            # Rows are counted by name: another batch is another number of them.
            shape = (f"rows{array.shape[0]}", *array.shape[1:]) if array.shape else ()
            graph.input.append(helper.make_tensor_value_info(name, kind, shape))
        names = dict.fromkeys(name for item in wanted for name in item.names)
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        model = helper.make_model(graph, opset_imports=self._of._model.opset_import, ir_version=8)
        return Piece(model, tuple(self._fed.items()), wanted)

    def _wanted(self, tap: Tap) -> Wanted:
        # What is only converted keeps its name: it is made from itself.
        if tap.tensor in {source.tensor for source in tap.sources}:
            (source,) = (source for source in tap.sources if source.tensor == tap.tensor)
            tensor = self._emit.add("Identity", [self._feed(source.value)])
            return Wanted(tap, tensor, None, (), False, roundings_of(tap))
        known = {source.tensor: source.value for source in tap.sources}
        # A source that is itself made of constants is what the engine holds, and so is what is made of it.
        shared = not any(map(self._of.is_steady, known))
        nodes, reached, same = self._of._between(tap.tensor, known.keys() - {tap.tensor}, shared=shared)
        known |= {name: known[shown] for name, shown in same.items()}
        known |= {name: self._ports[name] for name in reached if name in self._ports}
        by_rows = (
            self._care is Care.FIRST_ROWS
            and self._of.acts_by_rows(nodes, tap.shape)
            and all(self._held[value].shape[:1] == tap.shape[:1] for value in known.values())
        )
        # What counts or chooses is exact, and cannot be pushed by a rounding.
        real = {name for name, value in known.items() if is_real(self._held[value])}
        feeds = {name: self._feed(value) for name, value in known.items()}
        shares = {feed for name, feed in feeds.items() if self._of.is_of_shares(name)}
        segment = _Segment(self, roundings_of(tap), feeds, real, by_rows, shares, self._care is not Care.FIRST_ROWS)
        for source in tap.sources:
            segment.read(source, tap.computed)
        for node in nodes:
            segment.add(node)
        tensor = segment.name(tap.tensor)
        if tensor in self._fed.values() or tensor == tap.tensor:  # inputs and constants are no outputs
            tensor = self._emit.add("Identity", [tensor])
        variance, roundings = segment.variances.get(segment.name(tap.tensor)), roundings_of(tap)
        if self._care is Care.TRIED and variance is not None:
            most = tried(self._emit, segment.nodes, segment.real, tensor, len(tap.shape), tap.computed, segment.floors)
            variance = variance if most is None else self._emit.add("Min", [variance, most])
        return Wanted(tap, tensor, variance, tuple(segment.counts), segment.computed, roundings)

    def _feed(self, value: str) -> str:
        if value not in self._fed:
            self._fed[value] = self._emit.fresh()
        return self._fed[value]

    def constant(self, name: str) -> str:
        """An initializer of the model, in fp32 where it is of a floating-point type."""
        if name not in self._constants:
            item = self._of._initializers[name]
            self._used[name] = item
            narrow = item.data_type in REAL and item.data_type != TensorProto.FLOAT
            self._constants[name] = self._emit.add("Cast", [name], to=TensorProto.FLOAT) if narrow else name
        return self._constants[name]

    def steady(self, tensor: str) -> tuple[str, bool, Variance]:
        """What nodes make of constants: its name, whether it is of a floating-point type, and its variance."""
        made = self._steady
        nodes, _, same = self._of._between(tensor, made.known, shared=False)
        made.share(same)
        for node in nodes:
            made.add(node)
        name = made.name(tensor)
        return name, name in made.constants, made.variances.get(name)

    @property
    def initializers(self) -> Mapping[str, TensorProto]:
        return self._of._initializers

    @property
    def emit(self) -> Emitter:
        return self._emit


class _Segment:
    """The nodes of one tap, or those of constants: names that are its own, and the variance of each tensor; `by_rows`:
    of its first rows. `real` are the sources of a floating-point type."""

    def __init__(
        self, cut: _Cut, roundings: Roundings, sources: Mapping[str, str], real: Set[str], by_rows: bool,
        shares: Set[str] = frozenset(), careful: bool = False,
    ) -> None:  # fmt: skip
        self._careful = careful
        self._by_rows, self._rows = by_rows, dict[str, str]()
        self._cut, self._emit = cut, cut.emit
        self._names = dict(sources)
        self._moving = {name for tensor, name in sources.items() if tensor in real}
        self._integers = {name for tensor, name in sources.items() if tensor not in real}
        self.constants = set[str]()  # those of a floating-point type
        self._shares = set(shares)
        self._roundings = roundings
        self.variances: dict[str, Variance] = {}
        self.counts: list[str] = []
        self._apart = dict[str, Callable[[], str]]()
        self.floors, self._unscaled = dict[str, Callable[[], str]](), dict[str, Callable[[], str]]()
        self.computed = False
        self.nodes: list[NodeProto] = []  # as they stand in the graph

    @property
    def real(self) -> Set[str]:
        """Names in the graph that hold floating-point numbers."""
        return self._moving | self.constants

    def name(self, tensor: str) -> str:
        """What the model's `tensor` is called here; empty for an input that is left out."""
        if not tensor:
            return ""
        if tensor in self._names:
            return self._names[tensor]
        if tensor in self._cut.initializers:
            name, real, variance = self._cut.constant(tensor), self._cut.initializers[tensor].data_type in REAL, None
        else:
            name, real, variance = self._cut.steady(tensor)
        self._names[tensor] = name
        if real:
            self.constants.add(name)
        if variance is not None:
            self.variances[name] = variance
        return name

    @property
    def known(self) -> Set[str]:
        """The model's tensors that have a name here."""
        return self._names.keys()

    def share(self, same: Mapping[str, str]) -> None:
        """Gives each tensor the name of that which it is the same as."""
        self._names.update((tensor, self._names[other]) for tensor, other in same.items())

    def _first_rows(self, name: str) -> str:
        """The rows of a tensor for which variances are computed; of one that depends on no source, itself."""
        if not self._by_rows or name not in self._moving:
            return name
        if name not in self._rows:
            ends = [self._emit.constant([end]) for end in (0, ROWS, 0)]
            self._rows[name] = self._emit.add("Slice", [name, *ends])
        return self._rows[name]

    def read(self, source: Source, computed: DType) -> None:
        """A source that is stored in a finer type than its reader computes in is rounded on the way. The reference
        computes in fp32, and so rounds what an engine holds in fp64."""
        name = self._first_rows(self._names[source.tensor])
        read = coarser(computed, DType.F32)
        if source.stored.is_float and coarser(source.stored, read) != source.stored:
            square = self._emit.square(name)
            self.variances[self._names[source.tensor]] = self._emit.scaled(square, variance_of(read))
            self.computed = True

    def add(self, node: NodeProto) -> None:
        """The node itself, and those of the variances of what it makes."""
        inputs = [self.name(tensor) for tensor in node.input]
        outputs = [self._emit.fresh() if tensor else "" for tensor in node.output]
        self._names.update((tensor, name) for tensor, name in zip(node.output, outputs, strict=True) if tensor)
        copy = helper.make_node(node.op_type, inputs, outputs, domain=node.domain)
        copy.attribute.extend(map(in_fp32, node.attribute) if node.op_type in ("Cast", "Constant") else node.attribute)
        if is_own(node) and node.op_type in EXACT and len(node.output) == 1:
            self._emit.in_fp64(copy)
        elif is_own(node) and node.op_type == "Sigmoid":
            self._emit.nodes.append(helper.make_node("Identity", [self._emit.logistic(*inputs)], outputs))
        else:
            self._emit.typed(node, outputs)
            self._emit.nodes.append(copy)
        self.nodes.append(copy)
        stored = [name in self.constants for name in inputs]
        if makes_others(node):
            return
        # Indices are whole numbers, but what they take of a constant is as it is stored.
        taken = self._roundings is not OF_CONSTANTS and is_own(node) and node.op_type == "Gather" and stored[0]
        made = node.op_type == "DequantizeLinear" and inputs[0] in self._integers
        moves = taken or made or not self._moving.isdisjoint(inputs)
        if not moves and self.constants.isdisjoint(inputs) and not makes_real(copy):
            return
        whole = whole_outputs(node, self._emit.opset)
        outputs = ["" if index in whole else name for index, name in enumerate(outputs)]
        (self._moving if moves else self.constants).update(name for name in outputs if name)
        if moves:
            self._vary(copy, inputs, outputs, stored)
        elif any(name in self.variances for name in inputs) or not (node.op_type == "Constant" or is_exact(node)):
            self._fold(copy, inputs, outputs)

    def _fold(self, node: NodeProto, inputs: list[str], outputs: list[str]) -> None:
        """What is computed of constants is rounded in fp32 on both sides: here, and where importing computes it."""
        variances = [self.variances.get(name) for name in inputs]
        if is_own(node) and node.op_type == "Split":
            self._split(node, inputs, outputs, variances[0])
            return
        fixed = [variance is None for variance in variances]
        work = Work(self._emit, node, inputs, variances, outputs, fixed, OF_CONSTANTS, [])
        found = variances_of(work)
        self.variances.update((name, each) for name, each in zip(outputs, found, strict=True) if each is not None)

    def _vary(self, node: NodeProto, inputs: list[str], outputs: list[str], stored: Sequence[bool]) -> None:
        variances = [self.variances.get(name) for name in inputs]
        fixed = [name not in self._moving for name in inputs]
        seen = [self._first_rows(name) for name in inputs]
        made = [self._first_rows(name) if name else "" for name in outputs]
        own = is_own(node)
        means = bool(inputs) and inputs[0] in self._shares
        if own and (node.op_type == "Softmax" or (node.op_type in _KEEPS_ROWS and not self._shares.isdisjoint(inputs))):
            self._shares.update(outputs)
        work = Work(
            self._emit, node, seen, variances, made, fixed, self._roundings, self.counts, means, stored, self._careful,
            self._apart, self.floors, self._unscaled,
        )  # fmt: skip
        if own and node.op_type == "Split":
            self._split(node, inputs, outputs, variances[0])
            return
        self.computed |= not is_exact(node)
        if not in_proportion(node):
            work = replace(work, variances=work.settled())
        found = zip(outputs, variances_of(work), strict=True)
        self.variances.update((name, each) for name, each in found if name)

    def _split(self, node: NodeProto, inputs: list[str], outputs: list[str], variance: Variance) -> None:
        """The variances of a Split's outputs are the parts of its input's."""
        if variance is None:
            return
        parts = [self._emit.fresh() for _ in outputs]
        split = helper.make_node("Split", [variance, *inputs[1:]], parts)
        split.attribute.extend(node.attribute)
        self._emit.nodes.append(split)
        self.variances.update(zip(outputs, parts, strict=True))
