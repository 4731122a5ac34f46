"""Writes the manifest with the digests of the artifacts."""

from __future__ import annotations

from pathlib import Path

from bolt_build.build.planning.provenance_file import PROVENANCE
from bolt_build.emit.subjects import manifest_json


def run(out: str, model: str, library: str, *artifacts: str) -> None:
    """Write it to `out`; `model` is the digest of the ONNX model."""
    embedded = Path(PROVENANCE).read_text(encoding="utf-8")
    text = manifest_json(embedded, model, Path(library), [Path(artifact) for artifact in artifacts])
    Path(out).write_text(text, encoding="utf-8")
