"""Leaves rows of experts where they are: what was sorted by expert, multiplied and put back is multiplied unsorted.

Exporters sort the choices of all tokens, gather rows and weights in that order, multiply neighbours with one matrix,
and put results back by the inverse order. Kernels of warpgroups group rows by themselves and store each where it
belongs. So no order is needed, and neither are the moves: a sort, its inverse, and three gathers of as many rows as
tokens have experts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bolt_build.graph.ir import Array, Graph, Node, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Where
from bolt_build.graph.ops.lines.lines import Places
from bolt_build.graph.ops.moves.gather import Gather, GatherElements, GatherND
from bolt_build.graph.ops.moves.scatter import ScatterND
from bolt_build.graph.ops.moves.shape import Cast, Identity, Reshape, Slice
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.chosen_matmul import ChosenMatMul
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.attention_operands import Chain
from bolt_build.planner.rewrite import GraphEditor, joined
from bolt_build.targets import Target

_TOGETHER = 8
"""Numbers of 16 bytes, of which kernels of warpgroups want whole ones."""


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(UNSORTED_ROWS.name)
    for node in editor.nodes():
        if editor.node(node.name) is None or node.epilogue:
            continue
        found = _put_back(editor, node)
        if found is None:
            continue
        sorted_rows, order = found
        unsorted = _Unsorted(editor, Chain(editor, f"{node.name}.unsorted"), order)
        value = unsorted.of(sorted_rows)
        if not unsorted.multiplied:
            continue
        if value is None:
            journal.declined(node.name, unsorted.obstacle)
            continue
        _put(editor, node, unsorted.chain, value)
        journal.did(node.name, "left rows unsorted", f"'{order}' is their order no more")
    return journal.result(editor.finish())


def _put_back(editor: GraphEditor, node: Node) -> tuple[str, str] | None:
    """Rows that the node puts in another order, and the order that it undoes: places of all numbers of a line."""
    match node.op:
        case Gather(0) | GatherND(0):
            rows, index = node.inputs
            if isinstance(node.op, GatherND) and editor.type(index).shape[-1] != 1:
                return None
            order = _undone(editor, _flat(editor, index))
            count = editor.type(rows).shape[0]
            return (rows, order) if order is not None and editor.type(order).elements == count else None
        case ScatterND("none"):  # all rows are replaced
            data, index, rows = node.inputs
            order = _flat(editor, index)
            if not _is_order(editor, order) or editor.is_constant(rows) or editor.type(rows).rank < 2:
                return None
            return (rows, order) if editor.type(data).shape[0] == editor.type(order).elements else None
    return None


def _flat(editor: GraphEditor, index: str) -> str:
    """The index in front of reshapes that do not change how many there are along the first axis."""
    node = editor.producer(index)
    while node is not None and isinstance(node.op, Reshape | Identity) and not node.epilogue:
        (source,) = node.inputs
        if editor.type(source).shape[:1] != (editor.type(index).elements,):
            break
        index = source
        node = editor.producer(index)
    return index


def _is_order(editor: GraphEditor, value: str) -> bool:
    node = editor.producer(value)
    if node is None or not isinstance(node.op, Places) or node.epilogue:
        return False
    return editor.type(value).rank == 1 and node.op.count == editor.type(node.inputs[0]).shape[0]


def _undone(editor: GraphEditor, value: str) -> str | None:
    """The order whose inverse the value is: numbers put to the places that the order names, or the order's order."""
    node = editor.producer(value)
    if node is None or node.epilogue:
        return None
    if isinstance(node.op, ScatterND) and node.op.reduction == "none":
        numbers = editor.constant(node.inputs[2])
        order = _flat(editor, node.inputs[1])
        every = numbers is not None and np.array_equal(numbers, np.arange(numbers.size))
        whole = editor.type(node.inputs[0]).shape == editor.type(order).shape
        return order if every and whole and _is_order(editor, order) else None
    if isinstance(node.op, Places) and not node.op.greatest and _is_order(editor, value):
        return node.inputs[0] if _is_order(editor, node.inputs[0]) else None
    return None


class _Unsorted:
    """Rows in the order in which they were before `order`: nodes that compute them are added to `chain`. `obstacle`
    says why some are not."""

    def __init__(self, editor: GraphEditor, chain: Chain, order: str) -> None:
        self._editor, self.chain, self._order = editor, chain, order
        self._count = editor.type(order).elements
        self._done: dict[str, str | None] = {}
        self.multiplied, self.obstacle = False, ""

    def of(self, value: str) -> str | None:
        if value not in self._done:
            self._done[value] = self._made(value)
            if self._done[value] is None and not self.obstacle:
                self.obstacle = f"'{value}' is not computed row by row"
        return self._done[value]

    def _made(self, value: str) -> str | None:
        node = self._editor.producer(value)
        if node is None or node.epilogue or self._editor.type(value).shape[:1] != (self._count,):
            return None
        match node.op:
            case Gather(0) | GatherND(0) | GatherElements(0):
                return self._gathered(node)
            case ChosenMatMul():
                return self._product(node)
            case Activation() | Cast() | Identity() | Binary() | Where():
                return self._elementwise(node)
            case Norm() as norm if 0 not in norm.axes and norm.groups == 1:
                return self._elementwise(node)
            case Slice(begin, count, step) if (begin[0], count[0], step[0]) == (0, self._count, 1):
                return self._of_first(node)
            case Reshape(shape) if shape[0] == self._count:
                return self._reshaped(node.inputs[0], shape)
        return None

    def _of_first(self, node: Node) -> str | None:
        rows = self.of(node.inputs[0])
        return None if rows is None else self.chain.add(node.op, [rows])

    def _reshaped(self, source: str, shape: tuple[int, ...]) -> str | None:
        """Whatever shapes rows had on the way, as they are rows again."""
        node = self._editor.producer(source)
        while self._editor.type(source).shape[:1] != (self._count,):
            if node is None or not isinstance(node.op, Reshape) or node.epilogue:
                return None
            (source,) = node.inputs
            node = self._editor.producer(source)
        rows = self.of(source)
        return None if rows is None else self.chain.add(Reshape(shape), [rows])

    def _gathered(self, node: Node) -> str | None:
        """Rows that are gathered by the order itself, or by what is computed of it and constants."""
        source, index = node.inputs
        if _flat(self._editor, index) == self._order and self._editor.type(source).shape[0] == self._count:
            lines = self._editor.type(node.outputs[0])
            if lines == self._editor.type(source):
                return source
            if lines.elements == self._editor.type(source).elements:
                return self.chain.add(Reshape(lines.shape), [source])
            return None  # some columns of each row, or one for several
        if isinstance(node.op, GatherElements):
            return None
        places = self._numbers(index)
        if places is None:
            return None
        constant = self._editor.new_constant(f"{index}.unsorted", places, self._editor.type(index).dtype)
        return self.chain.add(node.op, [source, constant])

    def _numbers(self, value: str) -> Array | None:
        """What the value is where the order is 0, 1, 2 and so on; None where any of its numbers is computed of more
        than the order's at its own place and numbers that all share."""
        if value == self._order:
            return np.arange(self._count, dtype=np.int64)
        if (constant := self._editor.constant(value)) is not None:
            return constant if constant.size == 1 else None
        node = self._editor.producer(value)
        if node is None or node.epilogue or self._editor.type(value).elements != self._count:
            return None
        if not isinstance(node.op, Binary | Reshape | Cast | Identity | Gather):
            return None
        is_table = isinstance(node.op, Gather) and self._editor.is_constant(node.inputs[0])
        if isinstance(node.op, Gather) and not is_table:
            return None
        inputs = [self._numbers(name) for name in node.inputs[int(is_table) :]]
        if is_table:
            inputs.insert(0, self._editor.constant(node.inputs[0]))
        given = [each for each in inputs if each is not None]
        return node.op.evaluate(given)[0] if len(given) == len(inputs) else None

    def _product(self, node: Node) -> str | None:
        rows, stack, index = node.inputs
        extents = self._editor.type(stack).shape[1:]
        op = node.op
        assert isinstance(op, ChosenMatMul)
        self.multiplied = True
        if extents[-1] % _TOGETHER or self._editor.type(rows).shape[1] % _TOGETHER:
            self.obstacle = f"matrices of '{node.name}' have lines of no whole {_TOGETHER} numbers"
            return None
        own, chosen = self.of(rows), self.of(index)
        return None if own is None or chosen is None else self.chain.add(op, [own, stack, chosen])

    def _elementwise(self, node: Node) -> str | None:
        rank, inputs = self._editor.type(node.outputs[0]).rank, list[str]()
        for name in node.inputs:
            own = self._editor.type(name)
            if own.rank < rank or own.shape[0] == 1:  # all rows share it
                inputs.append(name)
                continue
            rows = self.of(name)
            if rows is None:
                return None
            inputs.append(rows)
        op: Op = node.op
        return self.chain.add(op, inputs)


def _put(editor: GraphEditor, node: Node, chain: Chain, value: str) -> None:
    last = Node(node.name, Reshape(editor.type(node.outputs[0]).shape), (value,), node.outputs)
    editor.replace(node, *chain.nodes, last)
    removed = editor.prune(node.inputs)
    covers = joined(*(each.covers for each in (*removed, node)))
    editor.replace(last, replace(last, covers=covers))


def _pays(target: Target, precision: str) -> bool:
    return target.gpu is not None and target.gpu.warpgroup_mma and precision in ("fp16", "bf16")


UNSORTED_ROWS = Pass("unsorted-rows", _run, pays_on=_pays)
