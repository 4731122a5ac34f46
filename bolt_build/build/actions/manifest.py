"""Writes the manifest with the digests of the artifacts."""

from __future__ import annotations

from pathlib import Path

from bolt_build.build.engine_file import engine_here
from bolt_build.build.provenance_file import facts_here
from bolt_build.emit.manifest import manifest_json
from bolt_build.targets import target_named


def run(out: str, library: str, *artifacts: str) -> None:
    """Write it to `out`."""
    plan, found = engine_here(), [Path(artifact) for artifact in artifacts]
    text = manifest_json(plan, target_named(plan.target), facts_here(), Path(library), found)
    Path(out).write_text(text, encoding="utf-8")
