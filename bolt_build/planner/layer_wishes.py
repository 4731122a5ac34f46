"""What a recipe wants of each node where it may say "auto", "always" or "never": of all, and of single layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bolt_build.graph.ir import Node
from bolt_build.planner.engine_plan import Decision
from bolt_build.wording import many


@dataclass(frozen=True)
class LayerWishes:
    """The wish for nodes that no layer's override names, and its `key`; by name the wishes for others, with keys."""

    default: str
    key: str
    of_node: Mapping[str, tuple[str, str]]

    def of(self, region: Sequence[str]) -> tuple[str, str]:
        """What is wanted of such nodes together, and the key that says so.

        What is said of a layer holds before what is said of all, and `never` of one layer before `always` of another.
        """
        said = [self.of_node[name] for name in region if name in self.of_node]
        for wanted in ("never", "always", "auto"):
            for wish, key in said:
                if wish == wanted:
                    return wish, key
        return self.default, self.key


def layer_wishes(
    nodes: Sequence[Node], default: str, key: str, word: str, layers: Iterable[tuple[str, str]]
) -> LayerWishes:
    """The wishes for `nodes`: `key` says the default, and `word` of the layers that a glob names another one; of
    several globs that match, the last one holds."""
    of_node: dict[str, tuple[str, str]] = {}
    for match, wish in layers:
        of_node.update(dict.fromkeys(_reached(nodes, match), (wish, f"layers['{match}'].{word}")))
    return LayerWishes(default, key, of_node)


def reach_of(
    nodes: Sequence[Node], stage: str, word: str, layers: Iterable[tuple[int, str, str]]
) -> tuple[Decision, ...]:
    """A line for each override (its place in the recipe, its glob and its wish): how many nodes it reached."""
    decisions = []
    for index, match, wish in layers:
        count = len(_reached(nodes, match))
        if count:
            action, reason = f"set {word} {wish}", f"'{match}' matches {many(count, 'node')}"
        else:
            action, reason = "declined", f"'{match}' matches no node of the optimised graph"
        decisions.append(Decision(stage, f"layers[{index}]", action, reason))
    return tuple(decisions)


def reaches(match: str, node: Node) -> bool:
    """Whether the glob `match` is of the node, or of an ONNX node that is part of it."""
    return any(fnmatchcase(name, match) for name in (node.name, *node.covers))


def _reached(nodes: Sequence[Node], match: str) -> tuple[str, ...]:
    return tuple(node.name for node in nodes if reaches(match, node))
