"""`with shared_folder(name) as folder` (a fixture): one folder for all workers of a parallel run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

SharedFolder = Callable[[str], AbstractContextManager[Path]]
