"""Names of what a build leaves behind, and of the one symbol that an engine exports, for all that refer to them."""

from __future__ import annotations

import re

MANIFEST = "manifest.json"
EXPORTS = "exports.map"


def identifier(name: str) -> str:
    """`name` as a C identifier: what is not a letter, digit or underscore becomes an underscore."""
    text = re.sub(r"[^0-9A-Za-z_]", "_", name)
    return f"engine_{text}" if text[:1].isdigit() else text


def symbol(name: str) -> str:
    """The function that an engine's library exports, alone."""
    return f"{identifier(name)}_bolt_v1"


def library(name: str) -> str:
    return f"lib{name}.so"


def header(name: str) -> str:
    return f"{name}.h"


def weights(name: str) -> str:
    """The weights file; the runner looks for it beside itself."""
    return f"{name}.weights"


def runner(name: str) -> str:
    return f"{name}-run"
