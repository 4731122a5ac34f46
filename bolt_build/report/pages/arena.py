"""How much of the arena is in use while each step runs."""

from __future__ import annotations

from bolt_build.planner.engine_plan import BatchPlan


def live_bytes(plan: BatchPlan) -> tuple[int, ...]:
    """For each step the bytes of the arena that hold a tensor which is needed then: from the step that writes it to the
    last that reads it, both included. Tensors that share bytes (views, steps in place) count once."""
    spans: dict[tuple[str, int], tuple[int, int, int]] = {}
    for step in plan.steps:
        for tensor in (*step.inputs, *step.outputs):
            if tensor.location.kind == "arena":
                begin = tensor.location.at + tensor.location.offset
                first, _, end = spans.get((tensor.value, begin), (step.index, 0, begin))
                spans[tensor.value, begin] = (first, step.index, max(end, begin + tensor.reach))
    return tuple(
        _covered([(begin, end) for (_, begin), (first, last, end) in spans.items() if first <= step.index <= last])
        for step in plan.steps
    )


def _covered(parts: list[tuple[int, int]]) -> int:
    """Bytes in at least one of the parts."""
    total, reached = 0, 0
    for begin, end in sorted(parts):
        total += max(end - max(begin, reached), 0)
        reached = max(reached, end)
    return total
