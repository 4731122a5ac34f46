"""Whether an engine fits into the memory of its target's GPU."""

from __future__ import annotations

from collections.abc import Sequence

from bolt_build.errors import BoltError, Diagnostic
from bolt_build.planner.engine_plan import BatchPlan, WeightSlot
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.targets import Target


def check_memory(
    weights: Sequence[WeightSlot], plans: Sequence[BatchPlan], recipe: Recipe, spec: TargetSpec, target: Target
) -> None:
    """Raises BoltError ("gpu-memory") with each plan whose arena, inputs and outputs, beside the engine's weights, need
    more bytes than any GPU of the target's name has. What kernels prepare of weights comes on top, and is not counted.
    """
    if target.gpu is None or not target.gpu.memory:
        return
    held = weights[-1].offset + weights[-1].nbytes if weights else 0
    found = []
    for plan in plans:
        ports = sum(port.operand.nbytes for port in (*plan.inputs, *plan.outputs))
        if (total := held + plan.arena_bytes + ports) > target.gpu.memory:
            parts = f"weights {_text(held)}, arena {_text(plan.arena_bytes)}, inputs and outputs {_text(ports)}"
            message = (
                f"{plan.sizes} needs {_text(total)} of memory ({parts}), and '{target.name}' has"
                f" {_text(target.gpu.memory)} at most"
            )
            hint = "bind a smaller batch or smaller dimensions, or take a target with more memory"
            found.append(Diagnostic("gpu-memory", message, recipe.mark(f"targets.{spec.name}"), hint))
    if found:
        raise BoltError(found)


def _text(nbytes: int) -> str:
    unit, name = (2**30, "GiB") if nbytes >= 2**30 else (2**20, "MiB")
    return f"{nbytes / unit:.1f} {name}"
