"""Regions that wait: one that reads what others make of its own values, and regions of a cover that wait for each
other. A kernel that stores what lies between its operators, for others to read, makes both possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bolt_build.families.base import Alternative
from bolt_build.graph.ir import Graph


def refuse_wait(graph: Graph, places: Mapping[str, int], alternative: Alternative) -> str | None:
    """Why no kernel computes the alternative's region: it would have to wait for nodes outside that read what it
    stores. None where it has all that it reads. `places` are those of nodes in the graph's order."""
    if len(alternative.region) == 1:
        return None
    inside = [places[name] for name in alternative.region]
    own = {name for place in inside for name in graph.nodes[place].outputs}
    made = dict[str, str]()
    for place in range(min(inside) + 1, max(inside) + 1):
        node = graph.nodes[place]
        if place in inside:
            if (late := next((name for name in node.inputs if name in made), None)) is not None:
                return f"'{node.name}' reads '{late}', which is made of '{made[late]}' outside of the kernel"
        elif (read := next((name for name in node.inputs if name in own or name in made), None)) is not None:
            made.update(dict.fromkeys(node.outputs, made.get(read, read)))
    return None


class Waits(NamedTuple):
    """An alternative of a cover, and one of those that it waits for and that wait for it."""

    alternative: Alternative
    other: Alternative


def waits_of(chosen: Sequence[Alternative]) -> Waits | None:
    """Of alternatives that wait for each other the first that has several nodes; None where none do."""
    makers = {name: number for number, each in enumerate(chosen) for step in each.steps for name in step.outputs}
    needs = [
        {makers[name] for step in each.steps for name in step.inputs if name in makers} - {number}
        for number, each in enumerate(chosen)
    ]
    done = set[int]()
    for first in range(len(chosen)):
        # Depth first, without recursion: graphs are deep.
        path = {first: iter(sorted(needs[first]))} if first not in done else {}
        while path:
            number, rest = next(reversed(path.items()))
            found = next((each for each in rest if each not in done), None)
            if found is None:
                done.add(number)
                path.popitem()
            elif found in path:
                walked = [*path]
                circle = walked[walked.index(found) :]
                several = next(each for each in circle if len(chosen[each].region) > 1)
                other = next(each for each in circle if each != several)
                return Waits(chosen[several], chosen[other])
            else:
                path[found] = iter(sorted(needs[found]))
    return None
