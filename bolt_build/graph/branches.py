"""An If whose condition is known at import: the branch that is taken, with names of the whole model.

Exporters ask so for what only shapes decide, such as whether `squeeze` finds an axis of extent 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from bolt_build.graph.importing import Branch, OnnxNode, Refusal
from bolt_build.graph.ir import Array


@dataclass(frozen=True)
class Taken:
    """What stands in the place of an If: nodes in their order, constants by name, and the outputs of the If that
    repeat another value, each behind it."""

    nodes: tuple[OnnxNode, ...]
    constants: tuple[tuple[str, Array], ...]
    copied: tuple[tuple[str, str], ...]


def taken(node: OnnxNode, branch: Branch, tensor: Callable[[str], str], label: Callable[[str], str]) -> Taken:
    """The branch in the place of `node`. `tensor` and `label` make a name of a value and of a node unique.

    Raises Refusal where the branch has other outputs than the node.
    """
    if len(branch.outputs) < len(node.outputs):
        message = f"a branch has {len(branch.outputs)} outputs where {len(node.outputs)} are used"
        raise Refusal("invalid-node", message)
    made = {name for inner in branch.nodes for name in inner.outputs if name}
    names: dict[str, str] = {}
    copied = []
    for source, output in zip(branch.outputs, node.outputs, strict=False):
        if not output:
            continue
        if source in made and source not in names:
            names[source] = output
        else:
            copied.append((source, output))
    for name in _defined(branch):
        if name not in names:
            names[name] = tensor(name)
    return Taken(
        tuple(replace(_renamed(inner, names), name=label(f"{node.name}/{inner.name}")) for inner in branch.nodes),
        tuple((names[name], array) for name, array in branch.constants),
        tuple((names.get(source, source), output) for source, output in copied),
    )


def captured(nodes: Iterable[OnnxNode]) -> Iterator[str]:
    """Names that the branches of `nodes` read from outside of themselves."""
    for node in nodes:
        for branch in node.branches:
            own = set(_defined(branch))
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
        hidden = set(_defined(branch))
        seen = {old: new for old, new in names.items() if old not in hidden}
        outputs = tuple(seen.get(name, name) for name in branch.outputs)
        inner.append(replace(branch, nodes=tuple(_renamed(each, seen) for each in branch.nodes), outputs=outputs))
    return replace(node, inputs=all_of(node.inputs), outputs=all_of(node.outputs), branches=tuple(inner))
