"""Keeps the memory of running tasks under what the machine has: on a small one a build gets slow, not killed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Admission:
    """Lets tasks run while the sum of their memory stays under `budget_mb`; one may always run. Thread-safe."""

    budget_mb: int
    _condition: threading.Condition = field(default_factory=threading.Condition)
    _used_mb: int = 0
    _running: int = 0

    @contextlib.contextmanager
    def admit(self, memory_mb: int) -> Iterator[None]:
        """Wait until a task of this size fits, and count it until the block ends."""
        with self._condition:
            self._condition.wait_for(lambda: self._running == 0 or self._used_mb + memory_mb <= self.budget_mb)
            self._running += 1
            self._used_mb += memory_mb
        try:
            yield
        finally:
            with self._condition:
                self._running -= 1
                self._used_mb -= memory_mb
                self._condition.notify_all()


def available_memory_mb(proc: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Megabytes that new processes may take: what the kernel calls available, within this control group's limit."""
    found = 4096
    with contextlib.suppress(OSError, ValueError):
        for line in proc.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found = int(line.split()[1]) // 1024
    with contextlib.suppress(OSError, ValueError):
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        found = min(found, (limit - used) // (1 << 20))
    return max(found, 1)
