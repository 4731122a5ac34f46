"""Plans of graphs whose rows may lie apart, run and compared, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner_checks import compare, no_step_overwrites_what_is_read_later, random_inputs
from planner_fakes import AS_MODEL, HOST_TARGET, SPEC, recipe
from planner_interpreter import random_order, run_plan

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Alternative, Family, ProposedStep, Refusal
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Graph, Node
from bolt_build.graph.reference import evaluate
from bolt_build.planner.engine_plan import BatchPlan, Step
from bolt_build.planner.plan_engine import PlannedEngine, plan_engine
from bolt_build.schema.recipe import IoSpec
from bolt_build.targets import Target

ROW_IO, LAST_IO = AS_MODEL, IoSpec("model", "channels_last")
HOST = load(HOST_TARGET)


def apart(step: ProposedStep) -> ProposedStep:
    """The step with rows of the output, and of all inputs, that may lie apart: the interpreter can do that."""
    return step if step.view else replace(step, pitched=(0,), reads_apart=tuple(range(len(step.inputs))))


class Pitching(Portable):
    """Kernels of one family for everything, whose rows may lie apart."""

    step = staticmethod(apart)

    def propose(
        self, graph: Graph, node: Node, target: Target, precision: DType
    ) -> tuple[tuple[Alternative, ...], tuple[Refusal, ...]]:
        alternatives, refusals = super().propose(graph, node, target, precision)
        rows = tuple(replace(a, steps=tuple(map(self.step, a.steps))) for a in alternatives)
        return rows, refusals


def stored_apart(step: ProposedStep) -> ProposedStep:
    return replace(apart(step), reads_apart=())


class Storing(Pitching):
    """The same, but nothing reads rows that lie apart."""

    step = staticmethod(stored_apart)


def planned(of: Graph, queues: int = 1, io: IoSpec = AS_MODEL, families: Sequence[Family] = HOST) -> PlannedEngine:
    """The engine, whose plan has been run and compared, in its own order and in one that its queues allow."""
    engine = plan_engine([of], recipe(io), SPEC, replace(HOST_TARGET, queues=queues), families)
    (plan,) = engine.plan.plans
    no_step_overwrites_what_is_read_later(plan)
    inputs = random_inputs(of, 0)
    expected = evaluate(of, inputs)
    compare(run_plan(engine, plan, inputs), expected, 1e-5)
    compare(run_plan(engine, plan, inputs, random_order(plan, 0)), expected, 1e-5)
    return engine


def places(plan: BatchPlan) -> dict[str, str]:
    """Where each value lies that a step makes: its memory, and the bytes from and to."""

    def shown(step: Step) -> dict[str, str]:
        found = {}
        for t in step.outputs:
            begin = t.location.at if t.location.kind == "arena" else t.location.offset
            found[t.value] = f"{t.location.kind} {begin}-{begin + t.operand.nbytes}"
        return found

    return {name: place for step in plan.steps for name, place in shown(step).items()}


def kernels(plan: BatchPlan) -> list[str]:
    return [f"{step.name}: {'view' if step.view else step.problem.op.kind}" for step in plan.steps]


def said(engine: PlannedEngine) -> list[tuple[str, str, str]]:
    return [(d.subject, d.action, d.reason) for d in engine.plan.decisions if d.stage == "write-in-place"]


PITCHING, STORING = Pitching(), Storing()
