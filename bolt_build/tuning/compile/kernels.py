"""Kernel units of a tuning set, which of its candidates need which, and what follows where one does not compile."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bolt_build.build.compile_cuda import MACHINE_FAILED
from bolt_build.build.events import TaskEvent
from bolt_build.families.base import Candidate, Family, KernelUnit
from bolt_build.targets import Target
from bolt_build.tuning.compile import glue
from bolt_build.tuning.records.kernel_record import Record, Status
from bolt_build.tuning.trials.tuning_set import ProblemTrials

_LAST_LINES = 6
_LAST_CHARACTERS = 1000
_REFUSALS = (
    errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.EMFILE,
    errno.ENFILE, errno.EAGAIN, errno.ENOENT,
)  # fmt: skip
_SAID = ("died due to signal", "out of memory", "nvcc fatal", "could not open", *map(os.strerror, _REFUSALS))
_MACHINE_TROUBLE = re.compile("|".join(map(re.escape, _SAID)), re.IGNORECASE)
"""What a compiler says where the machine failed it, not the kernel."""


@dataclass(frozen=True)
class TuningKernels:
    """Units by name, and the names of those that each (problem digest, candidate) needs."""

    units: tuple[KernelUnit, ...]
    needs: tuple[tuple[str, Candidate, tuple[str, ...]], ...]


def tuning_kernels(problems: Sequence[ProblemTrials], families: Mapping[str, Family], target: Target) -> TuningKernels:
    """The units of all trials of `problems`, each as the family gives it for that trial alone. Variants run the kernel
    that they vary."""
    units: dict[str, KernelUnit] = {}
    needs = []
    for problem in problems:
        known: dict[Candidate, tuple[str, ...]] = {}
        for trial in problem.trials:
            kernel = trial.candidate.compiled
            if kernel not in known:
                found = families[kernel.family].units([(problem.problem, kernel)], target)
                units |= {unit.name: unit for unit in found}
                known[kernel] = tuple(unit.name for unit in found)
            needs.append((problem.problem.digest, trial.candidate, known[kernel]))
    return TuningKernels(tuple(units[name] for name in sorted(units)), tuple(needs))


def is_verdict(event: TaskEvent) -> bool:
    """True where a failed compilation says something of the kernel: the compiler refused it, and the machine did not
    fail the compiler (a signal, no memory, no space, no right to write): what is recorded as a kernel's failure is
    never compiled again."""
    if event.text == f"exit status {MACHINE_FAILED}":
        return False
    return event.text.startswith("exit status") and _MACHINE_TROUBLE.search(f"{event.text}\n{event.log}") is None


def last_words(event: TaskEvent) -> str:
    """The end of what a compiler said, for a record."""
    lines = [line.rstrip() for line in event.log.splitlines() if line.strip()]
    return "\n".join(lines[-_LAST_LINES:])[-_LAST_CHARACTERS:] or event.text


def not_compiled(kernels: TuningKernels, said: Mapping[str, str]) -> tuple[Record, ...]:
    """A record for each candidate that needs a unit which did not compile; `said` are last words by unit."""
    return tuple(
        Record(problem, candidate, Status.NOT_COMPILED, said[names[0]])
        for problem, candidate, needed in kernels.needs
        if (names := [name for name in needed if name in said])
    )


def without(problems: Iterable[ProblemTrials], records: Iterable[Record]) -> tuple[ProblemTrials, ...]:
    """The problems without the trials that `records` are of and their variants; one that has no trial left is left
    out."""
    gone: dict[str, set[str]] = {}
    for record in records:
        gone.setdefault(record.problem, set()).add(record.candidate.digest)
    found = (glue.without(problem, gone.get(problem.problem.digest, ())) for problem in problems)
    return tuple(problem for problem in found if problem.trials)
