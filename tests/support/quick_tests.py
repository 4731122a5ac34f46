"""Which tests are `quick`: those of the stages that only compute, by the names of their files. Nobody marks one.

A quick test starts no process, so it compiles nothing and waits for nothing: one that does fails, and belongs into a
file of another stage. Files that bring what is slow by itself are left out, by what they import.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

STAGES = ("candidates", "explain", "graph", "planner", "report", "schema", "targets", "tuning_lock")
"""A file of theirs is called test_STAGE.py or test_STAGE_*.py."""

SLOW = ("bolt_build.graph.zoo", "bolt_build.runtime", "hash_orders", "onnx.backend", "onnxruntime", "subprocess")
"""Modules that draw millions of weights, run engines, make ONNX's cases, or start processes."""

_STARTS = ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen")

_running: list[str] = []
"""The quick test that runs; an audit hook cannot be taken away again."""


@cache
def is_quick(path: Path) -> bool:
    """Whether the tests of a file are quick."""
    stage = path.stem.removeprefix("test_")
    if not path.name.startswith("test_") or not any(stage == s or stage.startswith(f"{s}_") for s in STAGES):
        return False
    return not any(name == slow or name.startswith(f"{slow}.") for name in _imported(path) for slow in SLOW)


def _imported(path: Path) -> Iterator[str]:
    """Every module that the file names in an import, those of `from PACKAGE import MODULE` too."""
    for node in _imports(ast.parse(path.read_bytes()).body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _imports(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Of statements, and of those in them: expressions, which are most of a file, have none."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from _imports(getattr(node, field, ()))


def is_left_out(path: Path, chosen: str) -> bool | None:
    """True for a file of which the markers `chosen` can choose no test; None where it must be read to say so."""
    if path.suffix != ".py" or not path.name.startswith("test_"):
        return None
    if chosen == "quick" and not is_quick(path):
        return True
    without_gpu = chosen == "quick" or chosen.startswith("not gpu")
    return True if without_gpu and b"\npytestmark = pytest.mark.gpu\n" in path.read_bytes() else None


@contextmanager
def starts_nothing(name: str) -> Iterator[None]:
    """While the quick test `name` runs, starting a process raises RuntimeError."""
    _running.append(name)
    try:
        yield
    finally:
        _running.pop()


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if _running and event in _STARTS:
        what = f"{event}{arguments[:2]}"
        raise RuntimeError(f"the quick test {_running[-1]} starts a process: move it to another file ({what})")


sys.addaudithook(_refuse)
