"""An engine plan as people read it: one row a step, then what was decided and what was refused."""

from __future__ import annotations

from collections.abc import Iterable

from bolt_build.families.base import KernelProblem
from bolt_build.families.common.chains import parts
from bolt_build.planner.engine_plan import EnginePlan, Location, Step
from bolt_build.report.brief import kernel_name, wrapped
from bolt_build.report.printable import printable
from bolt_build.report.tables import Column, byte_text, table
from bolt_build.wording import many

_COLUMNS = (
    Column("step", right=True), Column("layer", name=True), Column("op", spare=2), Column("shape"),
    Column("format", spare=3), Column("kernel", name=True, spare=1), Column("reads", spare=4),
    Column("writes", spare=4),
)  # fmt: skip
_NAMED = 3
"""Subjects of one decision or refusal that are named; `--format json` has all."""
_LEGEND = "reads, writes: @ byte of the arena, w weight, i input, o output"


def render(plan: EnginePlan, *, width: int | None = None) -> str:
    """The whole plan as text; tables are made to fit `width` characters, None is no limit."""
    weights = sum(slot.nbytes for slot in plan.weights)
    count = f"{many(len(plan.weights), 'weight')}, {byte_text(weights)}"
    lines = [f"{plan.name} for {plan.target} in {plan.precision}: {count}", _LEGEND]
    for batch in plan.plans:
        arena = f"arena {byte_text(batch.arena_bytes)} (largest live set {byte_text(batch.live_peak)})"
        lines += ["", f"{batch.sizes}: {many(len(batch.steps), 'step')}, {arena}"]
        lines += [line.plain for line in table(_COLUMNS, [_row(step) for step in batch.steps], width)]
    said = ["", *map(str, plan.slow)] if plan.slow else []
    return printable("\n".join(lines + wrapped([*said, *_decisions(plan)], width)) + "\n")


def _row(step: Step) -> tuple[str, ...]:
    return (
        str(step.index), step.name, _op(step.problem), "x".join(map(str, step.outputs[0].operand.shape)),
        str(step.outputs[0].operand.format), _kernel(step),
        " ".join(_place(tensor.location) for tensor in step.inputs),
        " ".join(_place(tensor.location) for tensor in step.outputs),
    )  # fmt: skip


def _decisions(plan: EnginePlan) -> list[str]:
    lines = []
    if plan.decisions:
        lines += ["", many(len(plan.decisions), "decision")]
        lines += _grouped((d.stage, d.subject, f"{d.action} ({d.reason})") for d in plan.decisions)
    if plan.refusals:
        lines += ["", many(len(plan.refusals), "refusal")]
        lines += _grouped((refusal.family, refusal.what, refusal.reason) for refusal in plan.refusals)
    return lines


def _grouped(said: Iterable[tuple[str, str, str]]) -> list[str]:
    """Who says what of which subjects: a line for all subjects of which the same is said, each once, the first ones by
    name."""
    groups: dict[tuple[str, str], dict[str, None]] = {}
    for who, subject, words in said:
        groups.setdefault((who, words), {})[subject] = None
    return [f"  {who}: {_named([*subjects])}: {words}" for (who, words), subjects in groups.items()]


def _named(subjects: list[str]) -> str:
    rest = len(subjects) - _NAMED
    shown = ", ".join(subjects[:_NAMED])
    return f"{shown} and {rest} more" if rest > 0 else shown


def _op(problem: KernelProblem) -> str:
    return ", ".join("+".join([each.op.kind, *(stage.op.kind for stage in each.epilogue)]) for each in parts(problem))


def _kernel(step: Step) -> str:
    return "view" if step.view else kernel_name(step.candidate)


def _place(location: Location) -> str:
    begin = f"+{location.offset}" if location.offset else ""
    return f"@{location.at}" if location.kind == "arena" else f"{location.kind[0]}{location.at}{begin}"
