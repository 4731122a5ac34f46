"""Plans and graphs as Mermaid flowcharts, which GitHub, GitLab and many editors draw: https://mermaid.js.org/syntax/flowchart.html

One chart holds everything that a verb prints, a subgraph a batch of a target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bolt_build.families.common.chains import parts
from bolt_build.graph.ir import Graph, Op
from bolt_build.graph.ops.activation import Activation
from bolt_build.graph.ops.arithmetic import Binary
from bolt_build.graph.text import format_type
from bolt_build.planner.engine_plan import BatchPlan, EnginePlan, Step
from bolt_build.report.printable import printable

_COLORS = {
    "attention": "#e4d3f7", "cutlass": "#cfe3f7", "grouped": "#f7d3df", "onednn": "#d3efe0", "portable": "#f7e6c4",
}  # fmt: skip
_OTHERS = ("#d3ecef", "#efd3d3", "#e6e6c8")
"""Of families that installed packages add, in turns by name."""
_VIEW = "view"


def plan_chart(plans: Sequence[EnginePlan]) -> str:
    """Every batch of every plan: a box a step with its kernel, coloured by the kernel's family; an arrow a tensor."""
    lines = ["flowchart TD"]
    for number, plan in enumerate(plans):
        for batch in plan.plans:
            title = f"{plan.name} for {plan.target}, batch {batch.batch}"
            lines += _subgraph(f"p{number}b{batch.batch}", title, _steps(f"p{number}b{batch.batch}", batch))
    steps = [step for plan in plans for batch in plan.plans for step in batch.steps]
    families = sorted({step.candidate.family for step in steps if not step.view})
    others = [name for name in families if name not in _COLORS]
    for index, name in enumerate(families):
        color = _COLORS.get(name) or _OTHERS[others.index(name) % len(_OTHERS)]
        lines.append(f"  classDef f{index} fill:{color},stroke:#5b636b,color:#1c2024")
    lines.append("  classDef view fill:#ffffff,stroke:#5b636b,stroke-dasharray:4 3,color:#1c2024")
    for number, plan in enumerate(plans):
        for batch in plan.plans:
            for step in batch.steps:
                name = _VIEW if step.view else f"f{families.index(step.candidate.family)}"
                lines.append(f"  class p{number}b{batch.batch}s{step.index} {name}")
    return "\n".join(lines) + "\n"


def graph_chart(graphs: Sequence[tuple[str, Graph]]) -> str:
    """Graphs with their titles: a box a node, an arrow a tensor with its type. Constants are left out."""
    lines = ["flowchart TD"]
    for number, (title, graph) in enumerate(graphs):
        lines += _subgraph(f"g{number}", title, _nodes(f"g{number}", graph))
    return "\n".join(lines) + "\n"


def _subgraph(name: str, title: str, inner: Iterator[str]) -> list[str]:
    return [f'  subgraph {name}["{_text(title)}"]', *(f"    {line}" for line in inner), "  end"]


def _steps(prefix: str, batch: BatchPlan) -> Iterator[str]:
    makers: dict[str, str] = {}
    for index, port in enumerate(batch.inputs):
        yield f'{prefix}i{index}(["{_text(port.name)}<br/>{_text(_shape(port.operand.shape))}"])'
    inputs = {index: f"{prefix}i{index}" for index in range(len(batch.inputs))}
    for step in batch.steps:
        here = f"{prefix}s{step.index}"
        kernel = _VIEW if step.view else str(step.candidate)
        yield f'{here}["{_text(step.name)}<br/>{_text(_op(step))}<br/>{_text(kernel)}"]'
        for tensor in step.inputs:
            source = makers.get(tensor.value)
            if source is None and tensor.location.kind == "input":
                source = inputs.get(tensor.location.at)
            if source is not None:
                yield f'{source} -->|"{_text(_shape(tensor.operand.shape))}"| {here}'
        makers.update((tensor.value, here) for tensor in step.outputs)
    for index, port in enumerate(batch.outputs):
        here = f"{prefix}o{index}"
        yield f'{here}(["{_text(port.name)}"])'
        last = [s for s in batch.steps if any((t.location.kind, t.location.at) == ("output", index) for t in s.outputs)]
        for step in last:
            yield f"{prefix}s{step.index} --> {here}"


def _nodes(prefix: str, graph: Graph) -> Iterator[str]:
    makers = {name: f"{prefix}i{index}" for index, name in enumerate(graph.inputs)}
    for name, here in makers.items():
        yield f'{here}(["{_text(name)}<br/>{_text(format_type(graph.type(name)))}"])'
    for index, node in enumerate(graph.nodes):
        here = f"{prefix}n{index}"
        kinds = "+".join([_word(node.op), *(_word(stage.op) for stage in node.epilogue)])
        yield f'{here}["{_text(node.name)}<br/>{_text(kinds)}"]'
        for name in dict.fromkeys(node.inputs):
            if name in makers:
                yield f'{makers[name]} -->|"{_text(_shape(graph.type(name).shape))}"| {here}'
        makers.update((name, here) for name in node.outputs)
    for index, name in enumerate(graph.outputs):
        yield f'{prefix}o{index}(["{_text(name)}"])'
        if name in makers:
            yield f"{makers[name]} --> {prefix}o{index}"


def _op(step: Step) -> str:
    return ", ".join(
        "+".join([_word(each.op), *(_word(stage.op) for stage in each.epilogue)]) for each in parts(step.problem)
    )


def _word(op: Op) -> str:
    return op.function if isinstance(op, Activation | Binary) else op.kind


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _text(text: str) -> str:
    """Text inside quotes: what Mermaid or HTML would take for its own is written by its number."""
    return "".join(f"#{ord(char)};" if char in '"#&<>`\\' else char for char in printable(text).replace("\n", " "))
