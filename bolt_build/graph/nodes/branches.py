"""A graph inside a node in the node's place: the branch that an If takes, the body of a loop once for each turn, the
definition of an operator that is a function.

Exporters ask an If for what only shapes decide, such as whether `squeeze` finds an axis of extent 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bolt_build.graph.importing import Branch, OnnxNode
from bolt_build.graph.ir import Array


@dataclass(frozen=True)
class Placed:
    """What stands in the place of a node: nodes in their order, constants by name, and what the graph's outputs are
    called now, each of which may be a value of somewhere else."""

    nodes: tuple[OnnxNode, ...]
    constants: tuple[tuple[str, Array], ...]
    results: tuple[str, ...]


def placed(
    prefix: str,
    branch: Branch,
    given: Mapping[str, str],
    wanted: Sequence[str],
    tensor: Callable[[str], str],
    label: Callable[[str], str],
) -> Placed:
    """`branch` with names of the whole model. `given` says what its inputs are, and those of its constants that are
    defined already. An output that it computes gets the name `wanted` in its place, where that is one. Nodes are named
    behind `prefix`; `tensor` and `label` make a name of a value and of a node unique.
    """
    made = {name for inner in branch.nodes for name in inner.outputs if name}
    names = dict(given)
    for source, output in zip(branch.outputs, wanted, strict=False):
        if output and source in made and source not in names:
            names[source] = output
    for name in _defined(branch):
        if name not in names:
            names[name] = tensor(name)
    return Placed(
        tuple(replace(_renamed(inner, names), name=label(f"{prefix}/{inner.name}")) for inner in branch.nodes),
        tuple((names[name], array) for name, array in branch.constants if name not in given),
        tuple(names.get(source, source) for source in branch.outputs),
    )


def captured(nodes: Iterable[OnnxNode]) -> Iterator[str]:
    """Names that the graphs inside `nodes` read from outside of themselves."""
    for node in nodes:
        for branch in node.branches:
            own = {*_defined(branch), *branch.inputs}
            inside = (name for inner in branch.nodes for name in inner.inputs)
            for name in (*inside, *captured(branch.nodes), *branch.outputs):
                if name and name not in own:
                    yield name


def _defined(branch: Branch) -> tuple[str, ...]:
    names = [name for name, _ in branch.constants]
    return tuple(dict.fromkeys([*names, *(name for inner in branch.nodes for name in inner.outputs if name)]))


def _renamed(node: OnnxNode, names: Mapping[str, str]) -> OnnxNode:
    def all_of(given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in given)

    inner = []
    for branch in node.branches:
        hidden = {*_defined(branch), *branch.inputs}
        seen = {old: new for old, new in names.items() if old not in hidden}
        outputs = tuple(seen.get(name, name) for name in branch.outputs)
        inner.append(replace(branch, nodes=tuple(_renamed(each, seen) for each in branch.nodes), outputs=outputs))
    return replace(node, inputs=all_of(node.inputs), outputs=all_of(node.outputs), branches=tuple(inner))
