"""The lock as a file that tuning writes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bolt_build.build.files import trouble
from bolt_build.errors import BoltError, Diagnostic
from bolt_build.schema.recipe import Recipe


@contextlib.contextmanager
def writing_lock(recipe: Recipe, path: Path) -> Iterator[None]:
    """Turn OSError inside into a BoltError ("lock-not-writable") that points to where the recipe names the lock."""
    try:
        yield
    except OSError as error:
        message = f"the lock: {trouble(error, str(path)).message}"
        hint = "name another file; records of what was measured stay"
        raise BoltError([Diagnostic("lock-not-writable", message, recipe.mark("tuning.lock"), hint)]) from error
