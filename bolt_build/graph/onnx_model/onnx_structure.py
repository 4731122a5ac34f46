"""Names of an ONNX graph: what defines them, what reads them, and which nodes its outputs depend on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import onnx
from onnx import AttributeProto

from bolt_build.graph.limits import MOST_FILE_NODES
from bolt_build.graph.onnx_model.onnx_findings import Findings
from bolt_build.graph.onnx_model.onnx_parse import subgraphs


def check_definitions(findings: Findings, graph: onnx.GraphProto) -> None:
    """Reports names given twice or not at all, and tensors used before or without being defined."""
    given = (
        ("initializer", [tensor.name for tensor in graph.initializer]),
        ("sparse initializer", [sparse.values.name for sparse in graph.sparse_initializer]),
        ("graph input", [value.name for value in graph.input]),
    )
    for what, names in given:
        for name, count in Counter(names).items():
            if not name:
                findings.report("invalid-model", f"{'an' if what[0] == 'i' else 'a'} {what} has no name")
            elif count > 1:
                findings.report("duplicate-tensor", f"the {what} '{name}' is given {count} times")
    _check_defaults(findings, graph)
    defined = {name for _, names in given for name in names}
    produced = {name for node in graph.node for name in node.output if name}
    missed: set[str] = set()
    for node in graph.node:
        label = f"{node.op_type} '{node.name}'" if node.name else node.op_type
        for name in node.input:
            if name and name not in defined and name not in missed:
                why = "before it is computed" if name in produced else "which nothing defines"
                findings.report("undefined-tensor", f"{label} reads '{name}', {why}")
                missed.add(name)
        for name in node.output:
            if name and name in defined:
                findings.report("duplicate-tensor", f"{label} defines '{name}', which is defined already")
            defined.add(name)
    for output in graph.output:
        if not output.name:
            findings.report("invalid-model", "a graph output has no name")
        elif output.name not in defined and output.name not in missed:
            findings.report("undefined-tensor", f"the graph's output '{output.name}' is not defined by anything")


def _check_defaults(findings: Findings, graph: onnx.GraphProto) -> None:
    """Reports initializers that are not what the graph input of the same name is declared as: runtimes refuse them."""
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for value in graph.input:
        tensor, declared = stored.get(value.name), value.type.tensor_type
        if tensor is None or not declared.elem_type:
            continue
        dims = declared.shape.dim
        fits = not declared.HasField("shape") or (
            len(dims) == len(tensor.dims)
            and all(
                dim.dim_value == extent or not dim.HasField("dim_value")
                for dim, extent in zip(dims, tensor.dims, strict=True)
            )
        )
        if declared.elem_type != tensor.data_type or not fits:
            shape = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in dims]
            message = (
                f"the initializer '{value.name}' is {_named(tensor.data_type, tensor.dims)}, but the graph input of"
                f" that name is declared as {_named(declared.elem_type, shape)}"
            )
            findings.report("invalid-model", message, "export the model again, or leave the input out")


def _named(kind: int, dims: Iterable[int | str]) -> str:
    known = {number: name for name, number in onnx.TensorProto.DataType.items()}
    return f"{known.get(kind, str(kind)).lower()}[{', '.join(map(str, dims))}]"


def live_nodes(findings: Findings, graph: onnx.GraphProto) -> list[tuple[int, onnx.NodeProto]]:
    """The nodes that some output depends on, each with its place in the file. Raises BoltError for too many."""
    needed = {output.name for output in graph.output}
    found: list[tuple[int, onnx.NodeProto]] = []
    for index in range(len(graph.node) - 1, -1, -1):
        node = graph.node[index]
        if needed.isdisjoint(name for name in node.output if name):
            continue
        needed.update(name for name in node.input if name)
        for attribute in node.attribute:
            needed.update(captured(attribute))
        found.append((index, node))
    if len(found) > MOST_FILE_NODES:
        message = f"the model's outputs depend on {len(found)} nodes; supported are {MOST_FILE_NODES}"
        raise findings.fail("model-too-large", message, "give it in parts")
    return found[::-1]


def captured(attribute: AttributeProto) -> Iterator[str]:
    """Names that the graphs of an attribute, and those inside them, may read from outside."""
    for graph in subgraphs(attribute):
        yield from (output.name for output in graph.output)
        for node in graph.node:
            yield from node.input
            for inner in node.attribute:
                yield from captured(inner)


def unique_names(nodes: Iterable[tuple[int, onnx.NodeProto]]) -> list[str]:
    """A name for each node: its own, or its operator and place; with a number behind it where another has it."""
    nodes = list(nodes)
    taken = {node.name for _, node in nodes if node.name}
    used: set[str] = set()
    counts: Counter[str] = Counter()
    names = []
    for index, node in nodes:
        base = node.name or f"{node.op_type}_{index}"
        name = base
        while name in used or (name in taken and name != node.name):
            counts[base] += 1
            name = f"{base}#{counts[base] + 1}"
        used.add(name)
        names.append(name)
    return names
