"""The one rule of staleness: whether what a task made is what it would make now.

Asked by the forecast of files as they will be, by SCons for each task whose turn has come, and by the task itself
before it runs. It knows a task's receipt, what its inputs hold and what its outputs hold, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from bolt_build.build.staleness.receipt import Receipt, task_key
from bolt_build.build.tasks import Task

Contents = Callable[[str], str | None]
"""SHA-256 of the file that a task calls so; None where there is none, or nobody knows what it will hold."""


class Fault(Enum):
    """What is wrong with an output: it is gone, is not what its task made, or no receipt knows it."""

    MISSING = "missing"
    EDITED = "edited"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Verdict:
    """`key` is that of the work to do, None where an input is not known; `same_work` says that the receipt is of it."""

    key: str | None
    same_work: bool
    faults: tuple[tuple[str, Fault], ...]

    @property
    def current(self) -> bool:
        """True where there is nothing to do."""
        return self.same_work and not self.faults


def judge(task: Task, receipt: Receipt | None, inputs: Contents, outputs: Contents) -> Verdict:
    """The rule. A task is current where its receipt is of the same work (`task_key`: command, values, contents of
    inputs) and every output is there and holds what the receipt says."""
    found = {name: inputs(name) for name in task.inputs}
    known = {name: digest for name, digest in found.items() if digest is not None}
    key = task_key(task, known) if len(known) == len(found) else None
    same_work = receipt is not None and key == receipt.key
    return Verdict(key, same_work, output_faults(task, receipt, outputs))


def output_faults(task: Task, receipt: Receipt | None, outputs: Contents) -> tuple[tuple[str, Fault], ...]:
    """What of the rule can be told before the inputs are there."""
    made = {} if receipt is None else {output.path: output.digest for output in receipt.outputs}
    found = []
    for name in task.outputs:
        digest = outputs(name)
        if digest is None:
            found.append((name, Fault.MISSING))
        elif digest != made.get(name):
            found.append((name, Fault.EDITED if name in made else Fault.UNKNOWN))
    return tuple(found)
