"""What is said of nodes that no family has a kernel for: the reason that holds, and each node once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bolt_build.digest import canonical_json
from bolt_build.dtypes import DType
from bolt_build.errors import Diagnostic
from bolt_build.graph.ir import Graph, Node, Op
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.targets import Target

_NAMES_SHOWN = 5


def _describe(op: Op) -> str:
    """An op and its attributes in one line."""
    fields = {name: value for name, value in vars(op).items() if not name.startswith("_")}
    text = " ".join(f"{name}={canonical_json(value)}" for name, value in fields.items())
    return f"{op.kind} {text}".rstrip()


def no_kernel(
    graph: Graph, missing: Sequence[tuple[Node, Sequence[str]]], recipe: Recipe, spec: TargetSpec, target: Target
) -> list[Diagnostic]:
    """One "no-kernel" for all nodes in double precision, which no family computes in, and one for each other node of
    `missing`, with what the families said of it."""
    mark = recipe.mark(f"targets.{spec.name}")
    double = [node for node, _ in missing if _in_double(graph, node)]
    found = []
    if double:
        precisions = " and ".join(target.precisions)
        computed = f"computed in double precision (f64), and '{target.name}' computes in {precisions}"
        message = f"no kernel: {_named(double)} would be {computed}"
        hint = "export the model in single precision (PyTorch: model.float())"
        found.append(Diagnostic("no-kernel", message, mark, hint))
    for node, reasons in missing:
        if node not in double:
            types = dict.fromkeys(graph.type(name).dtype.value for name in (*node.inputs, *node.outputs) if name)
            what = f"{_describe(node.op)} in {' and '.join(types)}"
            message = f"no kernel for node '{node.name}', {what}: {'; '.join(reasons)}"
            found.append(Diagnostic("no-kernel", message, mark, subject=", ".join(node.covers) or node.name))
    return found


def _in_double(graph: Graph, node: Node) -> bool:
    return any(graph.type(name).dtype is DType.F64 for name in (*node.inputs, *node.outputs) if name)


def _named(nodes: Iterable[Node]) -> str:
    """The ONNX nodes that `nodes` cover, the first of them by name."""
    names = list(dict.fromkeys(name for node in nodes for name in node.covers or (node.name,)))
    shown = ", ".join(f"'{name}'" for name in names[:_NAMES_SHOWN])
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"{'node' if len(names) == 1 else 'nodes'} {shown}{more}"
