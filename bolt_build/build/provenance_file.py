"""`provenance.json`: what the manifest says of the build, written by planning into a target's directory."""

from __future__ import annotations

import json
from pathlib import Path

from bolt_build.digest import decode
from bolt_build.emit.manifest import BuildFacts

PROVENANCE = "provenance.json"


def read_facts(text: str) -> BuildFacts:
    """The facts in a `provenance.json`. Raises ValueError."""
    return decode(BuildFacts, json.loads(text))


def facts_here() -> BuildFacts:
    """The facts of the target whose directory is the current one. Raises OSError, ValueError."""
    return read_facts(Path(PROVENANCE).read_text(encoding="utf-8"))
