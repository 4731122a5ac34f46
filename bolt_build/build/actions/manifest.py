"""Writes the manifest with the digests of the artifacts."""

from __future__ import annotations

from pathlib import Path

from bolt_build.build.engine_file import engine_here
from bolt_build.build.provenance_file import facts_here
from bolt_build.emit.manifest import manifest_json
from bolt_build.targets import target_named


def run(out: str, model: str, library: str, *artifacts: str) -> None:
    """Write it to `out`; `model` is the digest of the ONNX model."""
    plan, found = engine_here(), [Path(artifact) for artifact in artifacts]
    text = manifest_json(plan, target_named(plan.target), facts_here(), model, Path(library), found)
    Path(out).write_text(text, encoding="utf-8")
