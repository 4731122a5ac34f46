"""What holds of every mixed model between the file and the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from in_place_plans import HOST, LAST_IO, ROW_IO, Pitching, Storing
from mixed_graphs import Array
from mixed_models import Mixed, differs
from planner_checks import no_step_overwrites_what_is_read_later
from planner_fakes import HOST_TARGET, POLICY, SPEC, recipe
from planner_interpreter import random_order, run_plan

from bolt_build.families import load
from bolt_build.graph.reference import evaluate
from bolt_build.planner.pipeline import optimize
from bolt_build.planner.plan_engine import plan_engine
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import target_named

CLOSE = 2e-4


def wrong(mixed: Mixed, found: Mapping[str, Array], tolerance: float = CLOSE) -> dict[str, str]:
    """The outputs about which onnxruntime says something else, and how they differ."""
    compared = {name: differs(np.asarray(found[name]), mixed.outputs[name], tolerance) for name in mixed.known}
    return {name: how for name, how in compared.items() if how is not None}


def every_stage_keeps_the_numbers(mixed: Mixed, seed: int, folder: Path) -> None:
    """The imported graph, that behind all passes for three targets, and a plan run in NumPy. Raises BoltError where the
    model is refused, AssertionError where a stage is wrong."""
    graph = mixed.graph(folder)
    assert wrong(mixed, evaluate(graph, mixed.inputs)) == {}, "imported"
    for name, precision in (("host", "fp32"), ("h200", "fp16"), ("t4", "fp16")):
        optimised = optimize(graph, POLICY, target_named(name), precision).graph
        assert wrong(mixed, evaluate(optimised, mixed.inputs)) == {}, f"optimised for {name}"
    queues, io = (1, 3)[seed % 2], (ROW_IO, LAST_IO)[seed // 2 % 2]
    families = (HOST, (Pitching(),), (Storing(),))[seed % 3]
    engine = plan_engine([graph], recipe(io), SPEC, replace(HOST_TARGET, queues=queues), families)
    (plan,) = engine.plan.plans
    no_step_overwrites_what_is_read_later(plan)
    assert wrong(mixed, run_plan(engine, plan, mixed.inputs, random_order(plan, seed))) == {}, "planned"


def plans_for_a_gpu_keep_the_numbers(mixed: Mixed, name: str, folder: Path) -> None:
    """In single precision; in half precision they are made. Raises as above."""
    target, graph = target_named(name), mixed.graph(folder)
    for precision in ("fp16", "fp32"):
        engine = plan_engine([graph], recipe(), TargetSpec(name, precision), target, load(target))
        (plan,) = engine.plan.plans
        no_step_overwrites_what_is_read_later(plan)
    assert wrong(mixed, run_plan(engine, plan, mixed.inputs)) == {}, f"planned for {name}"
