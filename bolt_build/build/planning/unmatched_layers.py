"""What a recipe says of layers that the engine does not have. It would be lost without a word."""

from __future__ import annotations

from bolt_build.errors import Diagnostic
from bolt_build.planner.layer_wishes import reaches
from bolt_build.planner.plan_engine import PlannedEngine
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.user_files import shell_word
from bolt_build.wording import suggest


def unmatched_layers(recipe: Recipe, spec: TargetSpec, planned: PlannedEngine) -> tuple[Diagnostic, ...]:
    """A warning for each glob under `layers` that matches no node of any of the target's graphs.

    It is no error, because passes may leave out on one target what another has."""
    nodes = [node for graph in planned.graphs for node in graph.nodes]
    names = dict.fromkeys(name for node in nodes for name in (node.name, *node.covers))
    lost = [layer.match for layer in recipe.layers if not any(reaches(layer.match, node) for node in nodes)]
    lists = f"'bolt-build plan {shell_word(recipe.path)} --target {spec.name}' lists the layers"
    return tuple(
        Diagnostic(
            "no-such-layer", f"'{match}' matches no layer of the engine for {spec.name}",
            recipe.mark(f"layers.{match}"), suggest(match, names) or lists, severity="warning",
        )
        for match in lost
    )  # fmt: skip
