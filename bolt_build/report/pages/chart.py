"""Plans and graphs as boxes and arrows, coloured by kernel and by share of the time: what `mermaid.py` and `svg.py`
draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bolt_build.families.base import KernelProblem
from bolt_build.families.common.chains import parts
from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.text import format_type
from bolt_build.planner.engine_plan import BatchPlan
from bolt_build.report.explained.explanation import Batch, Layer

VIEW = "view"
_COLORS = (
    "#2f6fb2", "#c8553d", "#2e7d5b", "#8a5fb0", "#b07d12", "#a03a6c", "#3a8f9e", "#6b7a1f", "#7a5a44", "#5566c4",
    "#c06a9a", "#4f8a3a",
)  # fmt: skip
_OTHERS = "#7b838a"
"""Of kernels that take less than the first twelve."""
_SHADES = (0.14, 0.26, 0.42, 0.62)
"""How much of a kernel's colour a box has: of up to a quarter of the longest step's time, up to a half, and so on."""


@dataclass(frozen=True)
class Box:
    """A step or node (`kernel` says what runs it, "view" where nothing does), or an input or output (no kernel).

    `share` is its part of the batch's time, None where it has none. `detail` are lines for those who ask for more.
    """

    name: str
    lines: tuple[str, ...]
    kernel: str = ""
    share: float | None = None
    detail: tuple[str, ...] = ()


@dataclass(frozen=True)
class Arrow:
    """A tensor, with its shape as text."""

    source: str
    to: str
    text: str = ""


@dataclass(frozen=True)
class ShownKernel:
    """A kernel of a group: how many steps run it, their microseconds together, and the share of the batch's time."""

    name: str
    steps: int
    time: float
    share: float


@dataclass(frozen=True)
class Group:
    """One batch of one target. `kernels` are those of its steps, by time."""

    name: str
    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    kernels: tuple[ShownKernel, ...]

    @property
    def colors(self) -> dict[str, str]:
        return kernel_colors(self.kernels)


@dataclass(frozen=True)
class Chart:
    groups: tuple[Group, ...]


def kernel_colors(kernels: Sequence[ShownKernel]) -> dict[str, str]:
    """A colour a kernel of a batch: those that take most, which come first, have one of their own."""
    return {each.name: _COLORS[i] if i < len(_COLORS) else _OTHERS for i, each in enumerate(kernels)}


def shade(share: float | None, most: float) -> int:
    """Which of four shades a box has whose part of the time is `share`, where the longest step's is `most`."""
    if not share or not most:
        return 0
    return min(int(len(_SHADES) * share / most), len(_SHADES) - 1)


def fill(color: str, level: int) -> str:
    """A colour on white in one of four shades; dark text can be read on each."""
    part = _SHADES[level]
    channels = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part * channel + (1 - part) * 255):02x}" for channel in channels)


def plan_group(name: str, title: str, plan: BatchPlan, explained: Batch) -> Group:
    """The steps of a batch; times are those of its explanation."""
    layers = {layer.step: layer for layer in explained.layers}
    whole = explained.totals.time
    boxes = [Box(f"{name}i{i}", (port.name, _shape(port.operand.shape))) for i, port in enumerate(plan.inputs)]
    for step in plan.steps:
        layer = layers[step.index]
        lines = (step.name, _ops(step.problem), layer.kernel, *_time(layer, whole))
        boxes.append(Box(f"{name}s{step.index}", lines, layer.kernel, _share(layer, whole), _detail(layer)))
    boxes += [Box(f"{name}o{index}", (port.name,)) for index, port in enumerate(plan.outputs)]
    return Group(name, title, tuple(boxes), tuple(_step_arrows(name, plan)), kernels_of(explained))


def graph_group(name: str, title: str, graph: Graph, explained: Batch) -> Group:
    """The nodes of a graph, each with the kernel of the step that computes it. Constants are left out; a node that no
    step stands for was folded into another, or into a constant."""
    steps = _by_node(explained)
    whole = explained.totals.time
    boxes = [Box(f"{name}i{index}", (each, format_type(graph.type(each)))) for index, each in enumerate(graph.inputs)]
    for index, node in enumerate(graph.nodes):
        layer = next((steps[each] for each in (node.name, *node.covers) if each in steps), None)
        if layer is None:
            boxes.append(Box(f"{name}n{index}", (node.name, _words(node), "no step of its own"), VIEW))
            continue
        # The node that gives the step its name has the time; it would seem to be spent once a node otherwise.
        said = _time(layer, whole) if layer.name == node.name else (f"in step {layer.name}",)
        lines = (node.name, _words(node), layer.kernel, *said)
        boxes.append(Box(f"{name}n{index}", lines, layer.kernel, _share(layer, whole), _detail(layer)))
    boxes += [Box(f"{name}o{index}", (each,)) for index, each in enumerate(graph.outputs)]
    return Group(name, title, tuple(boxes), tuple(_node_arrows(name, graph)), kernels_of(explained))


def kernels_of(explained: Batch) -> tuple[ShownKernel, ...]:
    """Those of a batch's steps, by time."""
    found: dict[str, list[float]] = {}
    for layer in explained.layers:
        if layer.kernel != VIEW:
            found.setdefault(layer.kernel, []).append(layer.time)
    whole = explained.totals.time
    kernels = [ShownKernel(k, len(t), sum(t), sum(t) / whole if whole else 0.0) for k, t in found.items()]
    return tuple(sorted(kernels, key=lambda each: (-each.time, each.name)))


def _by_node(explained: Batch) -> Mapping[str, Layer]:
    """The step that stands for each name; that of a step itself before those of nodes that it covers."""
    covered = {node: layer for layer in explained.layers if layer.kernel != VIEW for node in layer.nodes}
    views = {node: layer for layer in explained.layers if layer.kernel == VIEW for node in layer.nodes}
    return views | covered | {layer.name: layer for layer in explained.layers}


def _share(layer: Layer, whole: float) -> float | None:
    return layer.time / whole if whole and layer.kernel != VIEW else None


def _time(layer: Layer, whole: float) -> tuple[str, ...]:
    share = _share(layer, whole)
    if share is None:
        return ()
    return (f"{'' if layer.measured is not None else '~'}{layer.time:.2f} us, {share:.1%}",)


def _detail(layer: Layer) -> tuple[str, ...]:
    lines = [f"{layer.name}: {layer.words}", f"kernel: {layer.kernel}"]
    if layer.kernel != VIEW:
        how = "measured" if layer.measured is not None else "predicted"
        lines.append(f"time: {layer.time:.2f} us {how}")
    if layer.roofline is not None:
        lines.append(f"bound: {layer.roofline.bound:.2f} us by {layer.roofline.by}, {layer.roofline.share:.0%} of it")
    if layer.runner_up is not None:
        lines.append(f"runner-up: {layer.runner_up.kernel}, {layer.runner_up.margin:+.1%}")
    return tuple(lines)


def _step_arrows(name: str, plan: BatchPlan) -> Iterator[Arrow]:
    makers: dict[str, str] = {}
    inputs = {index: f"{name}i{index}" for index in range(len(plan.inputs))}
    for step in plan.steps:
        here = f"{name}s{step.index}"
        for tensor in step.inputs:
            source = makers.get(tensor.value)
            if source is None and tensor.location.kind == "input":
                source = inputs.get(tensor.location.at)
            if source is not None:
                yield Arrow(source, here, _shape(tensor.operand.shape))
        makers.update((tensor.value, here) for tensor in step.outputs)
    for index, _ in enumerate(plan.outputs):
        for step in plan.steps:
            if any((t.location.kind, t.location.at) == ("output", index) for t in step.outputs):
                yield Arrow(f"{name}s{step.index}", f"{name}o{index}")


def _node_arrows(name: str, graph: Graph) -> Iterator[Arrow]:
    makers = {each: f"{name}i{index}" for index, each in enumerate(graph.inputs)}
    for index, node in enumerate(graph.nodes):
        for each in dict.fromkeys(node.inputs):
            if each in makers:
                yield Arrow(makers[each], f"{name}n{index}", _shape(graph.type(each).shape))
        makers.update((each, f"{name}n{index}") for each in node.outputs)
    for index, each in enumerate(graph.outputs):
        if each in makers:
            yield Arrow(makers[each], f"{name}o{index}")


def _ops(problem: KernelProblem) -> str:
    return ", ".join(
        "+".join([_word(each.op), *(_word(stage.op) for stage in each.epilogue)]) for each in parts(problem)
    )


def _words(node: Node) -> str:
    return "+".join([_word(node.op), *(_word(stage.op) for stage in node.epilogue)])


def _word(op: Op) -> str:
    return op.function if isinstance(op, Activation | Binary) else op.kind


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
