"""Engines whose tensors lie within each other, in the arena and in the caller's buffers, agree with onnxruntime."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from copies_models import branches, parts
from engine_builds import passing_engine
from lifetimes import overlaps

MODELS = {"parts": parts, "branches": branches}


@pytest.mark.parametrize("name", ["parts", pytest.param("branches", marks=pytest.mark.large)])
def test_what_lies_within_something_else_is_right(name: str, tmp_path: Path, cache: Path) -> None:
    model: onnx.ModelProto = MODELS[name]()
    with passing_engine(tmp_path / "p", name, model, cache, batch=[1, 2], samples=2) as built:
        for plan in built.plan.plans:
            assert overlaps(plan) == []


def test_parts_lie_in_the_callers_buffers(tmp_path: Path, cache: Path) -> None:
    """Batch 1: a slice is read where the caller's input is, and a concatenation written where its output is."""
    with passing_engine(tmp_path / "p", "parts", parts(), cache, batch=[1], samples=2) as built:
        (plan,) = built.plan.plans
        places = {t.value: (t.location.kind, t.location.offset) for step in plan.steps for t in step.outputs}
        assert [places[name] for name in ("a", "b", "h")] == [("output", 0), ("output", 192), ("input", 48)]
        assert [step.name for step in plan.steps if step.view] == ["y", "h", "p", "p.1"]
