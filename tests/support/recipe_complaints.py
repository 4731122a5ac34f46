"""What is said about a recipe that is wrong, as people read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bolt_build.errors import BoltError, ExitCode
from bolt_build.report.diagnostics import render
from bolt_build.schema.load import load_recipe

HEAD = "bolt: 1\nmodel: {zoo: resnet50}\ntargets: {host: {precision: fp32}}\n"
"""A recipe that is right, for tests to append mistakes to."""


def complaint(path: Path | str) -> str:
    """Everything that is said about the recipe at `path`."""
    with pytest.raises(BoltError) as raised:
        load_recipe(Path(path))
    assert raised.value.exit_code == ExitCode.INVALID
    return render(raised.value.diagnostics, color=False)


def complaint_about(text: str | bytes) -> str:
    """Everything that is said about a file `recipe.yaml` of the current directory that holds `text`."""
    Path("recipe.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    return complaint("recipe.yaml")
