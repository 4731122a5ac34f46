"""The heavy half of planning: parses the ONNX file and runs the planner. Importing this loads onnx and NumPy."""

from __future__ import annotations

from pathlib import Path

from bolt_build.build.planning.model_mark import marked
from bolt_build.families import load
from bolt_build.graph.ir import Graph
from bolt_build.graph.onnx_import import OnnxModel, load_model
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.planner.selection import PREDICTED, Selection
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.targets import Target


def parse(path: Path) -> OnnxModel:
    """The ONNX file, parsed. Raises BoltError."""
    return load_model(path)


def plan_parsed(
    model: OnnxModel, recipe: Recipe, spec: TargetSpec, target: Target, selection: Selection = PREDICTED
) -> PlannedEngine:
    """The engine plan of one target with its graphs and constants, with the kernels of `selection` where it has them.

    Raises BoltError.
    """
    return plan_engine(graphs_of(model, recipe, spec), recipe, spec, target, load(target), selection)


def graphs_of(model: OnnxModel, recipe: Recipe, spec: TargetSpec) -> tuple[Graph, ...]:
    """The graphs of a target's engine. Raises BoltError, with the recipe's line."""
    with marked(recipe):
        return model.graphs(recipe.batches(spec), recipe.model.dims, recipe.model.lengths)
