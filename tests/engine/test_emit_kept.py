"""Which constants stay for the run: families read the others when the model is created, as `StepCode` promises."""

from __future__ import annotations

import re

import pytest
from families_harness import Layer, graph_with
from families_layers import LAYERS

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import StepExpressions
from bolt_build.graph.ir import Graph, Node
from bolt_build.targets import Target, target_named


@pytest.mark.parametrize("kind", sorted({layer.op.kind for layer in LAYERS}))
def test_a_call_reads_no_constant_that_was_read_before(kind: str) -> None:
    for layer in (layer for layer in LAYERS if layer.op.kind == kind):
        graph, node = graph_with(layer)
        for name in ("host", "h200"):
            assert_reads_no_constant_again(graph, node, layer, target_named(name))


def assert_reads_no_constant_again(graph: Graph, node: Node, layer: Layer, target: Target) -> None:
    for family in load(target):
        precision = DType.F16 if target.gpu is not None else layer.precision
        for alternative in family.propose(graph, node, target, precision)[0]:
            for step in (step for step in alternative.steps if not step.view):
                problem = step.problem
                constants = [index for index, operand in enumerate(problem.inputs) if operand.constant]
                at = StepExpressions(
                    tuple(f"in_{index}_" for index in range(len(problem.inputs))), ("out",),
                    tuple(f"made_{index}_" if index in constants else None for index in range(len(problem.inputs))),
                )  # fmt: skip
                (candidate, *_), _ = family.candidates(problem, target)
                code = family.emit(problem, candidate, target, at)
                read = {int(index) for index in re.findall(r"\bin_(\d+)_", code.call)}
                prepared = {int(index) for index in re.findall(r"\bmade_(\d+)_", code.member_arguments)}
                kept = set(constants if code.member_type is None else [index for index in constants if index == 0])
                assert read & set(constants) == kept, (layer.label, target.name)
                assert prepared | kept == set(constants), (layer.label, target.name)
