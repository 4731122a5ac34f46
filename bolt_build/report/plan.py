"""An engine plan as people read it: one row a step, then what was decided and what was refused."""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.table import Table

from bolt_build.families.base import Candidate, KernelProblem
from bolt_build.planner.engine_plan import BatchPlan, EnginePlan, Location, Step, StepTensor


def render(plan: EnginePlan, *, width: int = 160) -> str:
    """The whole plan as text."""
    console = Console(file=StringIO(), width=width, highlight=False, color_system=None)
    weights = sum(slot.nbytes for slot in plan.weights)
    console.print(f"{plan.name} for {plan.target} in {plan.precision}: {len(plan.weights)} weights, {_bytes(weights)}")
    for batch in plan.plans:
        console.print(
            f"\nbatch {batch.batch}: {len(batch.steps)} steps, arena {_bytes(batch.arena_bytes)}"
            f" (largest live set {_bytes(batch.live_peak)})"
        )
        console.print(_steps(batch))
    _decisions(console, plan)
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def _steps(batch: BatchPlan) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("step", "layer", "op", "result", "kernel", "reads", "writes"):
        table.add_column(column, justify="right" if column == "step" else "left", overflow="fold")
    for step in batch.steps:
        table.add_row(
            str(step.index), step.name, _op(step.problem), _operand(step.outputs[0]), _kernel(step),
            " ".join(_place(tensor.location) for tensor in step.inputs),
            " ".join(_place(tensor.location) for tensor in step.outputs),
        )  # fmt: skip
    return table


def _decisions(console: Console, plan: EnginePlan) -> None:
    if plan.decisions:
        console.print(f"\n{len(plan.decisions)} decisions")
        for decision in plan.decisions:
            text = f"  {decision.stage}: {decision.subject}: {decision.action} ({decision.reason})"
            console.print(text, markup=False, soft_wrap=True)
    if plan.refusals:
        console.print(f"\n{len(plan.refusals)} refusals")
        for refusal in plan.refusals:
            console.print(f"  {refusal.family}: {refusal.what}: {refusal.reason}", markup=False, soft_wrap=True)


def _op(problem: KernelProblem) -> str:
    return "+".join([problem.op.kind, *(stage.op.kind for stage in problem.epilogue)])


def _operand(tensor: StepTensor) -> str:
    return f"{'x'.join(map(str, tensor.operand.shape))} {tensor.operand.format}"


def _kernel(step: Step) -> str:
    return "view" if step.view else _candidate(step.candidate)


def _candidate(candidate: Candidate) -> str:
    return " ".join([candidate.family, *(f"{name}={value}" for name, value in candidate.parameters)])


def _place(location: Location) -> str:
    return f"@{location.at}" if location.kind == "arena" else f"{location.kind[0]}{location.at}"


def _bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count} B"
