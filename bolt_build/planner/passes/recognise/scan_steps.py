"""Steps of a sequence that an exporter unrolled: which nodes are of which step, and whether all steps compute alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bolt_build.dtypes import PRECISIONS, DType
from bolt_build.graph.ir import Node, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Logic, Where
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.expand import Expand
from bolt_build.graph.ops.moves.gather import Gather
from bolt_build.graph.ops.moves.shape import Cast, Reshape, Slice, Transpose
from bolt_build.graph.ops.products.matmul import MatMul
from bolt_build.planner.passes.recognise.norm_parts import number_of
from bolt_build.planner.rewrite import GraphEditor

FEWEST = 4
"""Steps that are worth a kernel of their own."""

Ref = tuple[str, int]
"""A number of a step: ("leaf", i) comes from outside, ("slot", i) from the step in front, ("term", i) is computed."""


@dataclass(frozen=True)
class Cut:
    """One place of `source` along `axis`, which is kept with extent 1 or not."""

    source: str
    axis: int
    position: int
    kept: bool


@dataclass
class Body:
    """How values of a step are computed: `terms` with what each reads, in the order of a walk from the `roots`.
    `leaves` and `slots` are values in the order in which the walk met them."""

    terms: list[tuple[Op, tuple[Ref, ...]]] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    leaves: list[str] = field(default_factory=list)
    slots: list[str] = field(default_factory=list)
    roots: list[Ref] = field(default_factory=list)
    known: dict[str, Ref] = field(default_factory=dict)

    def follows(self, other: Body) -> bool:
        """Whether this body computes its roots as the first roots of the other are."""
        return self.roots == other.roots[: len(self.roots)] and self.terms == other.terms[: len(self.terms)]


class Steps:
    """Values of a graph by the step that they belong to: the last cut that they depend on. From the end of an axis to
    its begin where `descending`."""

    def __init__(self, editor: GraphEditor, cuts: Mapping[str, Cut], descending: bool) -> None:
        self.editor = editor
        self.cuts: dict[str, Cut] = {}
        self.of: dict[str, int] = {}
        self.carries: set[str] = set()
        """Values that depend on those of an earlier step."""
        for node in editor.nodes():
            value = node.outputs[0]
            cut = cuts.get(value)
            if cut is not None and cut.source not in self.of:
                extent = editor.type(cut.source).shape[cut.axis]
                self.of[value] = extent - 1 - cut.position if descending else cut.position
                self.cuts[value] = cut
                continue
            steps = {self.of[name] for name in node.inputs if name in self.of}
            if not steps or not _computes(editor, node, self.of):
                continue
            self.of[value] = max(steps)
            if any(self._earlier(name, self.of[value]) or name in self.carries for name in node.inputs):
                self.carries.add(value)

    def _earlier(self, value: str, step: int) -> bool:
        return value not in self.cuts and value in self.of and self.of[value] < step

    def walk(self, body: Body, step: int, value: str) -> None:
        """Adds a root to the body of a step, and what computes it."""
        body.roots.append(self._visit(body, step, value))

    def _visit(self, body: Body, step: int, value: str) -> Ref:
        if value in body.known:
            return body.known[value]
        own = self.of.get(value)
        if own is None or value in self.cuts:
            body.leaves.append(value)
            found: Ref = ("leaf", len(body.leaves) - 1)
        elif own < step:
            body.slots.append(value)
            found = ("slot", len(body.slots) - 1)
        else:
            node = self.editor.producer(value)
            assert node is not None
            read = tuple(self._visit(body, step, name) for name in operands_of(node))
            body.terms.append((key_of(node.op), read))
            body.nodes.append(node)
            found = ("term", len(body.terms) - 1)
        body.known[value] = found
        return found

    def regions(self) -> list[list[Node]]:
        """Nodes whose values depend on an earlier step, apart where they do not depend on each other."""
        parent: dict[str, str] = {}

        def root(value: str) -> str:
            while parent.setdefault(value, value) != value:
                parent[value] = value = parent[parent[value]]
            return value

        inside = [node for node in self.editor.nodes() if node.outputs[0] in self.carries]
        for node in inside:
            for name in node.inputs:
                if name in self.carries:
                    parent[root(name)] = root(node.outputs[0])
        found: dict[str, list[Node]] = {}
        for node in inside:
            found.setdefault(root(node.outputs[0]), []).append(node)
        return list(found.values())


def operands_of(node: Node) -> tuple[str, ...]:
    """What a step's node computes with: indices that take the one place of an axis are part of its operator."""
    return node.inputs[:1] if isinstance(node.op, Gather) else node.inputs


def key_of(op: Op) -> Op:
    return op


def cuts_of(editor: GraphEditor) -> dict[str, Cut]:
    """Single places of tensors of which at least `FEWEST` are taken along the same axis, by value."""
    found: dict[str, Cut] = {}
    for node in editor.nodes():
        cut = None if node.epilogue else _cut(editor, node)
        if cut is not None and editor.type(cut.source).dtype in PRECISIONS.values():
            found[node.outputs[0]] = cut
    positions: dict[tuple[str, int], set[int]] = {}
    for cut in found.values():
        positions.setdefault((cut.source, cut.axis), set()).add(cut.position)
    return {value: cut for value, cut in found.items() if len(positions[cut.source, cut.axis]) >= FEWEST}


def _cut(editor: GraphEditor, node: Node) -> Cut | None:
    source = node.inputs[0]
    shape = editor.type(source).shape
    if isinstance(node.op, Slice):
        cut = [axis for axis, (count, extent) in enumerate(zip(node.op.count, shape, strict=True)) if count != extent]
        if len(cut) != 1 or node.op.count[cut[0]] != 1:
            return None
        return Cut(source, cut[0], node.op.begin[cut[0]], kept=True)
    if isinstance(node.op, Gather) and shape[node.op.axis] > 1:
        place, rank = number_of(editor, node.inputs[1]), editor.type(node.inputs[1]).rank
        if place is None or rank > 1:
            return None
        return Cut(source, node.op.axis, int(place) % shape[node.op.axis], kept=rank == 1)
    return None


def _computes(editor: GraphEditor, node: Node, steps: Mapping[str, int]) -> bool:
    """Whether the node's function is one of a step: elementwise, a sum, a product of vectors, or a move of axes."""
    op, shape = node.op, editor.type(node.inputs[0]).shape
    types = {editor.type(name).dtype for name in node.inputs}
    if not node.epilogue and isinstance(op, Compare | Logic | Where | Cast):
        if isinstance(op, Cast):
            return types == {DType.BOOL} and op.to in PRECISIONS.values()
        if isinstance(op, Logic):
            return op.function in ("and", "or")
        return {editor.type(name).dtype for name in node.inputs[isinstance(op, Where) :]} <= set(PRECISIONS.values())
    if node.epilogue or editor.type(node.outputs[0]).dtype not in PRECISIONS.values():
        return False
    if isinstance(op, Activation | Binary | Transpose | Expand):
        return all(editor.type(name).dtype in PRECISIONS.values() for name in node.inputs)
    if isinstance(op, Reshape):
        return long_axes(shape) == long_axes(op.shape)
    if isinstance(op, Reduce):
        return op.mode == "sum" and sum(shape[axis] > 1 for axis in op.axes) <= 1
    if isinstance(op, Gather):
        return shape[op.axis] == 1 and editor.type(node.inputs[1]).elements == 1 and editor.is_constant(node.inputs[1])
    if isinstance(op, MatMul):
        rows, depth, columns = product_extents(op, shape, editor.type(node.inputs[1]).shape)
        # a matrix that all steps share is a layer's weight
        weights = any(name not in steps and sum(extent > 1 for extent in editor.type(name).shape) > 1
                      for name in node.inputs)  # fmt: skip
        return not weights and (depth == 1 or rows == 1 or columns == 1)
    return False


def product_extents(op: MatMul, a: Sequence[int], b: Sequence[int]) -> tuple[int, int, int]:
    """Rows, depth and columns."""
    rows, depth = (a[-1], a[-2]) if op.transpose_a else (a[-2], a[-1])
    return rows, depth, b[-2] if op.transpose_b else b[-1]


def long_axes(shape: Sequence[int]) -> list[int]:
    """Extents but for those of one."""
    return [extent for extent in shape if extent != 1]
