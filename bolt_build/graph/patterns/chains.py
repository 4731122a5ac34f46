"""Products that follow each other in a graph, what follows one that its kernel may compute too, such as a pooling, a
mean or a normalisation, or a multiplication in front of one; and what of the graph keeps one kernel from computing
both."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.images.pool import Pool
from bolt_build.graph.ops.lines.reduce import Reduce
from bolt_build.graph.ops.moves.rearrange import Rearrange
from bolt_build.graph.ops.moves.shape import Transpose
from bolt_build.graph.ops.moves.stack import UnfoldDepth
from bolt_build.graph.ops.norms.norm import Norm
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.ops.products.matmul import MatMul


@dataclass(frozen=True)
class NodeChain:
    """A product, and the product whose input 0 is what it leaves; a convolution, and the pooling of its maxima or the
    movement of its channels between pixels (`stored`); a product, and the mean, the normalisation or the activation of
    what it leaves, which may have other readers; or the multiplication of a tensor by one number a channel, of each
    image or of all, and the product that reads it.

    `obstacle` says why what the first leaves, kept where it was computed, cannot be what the second reads; None where
    nothing in the graph is against it.
    """

    first: Node
    second: Node
    obstacle: str | None

    @property
    def region(self) -> tuple[str, str]:
        return (self.first.name, self.second.name)

    @property
    def stored(self) -> bool:
        """Whether the second says what is stored of the first's results, and where, and multiplies nothing."""
        return isinstance(self.second.op, Pool | Rearrange)


def chain_from(graph: Graph, first: Node) -> NodeChain | None:
    """The product behind `first`, the pooling of its maxima, or what moves its channels between pixels; None where
    `first` is neither a product nor such a multiplication, or nothing of the kind reads its output, as its left
    factor."""
    if not isinstance(first.op, Conv | MatMul) and not scales(graph, first):
        return None
    between = first.outputs[0]
    readers = [node for node in graph.consumers(between) if isinstance(node.op, Conv | MatMul) or _stores(first, node)]
    second = next((node for node in readers if node.inputs[0] == between), None)
    return None if second is None else NodeChain(first, second, _obstacle(graph, first, second))


def norm_behind(graph: Graph, first: Node) -> NodeChain | None:
    """The normalisation of the rows that a matrix product leaves; None where there is none."""
    if not isinstance(first.op, MatMul):
        return None
    between = first.outputs[0]
    last = (graph.type(between).rank - 1,)
    readers = (each for each in graph.consumers(between) if isinstance(each.op, Norm) and each.op.axes == last)
    norm = next((each for each in readers if each.inputs[0] == between), None)
    if norm is None:
        return None
    twice = norm.inputs.count(between) > 1
    return NodeChain(first, norm, "the normalisation reads what lies between twice" if twice else None)


def is_mean(op: Op, rank: int) -> bool:
    """True for the mean of each channel over whole images, which are tensors of such a rank: as images of one pixel, or
    as rows, which are the same bytes."""
    axes = tuple(range(2, rank))
    return op in (Reduce("mean", axes), Reduce("mean", axes, keepdims=False))


def mean_behind(graph: Graph, first: Node) -> NodeChain | None:
    """The means of all that a convolution leaves of each channel; None where there is none."""
    (between,) = first.outputs
    rank = graph.type(between).rank
    means = [each for each in graph.consumers(between) if isinstance(first.op, Conv) and is_mean(each.op, rank)]
    if not means:
        return None
    mean = next((each for each in means if not each.epilogue), means[0])
    obstacle = "the mean has an epilogue, which a convolution's kernel does not compute" if mean.epilogue else None
    return NodeChain(first, mean, obstacle)


def image_norm_behind(graph: Graph, first: Node) -> NodeChain | None:
    """The normalisation of the images that a convolution leaves, of each channel or of groups of them; None where there
    is none."""
    (between,) = first.outputs
    rank = graph.type(between).rank
    axes = (tuple(range(1, rank)), tuple(range(2, rank)))
    if not isinstance(first.op, Conv):
        return None
    readers = (each for each in graph.consumers(between) if isinstance(each.op, Norm) and each.op.axes in axes)
    norm = next((each for each in readers if each.inputs[0] == between), None)
    if norm is None:
        return None
    twice = norm.inputs.count(between) > 1
    return NodeChain(first, norm, "the normalisation reads what lies between twice" if twice else None)


def volume_norm_behind(graph: Graph, first: Node) -> Expanded | None:
    """The same of volumes, whose depths a convolution has as images, with the node that makes them depths again; None
    where there is none."""
    if not isinstance(first.op, Conv):
        return None
    unfold = next((each for each in graph.consumers(first.outputs[0]) if isinstance(each.op, UnfoldDepth)), None)
    if unfold is None:
        return None
    (between,) = unfold.outputs
    rank = graph.type(between).rank
    axes = (tuple(range(1, rank)), tuple(range(2, rank)))
    readers = (each for each in graph.consumers(between) if isinstance(each.op, Norm) and each.op.axes in axes)
    norm = next((each for each in readers if each.inputs[0] == between), None)
    if norm is None:
        return None
    obstacle = _obstacle_between(graph, first) or _obstacle_between(graph, unfold)
    if obstacle is None and norm.inputs.count(between) > 1:
        obstacle = "the normalisation reads what lies between twice"
    return Expanded((first, unfold, norm), obstacle)


def product_of_normed(graph: Graph, norm: Node) -> NodeChain | None:
    """The matrix product whose rows `norm` normalises; None where it is no such normalisation, or no product reads what
    it leaves as its A operand."""
    if not isinstance(norm.op, Norm) or norm.op.axes != (graph.type(norm.outputs[0]).rank - 1,):
        return None
    between = norm.outputs[0]
    readers = (node for node in graph.consumers(between) if isinstance(node.op, MatMul))
    product = next((node for node in readers if node.inputs[0] == between), None)
    if product is None:
        return None
    obstacle = _obstacle_between(graph, norm)
    if obstacle is None and product.inputs.count(between) > 1:
        obstacle = "the product reads what lies between twice"
    return NodeChain(norm, product, obstacle)


def activation_beside(graph: Graph, first: Node) -> NodeChain | None:
    """The activation of what a product leaves, which is stored for others too; None where there is none, or it alone
    reads it."""
    (between,) = first.outputs
    readers = graph.consumers(between)
    if len(readers) == 1 and between not in graph.outputs:
        return None
    activations = [each for each in readers if isinstance(each.op, Activation)]
    if not activations:
        return None
    second = next((each for each in activations if not each.epilogue), activations[0])
    obstacle = None
    if not isinstance(first.op, Conv):
        obstacle = "no matrix product's kernel stores its results and an activation of them"
    elif second.epilogue:
        obstacle = "the activation has an epilogue, which a kernel that stores both does not compute"
    return NodeChain(first, second, obstacle)


@dataclass(frozen=True)
class Expanded:
    """A 1x1 convolution, the convolution with groups whose input is what it leaves, and in an inverted residual the
    product of what that leaves. `obstacle` is as in `NodeChain`."""

    nodes: tuple[Node, ...]
    obstacle: str | None

    @property
    def region(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes)


def expanded_from(graph: Graph, first: Node) -> Expanded | None:
    """The convolution with groups behind `first`; None where there is none, or `first` is no 1x1 convolution with a
    stride of one."""
    if not isinstance(first.op, Conv) or not _by_points(graph, first, first.op):
        return None
    between = first.outputs[0]
    readers = graph.consumers(between)
    middle = next((node for node in readers if isinstance(node.op, Conv) and node.op.groups > 1), None)
    if middle is None or middle.inputs[0] != between:
        return None
    obstacle = _obstacle_between(graph, first)
    if obstacle is None and any(stage.operand is not None for stage in first.epilogue):
        obstacle = "another tensor joins in between"
    return Expanded((first, middle), obstacle)


def inverted_from(graph: Graph, first: Node) -> Expanded | None:
    """The same with the product behind; None where there is none."""
    front = expanded_from(graph, first)
    behind = None if front is None else chain_from(graph, front.nodes[-1])
    if front is None or behind is None or behind.stored:
        return None
    return Expanded((*front.nodes, behind.second), front.obstacle or behind.obstacle)


def normed_from(graph: Graph, first: Node) -> Expanded | None:
    """A convolution with groups and the normalisation over the channels of what it leaves, with the node between that
    moves them last where there is one; None where it is none, or nothing of the kind reads it."""
    if not isinstance(first.op, Conv) or first.op.groups == 1:
        return None
    rank = graph.type(first.outputs[0]).rank
    for reader in graph.consumers(first.outputs[0]):
        if _normalises(reader, 1):
            return Expanded((first, reader), _obstacle_to_norm(graph, first))
        if reader.op == Transpose((0, *range(2, rank), 1)):
            behind = [each for each in graph.consumers(reader.outputs[0]) if _normalises(each, rank - 1)]
            if behind:
                obstacle = _obstacle_to_norm(graph, first) or _obstacle_between(graph, reader)
                return Expanded((first, reader, behind[0]), obstacle)
    return None


def _normalises(node: Node, axis: int) -> bool:
    return isinstance(node.op, Norm) and node.op.axes == (axis,) and node.op.groups == 1


def _obstacle_to_norm(graph: Graph, first: Node) -> str | None:
    """Why what a convolution leaves is not normalised where it was computed."""
    if (obstacle := _obstacle_between(graph, first)) is not None:
        return obstacle
    joins = any(stage.operand is not None for stage in first.epilogue)
    return "another tensor joins in between" if joins else None


def normed_in(graph: Graph) -> tuple[Expanded, ...]:
    """Every convolution of a graph that is normalised over its channels, in the order of the convolutions."""
    return tuple(found for found in (normed_from(graph, node) for node in graph.nodes) if found is not None)


def _stores(first: Node, second: Node) -> bool:
    pools = isinstance(second.op, Pool) and second.op.mode == "max"
    return isinstance(first.op, Conv) and (pools or isinstance(second.op, Rearrange))


def scales(graph: Graph, node: Node) -> bool:
    """True where a node multiplies a tensor [N, C, ...] by one number a channel: a constant, or [N, C, 1, ...]."""
    if not isinstance(node.op, Binary) or node.op.function != "mul":
        return False
    output = graph.type(node.outputs[0])
    if output.rank < 3:
        return False
    shapes = [(1,) * (output.rank - graph.type(name).rank) + graph.type(name).shape for name in node.inputs[:2]]
    spread = [shape for shape in shapes if shape != output.shape]
    return len(spread) == 1 and spread[0][0] in (1, output.shape[0]) and spread[0][1:] == (
        output.shape[1], *(1,) * (output.rank - 2)
    )  # fmt: skip


def chains_in(graph: Graph) -> tuple[NodeChain, ...]:
    """Every chain of the graph, in the order of its first products."""
    return tuple(found for found in (chain_from(graph, node) for node in graph.nodes) if found is not None)


def inverted_in(graph: Graph) -> tuple[Expanded, ...]:
    """The same of a product on either side of a convolution with groups."""
    return tuple(found for found in (inverted_from(graph, node) for node in graph.nodes) if found is not None)


def _obstacle(graph: Graph, first: Node, second: Node) -> str | None:
    if (obstacle := _obstacle_between(graph, first)) is not None:
        return obstacle
    if second.inputs.count(first.outputs[0]) > 1:
        return "the second product reads what lies between twice"
    multiplies = isinstance(first.op, Conv | MatMul)
    if multiplies and any(stage.operand is not None for stage in first.epilogue):
        return "another tensor joins in between"
    if isinstance(second.op, Pool | Rearrange):
        return None
    if type(first.op) is not type(second.op) and not (isinstance(first.op, Binary) and isinstance(second.op, Conv)):
        return f"{second.op.kind} behind {first.op.kind} does not multiply its rows"
    if isinstance(second.op, Conv) and not _by_points(graph, second, second.op):
        which = "second convolution" if multiplies else "convolution behind"
        return f"the {which} is not 1x1 with a stride of one, without padding and without groups"
    if graph.constant(second.inputs[1]) is None:
        return "the second product's B operand is no constant"
    return None


def _obstacle_between(graph: Graph, first: Node) -> str | None:
    """Why what a node leaves must be stored, None where nothing in the graph asks for it."""
    between = first.outputs[0]
    readers = graph.consumers(between)
    if between in graph.outputs:
        return "what lies between is an output of the graph"
    return f"{len(readers)} nodes read what lies between" if len(readers) > 1 else None


def _by_points(graph: Graph, node: Node, op: Conv) -> bool:
    """True where every output pixel is made of the input pixel in its place alone."""
    kernel = graph.type(node.inputs[1]).shape[2:]
    plain = all(extent == 1 for extent in (*kernel, *op.strides)) and not any((*op.pads_begin, *op.pads_end))
    return plain and op.groups == 1
