"""`with shared_folder(name) as folder` (a fixture, or `entered`): one folder for all workers of a parallel run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

SharedFolder = Callable[[str], AbstractContextManager[Path]]
RUN = "BOLT_TEST_RUN"
"""The variable that names the folder of this run of tests."""


@contextmanager
def entered(name: str) -> Iterator[Path]:
    """The same folder for every worker of a parallel run, one at a time. Whoever comes first fills it, the others find
    it filled."""
    folder = Path(os.environ[RUN]) / name
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
