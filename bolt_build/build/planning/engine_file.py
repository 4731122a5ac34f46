"""`engine.json`: the engine plan that planning writes into a target's directory, and that tasks read."""

from __future__ import annotations

import json
from pathlib import Path

from bolt_build.digest import decode
from bolt_build.planner.engine_plan import EnginePlan

ENGINE = "engine.json"


def read_engine(text: str) -> EnginePlan:
    """The plan in an `engine.json`. Raises ValueError, or BoltError where a package's operator cannot be used."""
    # Loads every operator, NumPy with them: a build that finds nothing changed needs none.
    from bolt_build.graph.operators import operators

    operators()  # they are found by their classes' names once they are imported
    return decode(EnginePlan, json.loads(text))


def engine_here() -> EnginePlan:
    """The plan of the target whose directory is the current one. Raises OSError, ValueError."""
    return read_engine(Path(ENGINE).read_text(encoding="utf-8"))
