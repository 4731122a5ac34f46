"""What a finished task was made from and what it made: kept beside the outputs, one file a task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.files import FileStamp, read_text, stays_below, unlink, write_text
from bolt_build.build.own_code.facts import Facts
from bolt_build.build.tasks import Task, Value
from bolt_build.digest import decode, digest, encode

RECEIPT_VERSION = 2
_KEY_VERSION = 1
"""Of what a key is taken of. It is in every entry of the cache, so a receipt of another form changes none."""


@dataclass(frozen=True)
class Receipt:
    """`key` is `task_key` of the run that made `outputs`. `facts` are those of the plan it ran for."""

    version: int
    key: str
    argv: tuple[str, ...]
    values: tuple[Value, ...]
    inputs: tuple[FileStamp, ...]
    outputs: tuple[FileStamp, ...]
    facts: Facts
    seconds: float


def task_key(task: Task, inputs: Mapping[str, str]) -> str:
    """Digest of all that a task's result depends on; `inputs` are digests of its input files by their names.

    Absolute paths do not enter (they are `${places}`), so the key is the same in every checkout.
    """
    return digest(
        {
            "version": _KEY_VERSION,
            "rule": task.rule,
            "argv": list(task.argv),
            "values": [[f"{value.kind.value}:{value.name}", value.content] for value in task.values],
            "inputs": [[name, inputs[name]] for name in task.inputs],
            "outputs": list(task.outputs),
        }
    )


def load_receipt(directory: Path, task: str) -> Receipt | None:
    """The receipt of a task, None where there is none that can be read."""
    try:
        data = json.loads(read_text(directory / f"{task}.json"))
        if data.get("version") != RECEIPT_VERSION:
            return None
        receipt = decode(Receipt, data)
    except (OSError, ValueError, AttributeError):
        return None
    return receipt if all(stays_below(output.path) for output in receipt.outputs) else None


def save_receipt(directory: Path, task: str, receipt: Receipt) -> None:
    """Write a receipt whole. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / f"{task}.json", json.dumps(encode(receipt)) + "\n")


def drop_receipt(directory: Path, task: str) -> None:
    """Forget a task, before its outputs change."""
    unlink(directory / f"{task}.json")
