"""What came of a command as JSON: `--report FILE.json`. docs/ci.md has its keys."""

from __future__ import annotations

import json
from typing import Any

import bolt_build
from bolt_build.build.events import TaskEvent
from bolt_build.report.diagnostics import as_json
from bolt_build.verify.report import VerifyReport
from bolt_build.workflows.outcome import EngineOutcome, Outcome, RecipeOutcome

VERSION = 1


def outcome_json(outcome: Outcome) -> str:
    """The whole outcome. A key is there whatever came of it."""
    data = {
        "version": VERSION, "bolt_build": bolt_build.__version__, "verb": outcome.verb,
        "exit_code": int(outcome.exit_code), "seconds": round(outcome.seconds, 3),
        "recipes": [_recipe(recipe) for recipe in outcome.recipes], "diagnostics": as_json(outcome.diagnostics),
    }  # fmt: skip
    return json.dumps(data, indent=1) + "\n"


def _recipe(recipe: RecipeOutcome) -> dict[str, Any]:
    return {
        "recipe": recipe.recipe, "file": recipe.file, "exit_code": int(recipe.exit_code),
        "seconds": round(recipe.seconds, 3), "waited": round(recipe.waited, 3),
        "targets": [_engine(engine) for engine in recipe.engines],
        "tasks": [_task(event) for event in (*recipe.tasks, *recipe.failed)],
        "not_attempted": list(recipe.not_attempted), "diagnostics": as_json(recipe.diagnostics),
    }  # fmt: skip


def _engine(engine: EngineOutcome) -> dict[str, Any]:
    return {
        "target": engine.target, "directory": engine.directory,
        "artifacts": [{"name": each.name, "bytes": each.nbytes} for each in engine.artifacts],
        "verified": engine.verified, "elsewhere": engine.elsewhere,
        "kernels": None if engine.kernels is None else vars(engine.kernels),
        "verification": None if engine.verification is None else _comparison(engine.verification),
        "obstacles": as_json(engine.obstacles),
    }  # fmt: skip


def _comparison(report: VerifyReport) -> dict[str, Any]:
    """The verdict with outputs and the worst layer of each batch; verify.json has all layers."""
    batches = [
        {
            "batch": batch.batch, **({"dims": dict(batch.dims)} if batch.dims else {}), "ok": batch.ok,
            "layers": len(batch.layers), "not_judged": len(batch.blind),
            "repeatable": batch.repeatable,
            "departing": [layer.name for layer in batch.layers if not layer.ok],
            "worst_layer": None if batch.worst_layer is None else batch.worst_layer.name,
            "worst_layer_used": None if batch.worst_layer is None else batch.worst_layer.used,
            "outputs": [
                {"name": each.name, "ok": each.ok, "max_abs": each.max_abs, "error": each.error, "cosine": each.cosine}
                for each in batch.outputs
            ],
        }
        for batch in report.batches
    ]  # fmt: skip
    return {"against": report.against, "ok": report.ok, "batches": batches, "diagnostics": as_json(report.problems)}


def _task(event: TaskEvent) -> dict[str, Any]:
    return {
        "target": event.target, "task": event.task, "label": event.label, "kind": event.kind.value,
        "seconds": round(event.seconds, 3), "cached": event.cached, "as_for": event.as_for,
        "reasons": list(event.reasons),
        "text": event.text, "log": event.log, "command": event.command,
    }  # fmt: skip
