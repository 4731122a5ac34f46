"""What contestants of a row took, in all of its runs."""

from __future__ import annotations

from typing import Any


def contestants_of(row: Any) -> dict[str, Any]:
    """The engine as it was measured last, and of each peer its fastest run: peers that compile are seldom run, and
    hosts launch at different speeds."""
    found = dict(row.get("earlier", {}))
    for name, each in row["contestants"].items():
        if name == "engine" or name not in found or each["median_ms"] <= found[name]["median_ms"]:
            found[name] = each
    return found
