"""Where a model can end that cannot be had as a whole, so that all in front of what is in the way is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bolt_build.graph.importing import OnnxNode
from bolt_build.graph.nodes.branches import captured

_MOST_NAMES = 32
"""Of a hint: beyond that a model has another end that someone knows."""


def cut(
    nodes: Sequence[OnnxNode], outputs: Sequence[str], lost: Callable[[str], bool], data: Callable[[str], bool]
) -> tuple[str, ...]:
    """The outputs that can be had, and the tensors that nodes read in front of those that are `lost`, in the order of
    `nodes`; none where there are too many to name. `data` says which values that can be had are tensors of data."""
    makers = {name: index for index, node in enumerate(nodes) for name in node.outputs if name}
    found, met = set[str](), set[str]()
    waiting = list(outputs)
    while waiting:
        name = waiting.pop()
        if name in met or name not in makers:
            continue
        met.add(name)
        if lost(name):
            node = nodes[makers[name]]
            waiting += [*node.inputs, *captured([node])]
        elif data(name):
            found.add(name)
    return tuple(sorted(found, key=makers.__getitem__)) if len(found) <= _MOST_NAMES else ()
