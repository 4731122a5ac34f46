"""What a new plan gives to warn of: layers that it does not have, and more memory than its GPU has."""

from __future__ import annotations

from bolt_build.build.planning.unmatched_layers import unmatched_layers
from bolt_build.emit.weights import payload_bytes
from bolt_build.errors import Diagnostic
from bolt_build.planner.engine_plan import BatchPlan, EnginePlan
from bolt_build.planner.plan_engine import PlannedEngine
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.targets import Target

_GIB = 1 << 30


def plan_warnings(recipe: Recipe, spec: TargetSpec, target: Target, planned: PlannedEngine) -> tuple[Diagnostic, ...]:
    """Warnings about a plan that was just made."""
    return (*unmatched_layers(recipe, spec, planned), *_beyond_memory(recipe, spec, target, planned.plan))


def _beyond_memory(recipe: Recipe, spec: TargetSpec, target: Target, plan: EnginePlan) -> tuple[Diagnostic, ...]:
    """A warning where the GPU has no room for the weights and one context of the largest plan.

    It is no error: a GPU of the same name may have more, and an engine may be built for its smaller batches."""
    if target.gpu is None or not target.gpu.memory:
        return ()
    weights = payload_bytes(plan.weights)
    largest = max(plan.plans, key=_context_bytes)
    needed = weights + _context_bytes(largest)
    if needed <= target.gpu.memory:
        return ()
    message = (
        f"{largest.sizes} needs {_gib(needed)} GiB for weights, arena, inputs and outputs: {target.description} has "
        f"{_gib(target.gpu.memory)} GiB"
    )
    key = f"targets.{spec.name}.batch" if spec.batch else "model.batch"
    hint = "creating a context of it will fail; give a smaller batch, or smaller dimensions"
    return (Diagnostic("beyond-memory", message, recipe.mark(key), hint, severity="warning"),)


def _context_bytes(plan: BatchPlan) -> int:
    """What a context and the caller's inputs and outputs take."""
    return plan.arena_bytes + sum(port.operand.nbytes for port in (*plan.inputs, *plan.outputs))


def _gib(count: int) -> str:
    return f"{count / _GIB:.0f}" if count % _GIB == 0 else f"{count / _GIB:.1f}"
