"""Writes every generated source."""

from __future__ import annotations

from pathlib import Path

from bolt_build.build.emission import emitted_sources
from bolt_build.build.engine_file import engine_here
from bolt_build.build.provenance_file import facts_here


def run(out: str) -> None:
    """Write the sources to `out`/src."""
    for name, text in emitted_sources(engine_here(), facts_here()):
        (Path(out) / name).write_text(text, encoding="utf-8")
