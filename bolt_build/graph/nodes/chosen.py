"""Rows that data choose, computed everywhere: what exporters write for `y[mask] = f(x[mask])`.

How many places a mask has is known at run time alone, and shapes are static. So all places are taken as chosen: f is
computed of every row, and what is scattered back is put where the mask is true. That is right as long as each row is
made of its own place alone, and nothing but such a scatter reads it. `Chosen` follows the values from NonZero on, and
says of any other reader that the model cannot be had. What adds rows up, or takes the largest, is given what changes
nothing where the mask is false: `x[mask].sum()` and `x[mask].mean()`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import held_dtype
from bolt_build.graph.graph_builder import GraphBuilder
from bolt_build.graph.importing import NodeImport, OnnxNode
from bolt_build.graph.ir import Array, TensorType
from bolt_build.graph.nodes.chosen_rules import RULES, Asked, Escapes, Key, Rows
from bolt_build.graph.nodes.row_runs import join, joined, run_of, split_runs
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.lines.lines import CumSum
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.moving import ONNX_DTYPES
from bolt_build.graph.ops.moves.scatter import ScatterND
from bolt_build.graph.ops.moves.shape import Cast, Identity, Reshape

MOST_PLACES = 1 << 22
"""Places of a mask at most: each has its coordinates while the model is imported."""


_SAME_ORDER = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""What keeps a mask's elements and their order."""
_SHAPED = {"Concat": None, "Expand": 1, "Reshape": 1, "Slice": 2}
"""Operators that may be given how many places a mask has, as which input (None: any)."""
_INDICES = {"Gather": 1, "GatherND": 1, "RoiAlign": 2}
"""Operators that look up in a table, and which input says where."""
_FILLS = {
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum", "ReduceSumSquare"), 0.0),
    **dict.fromkeys(("ReduceLogSumExp", "ReduceMax"), -np.inf), "ReduceMin": np.inf, "ReduceProd": 1.0,
}  # fmt: skip
"""Reductions, and what changes nothing in them."""
_DEPTH = 8
"""How many nodes behind each other two masks may be computed by, to be known as one."""


class Chosen:
    """What is known of one model's chosen rows while its nodes are imported in order."""

    def __init__(self, builder: GraphBuilder) -> None:
        self._builder = builder
        self._rows: dict[str, Rows] = {}
        self._made: dict[str, OnnxNode] = {}
        self._begun: dict[Key, OnnxNode] = {}

    def met(self, node: OnnxNode) -> None:
        """Remembers how the outputs of a node are made."""
        self._made.update((name, node) for name in node.outputs if name)

    def among(self, *names: str) -> Rows | None:
        """The first of the values that has chosen rows."""
        return next((self._rows[name] for name in names if name in self._rows), None)

    def begin(self, node: OnnxNode) -> bool:
        """Takes all places of the mask that a NonZero is given, or the run of rows that a Range is. False where it is
        no mask of data with axes, and no run."""
        if node.op_type == "Range":
            run = run_of(node, self._builder, lambda name: self._key(name, _DEPTH))
            if run is not None:
                self._rows[node.outputs[0]] = run
            return run is not None
        type_ = self._builder.values[node.inputs[0]].type
        if type_.dtype is not DType.BOOL or not type_.shape or type_.elements * type_.rank > MOST_PLACES:
            return False
        key, each = self._mask(node.inputs[0])
        self._define(node.outputs[0], everywhere(type_.shape).T)
        self._rows[node.outputs[0]] = Rows(key, node, 1, each)
        self._begun.setdefault(key, node)
        return True

    def split(self, node: OnnxNode) -> bool:
        """Takes a Split by sizes that data decide as runs of rows. False where it is none."""
        if len(node.inputs) < 2 or not node.inputs[1] or self.among(*node.inputs) is not None:
            return False
        if (
            any(name not in self._builder.values for name in node.inputs)
            or self._builder.constant(node.inputs[1]) is not None
        ):
            return False
        runs = split_runs(NodeImport(node, self._builder), self._builder)
        self._rows.update(zip(node.outputs, runs, strict=False))
        return bool(runs)

    def counted(self, node: OnnxNode) -> OnnxNode:
        """The node with all places in the stead of how many a mask has, where these are counted for a shape."""
        if node.op_type not in _SHAPED:
            return node
        inputs = list(node.inputs)
        for index, name in enumerate(node.inputs):
            if _SHAPED[node.op_type] in (None, index) and (rows := self._total(name)) is not None:
                inputs[index] = self._builder.fresh(f"{name}.places")
                extent = (
                    self._builder.values[rows.source.inputs[0]].type.elements // self._mask(rows.source.inputs[0])[1]
                )
                self._define(
                    inputs[index], np.full(self._builder.values[name].type.shape, extent * rows.each, np.int64)
                )
                self._rows[inputs[index]] = rows
        return replace(node, inputs=tuple(inputs))

    def follow(self, node: OnnxNode, run: Callable[[OnnxNode], None]) -> None:
        """Imports a node that reads chosen rows. Raises Escapes where these are no longer rows of places by themselves,
        and what `run` raises."""
        if node.op_type in ("ScatterElements", "ScatterND"):
            (self._scatter if node.op_type == "ScatterND" else self._scatter_rows)(node)
            return
        sides = [self._rows.get(name) for name in node.inputs]
        if node.op_type == "Concat" and joined(node, sides, self._builder, self._made):
            join(NodeImport(node, self._builder), [each for each in sides if each], self._builder, self._made)
            return
        if node.op_type == "Gather" and self._is_run(node):
            NodeImport(node, self._builder).emit(Identity(), [node.inputs[0]], 0)
        elif node.op_type == "Slice" and self._takes_first(node):
            self._first(node)
            return
        elif node.op_type in _FILLS and self._reduces_rows(node):
            self._reduce_rows(node, run)
            return
        elif node.op_type == "Cast" and self._is_number(node):
            self._number(node)
            return
        elif node.op_type == "GatherND" and self._takes_all(node, node.inputs[0], node.inputs[1]):
            shape, places = self._shape(node.inputs[0]), self._shape(node.inputs[1])
            NodeImport(node, self._builder).emit(Reshape((places[0], *shape[places[-1] :])), [node.inputs[0]], 0)
        else:
            if node.op_type not in RULES:
                raise Escapes
            run(self._inside(node))
        found = RULES[node.op_type](Asked(node, self._builder, self._rows))
        for name in node.outputs:
            if name in self._builder.values:
                self._builder.values[name] = replace(self._builder.values[name], synthetic=True)
                if found is not None:
                    self._rows[name] = found

    def _is_run(self, node: OnnxNode) -> bool:
        """Whether a run of rows is taken: all of them are, as long as they are in their order."""
        data, index = node.inputs
        run, axis = self._rows.get(index), dict(node.attributes).get("axis", 0)
        return run is not None and run.between is not None and not run.axis and data not in self._rows and axis == 0

    def _takes_first(self, node: OnnxNode) -> bool:
        """Whether as many elements of a line are taken, from its first on, as a mask has places: `masked_scatter`."""
        data, begin, end, *more = node.inputs
        count = self._rows.get(end)
        if data in self._rows or count is None or not count.counts or len(self._shape(data)) != 1:
            return False
        given = [(begin, 0), *zip(more, (0, 1), strict=False)]
        return all(
            (array := self._builder.constant(name)) is not None and array.reshape(-1).tolist() == [wanted]
            for name, wanted in given if name
        ) and self._shape(end) == (1,)  # fmt: skip

    def _first(self, node: OnnxNode) -> None:
        """Each place gets the element whose number is how many places of the mask are in front of it. Raises
        Escapes."""
        running, (data, _, end, *_) = NodeImport(node, self._builder), node.inputs
        count = self._rows[end]
        mask, each = self._base(count.source.inputs[0])
        (extent,) = self._shape(data)
        if each != count.each or extent % each or not extent:
            raise Escapes
        flat = running.emit(Reshape((self._builder.values[mask].type.elements,)), [mask])
        before = running.emit(CumSum(0, exclusive=True), [running.emit(Cast(DType.I64), [flat])])
        last = running.scalar_like(extent // each - 1, before)
        rows = running.emit(Reshape((extent // each, each)), [data])
        taken = running.emit(Gather(0), [rows, running.emit(Binary("min"), [before, last])])
        made = running.emit(Reshape((self._builder.values[taken].type.elements,)), [taken], 0)
        self._builder.values[made] = replace(self._builder.values[made], synthetic=True)
        self._rows[made] = replace(count, axis=0, counts=False)

    def _inside(self, node: OnnxNode) -> OnnxNode:
        """The node with indices that lie inside of its table where the mask is false, too."""
        place = _INDICES.get(node.op_type)
        if place is None or (rows := self._rows.get(node.inputs[place])) is None:
            return node
        inputs = list(node.inputs)
        if rows.counts or self._builder.constant(inputs[place]) is not None:
            return node
        inputs[place] = self._zeroed(NodeImport(node, self._builder), inputs[place], rows)
        return replace(node, inputs=tuple(inputs))

    def _reduces_rows(self, node: OnnxNode) -> bool:
        """Whether chosen rows are reduced to less than one for each place. Raises Escapes."""
        rows, rank = self._rows.get(node.inputs[0]), len(self._shape(node.inputs[0]))
        if rows is None or rows.counts or not rank:
            return False
        axes = Asked(node, self._builder, self._rows).integers("axes", 1)
        if axes:
            return rows.axis in {axis % rank for axis in axes}
        return not dict(node.attributes).get("noop_with_empty_axes", 0)

    def _reduce_rows(self, node: OnnxNode, run: Callable[[OnnxNode], None]) -> None:
        """A mean of all places is that of the chosen ones times the part of the mask that is true. Raises Escapes."""
        running, (name, *more) = NodeImport(node, self._builder), node.inputs
        rows, dtype = self._rows[name], self._builder.values[name].type.dtype
        fill = _FILLS[node.op_type]
        if not dtype.is_float and not np.isfinite(fill):
            raise Escapes
        inputs = (self._filled(running, name, rows, fill), *more)
        if node.op_type != "ReduceMean":
            run(replace(node, inputs=inputs))
            return
        if not dtype.is_float:
            raise Escapes
        every = self._builder.fresh(f"{node.outputs[0]}.every")
        run(replace(node, inputs=inputs, outputs=(every,)))
        self._builder.values[every] = replace(self._builder.values[every], synthetic=True)
        mask = rows.source.inputs[0]
        axes = tuple(range(len(self._shape(mask))))
        part = running.emit(Reduce("mean", axes, False), [running.emit(Cast(dtype), [mask])])
        running.emit(Binary("div"), [every, part], 0)

    def _is_number(self, node: OnnxNode) -> bool:
        """Whether how many places a mask has is made a number to compute with."""
        rows, to = self._rows.get(node.inputs[0]), ONNX_DTYPES.get(NodeImport(node, self._builder).integer("to"))
        return rows is not None and rows.counts and rows.between is None and to is not None and to.is_float

    def _number(self, node: OnnxNode) -> None:
        """Counts the places at run time. Raises Escapes."""
        running, (name, *_) = NodeImport(node, self._builder), node.inputs
        rows, shape = self._rows[name], self._shape(name)
        mask = rows.source.inputs[0]
        often, left = divmod(rows.each, self._mask(mask)[1])
        if prod(shape) != 1 or left:
            raise Escapes
        axes = tuple(range(len(self._shape(mask))))
        count = running.emit(Reduce("sum", axes, False), [running.emit(Cast(DType.I64), [mask])])
        count = running.emit(Binary("mul"), [count, running.scalar_like(often, count)])
        to = ONNX_DTYPES[running.integer("to")]
        running.emit(Reshape(shape), [running.emit(Cast(to), [count])], 0)

    def _filled(self, running: NodeImport, name: str, rows: Rows, fill: float) -> str:
        """Chosen rows that are `fill` where the mask is false. Raises Escapes."""
        type_, mask = self._builder.values[name].type, rows.source.inputs[0]
        if rows.between is not None or type_.shape[rows.axis] != prod(self._shape(mask)):
            raise Escapes
        along = tuple(extent if axis == rows.axis else 1 for axis, extent in enumerate(type_.shape))
        mask = running.emit(Reshape(along), [mask])
        return running.emit(Where(), [mask, name, running.scalar_like(fill, name)])

    def _zeroed(self, running: NodeImport, name: str, rows: Rows) -> str:
        """Chosen rows that are zeros where the mask is false. Raises Escapes."""
        return self._filled(running, name, rows, 0)

    def _define(self, name: str, array: Array) -> None:
        self._builder.define(name, TensorType(DType.I64, array.shape), np.ascontiguousarray(array), synthetic=True)

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._builder.values[name].type.shape

    def _takes_all(self, node: OnnxNode, data: str, places: str) -> bool:
        """Whether `places` are all of the first axes of `data`, in their order."""
        array, rows = self._builder.constant(places), self._rows.get(places)
        if array is None or rows is None or rows.counts or rows.axis != 0 or array.ndim != 2 or data in self._rows:
            return False
        shape = self._shape(data)
        if dict(node.attributes).get("batch_dims", 0) != 0 or array.shape[1] > len(shape):
            return False
        extents = shape[: array.shape[1]]
        return array.shape[0] == prod(extents) and np.array_equal(array, everywhere(extents))

    def _scatter(self, node: OnnxNode) -> None:
        """What is scattered is put where the mask is true, or added there."""
        data, places, updates = node.inputs
        index, rows = self._rows.get(places), self._rows.get(updates)
        if data in self._rows or index is None or rows is None or not rows.like(index) or rows.counts:
            raise Escapes
        if rows.between is not None or index.axis != 0 or rows.axis != 0:
            raise Escapes
        running = NodeImport(node, self._builder)
        reduction, mask = running.text("reduction", "none"), index.source.inputs[0]
        shape = self._shape(data)
        if reduction == "none" and self._takes_all(node, data, places):
            depth = self._shape(places)[-1]
            mask = running.emit(Reshape((*shape[:depth], *(1,) * (len(shape) - depth))), [mask])
            running.emit(Where(), [mask, self._spread(running, updates, shape), data], 0)
        elif reduction == "add":
            inside = places if self._builder.constant(places) is not None else self._zeroed(running, places, index)
            kept = self._zeroed(running, updates, rows)
            running.emit(ScatterND("add"), [data, inside, kept], 0)
        else:
            raise Escapes

    def _scatter_rows(self, node: OnnxNode) -> None:
        """Whole rows that are scattered one by one are put where the mask is true."""
        data, places, updates = node.inputs
        index, rows, array = self._rows.get(places), self._rows.get(updates), self._builder.constant(places)
        running, shape = NodeImport(node, self._builder), self._shape(data)
        if data in self._rows or index is None or rows is None or array is None or not rows.like(index) or rows.counts:
            raise Escapes
        axis, mask = running.integer("axis", 0) % len(shape), index.source.inputs[0]
        along = tuple(extent if at == axis else 1 for at, extent in enumerate(shape))
        in_order = array.shape == shape and (array == np.arange(shape[axis]).reshape(along)).all()
        if rows.between is not None or not in_order or {index.axis, rows.axis} != {axis} or index.each != 1:
            raise Escapes
        if running.text("reduction", "none") != "none" or prod(self._shape(mask)) != shape[axis]:
            raise Escapes
        running.emit(Where(), [running.emit(Reshape(along), [mask]), updates, data], 0)

    def _spread(self, running: NodeImport, updates: str, shape: tuple[int, ...]) -> str:
        """The updates in the form of what they are put into; one number where they are all the same."""
        array = self._builder.constant(updates)
        if array is not None and (array == array.reshape(-1)[0]).all():
            type_ = self._builder.values[updates].type
            name = self._builder.fresh(f"{running.node.name}.value")
            one: Array = np.asarray(array.reshape(-1)[0], held_dtype(type_.dtype))
            return self._builder.define(name, TensorType(type_.dtype, ()), one, synthetic=True)
        return running.emit(Reshape(shape), [updates])

    def _total(self, name: str) -> Rows | None:
        """How many places of a mask are true, where the value is the sum of a mask that a NonZero was given."""
        total = self._made.get(name)
        cast = self._made.get(total.inputs[0]) if total is not None and total.op_type == "ReduceSum" else None
        if cast is None or cast.op_type != "Cast" or name not in self._builder.values:
            return None
        source = cast.inputs[0]
        if self._builder.values[source].type.dtype is not DType.BOOL or self._builder.values[name].type.elements != 1:
            return None
        key, each = self._mask(source)
        return Rows(key, self._begun[key], 0, each, counts=True) if key in self._begun else None

    def _mask(self, name: str) -> tuple[Key, int]:
        """What the mask is computed by that a mask repeats each element of, and how often."""
        name, each = self._base(name)
        return self._key(name, _DEPTH), each

    def _base(self, name: str) -> tuple[str, int]:
        """The mask that a mask repeats each element of, and how often."""
        each = 1
        while (node := self._made.get(name)) is not None:
            before = self._builder.values.get(node.inputs[0]) if node.inputs else None
            if before is None or before.type.dtype is not DType.BOOL or name not in self._builder.values:
                break
            after = self._shape(name)
            if node.op_type == "Expand" and _repeats(before.type.shape, after):
                each *= prod(after) // before.type.elements
            elif node.op_type not in _SAME_ORDER:
                break
            name = node.inputs[0]
        return name, each

    def _key(self, name: str, depth: int) -> Key:
        value, node = self._builder.values.get(name), self._made.get(name)
        if value is not None and value.constant is not None and value.type.elements <= 16:
            return ("constant", value.type, value.constant.array.tobytes())
        if (
            node is None
            or depth == 0
            or node.branches
            or any(isinstance(each, np.ndarray) for _, each in node.attributes)
        ):
            return (name,)
        inputs = (self._key(each, depth - 1) if each else () for each in node.inputs)
        return (node.domain, node.op_type, node.outputs.index(name), node.attributes, *inputs)


def everywhere(shape: tuple[int, ...]) -> Array:
    """The coordinates of all places, one row each."""
    return np.stack(np.unravel_index(np.arange(prod(shape)), shape), 1).astype(np.int64)


def _repeats(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether what broadcasts so has each element some times, one after another."""
    before = (1,) * (len(after) - len(before)) + before
    first = next((axis for axis, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]), len(after))
    return all(extent == 1 for extent in before[first:])
