"""Recognises local response normalisation as PyTorch's exporters write it: squares, a mean over neighbouring channels
by a pooling of a volume with one channel, a factor, a sum, a power and a quotient. One step computes all of it.

For example AlexNet, the first GoogLeNet and LightCNN. ONNX's windows of an even number of channels begin one later than
PyTorch's: those stay as they are.
"""

from __future__ import annotations

from bolt_build.dtypes import PRECISIONS
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.moves.shape import Reshape
from bolt_build.graph.ops.norms.normalization import Lrn
from bolt_build.planner.passes.base import Journal, Pass, PassResult
from bolt_build.planner.passes.recognise.formula import Reader
from bolt_build.planner.rewrite import GraphEditor, joined


def _run(graph: Graph) -> PassResult:
    editor, journal = GraphEditor(graph), Journal(RECOGNISE_RESPONSE_NORMS.name)
    for old in editor.nodes():
        node = editor.node(old.name)
        if node is None or node.op != Binary("div") or node.epilogue:
            continue
        found = _found(editor, node)
        if found is None:
            continue
        op, inner = found
        made = Node(
            node.name, op, node.inputs[:1], node.outputs, covers=joined(*(each.covers for each in (*inner, node)))
        )
        editor.replace(node, made)
        editor.prune(inner[-1].outputs)
        journal.did(node.name, "recognised response norm", f"over {op.size} channels")
    return journal.result(editor.finish())


def _found(editor: GraphEditor, node: Node) -> tuple[Lrn, tuple[Node, ...]] | None:
    """What a quotient normalises by, and the nodes that compute its divisor in their order; None of another one."""
    reader, (x, divisor) = Reader(editor), node.inputs[:2]
    type_ = editor.type(x)
    if type_.dtype not in PRECISIONS.values() or type_.rank < 3 or editor.type(divisor) != type_:
        return None
    nodes = list[Node]()

    def maker(value: str) -> Node | None:
        made = editor.producer(value)
        if made is None or made.epilogue or editor.not_private(value) is not None:
            return None
        nodes.append(made)
        return made

    def with_number(value: str, function: str) -> tuple[str, float] | None:
        """The tensor, and the number that the function combines it with."""
        made = maker(value)
        if made is None or made.op != Binary(function):
            return None
        sides = made.inputs if function == "pow" else sorted(made.inputs, key=editor.is_constant)
        number = reader.scalar(sides[1])
        return None if number is None else (sides[0], number)

    numbers = list[float]()
    value = divisor
    for function in ("pow", "add", "mul"):
        found = with_number(value, function)
        if found is None:
            return None
        value, number = found
        numbers.append(number)
    beta, bias, alpha = numbers
    back = maker(value)
    mean = None if back is None or not isinstance(back.op, Reshape) else maker(back.inputs[0])
    size = None if mean is None or not isinstance(mean.op, Pool) else _window(mean.op)
    apart = None if size is None or mean is None else maker(mean.inputs[0])
    if size is None or apart is None or not isinstance(apart.op, Reshape):
        return None
    if editor.type(apart.outputs[0]).shape != (type_.shape[0], 1, *type_.shape[1:]) or editor.type(value) != type_:
        return None
    square = maker(apart.inputs[0])
    squares = square is not None and (
        (square.op == Binary("mul") and tuple(square.inputs) == (x, x))
        or (square.op == Activation("square") and tuple(square.inputs) == (x,))
        or (square.op == Binary("pow") and square.inputs[0] == x and reader.scalar(square.inputs[1]) == 2.0)
    )
    return (Lrn(size, alpha, beta, bias), tuple(reversed(nodes))) if squares else None


def _window(op: Pool) -> int | None:
    """Over how many channels a pooling takes means, zeros beside them counted; None of other poolings."""
    size, *others = op.kernel
    means = op.mode == "average" and op.count_include_pad and not op.ceil_mode and size % 2 == 1
    same = {*others, *op.strides, *op.dilations} <= {1}
    beside = (size // 2, *(0,) * len(others))
    return size if means and same and op.pads_begin == op.pads_end == beside else None


RECOGNISE_RESPONSE_NORMS = Pass("recognise-response-norms", _run)
