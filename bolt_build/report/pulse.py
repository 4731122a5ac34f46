"""What runs, where no terminal shows it: a line where nothing else was said for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from bolt_build.report.shown import Shown, how_long

QUIET = 30.0
"""Seconds without a line after which one says what runs. Logs of CI are read while it goes on, and some services end
what is silent."""


class PulseLines:
    """A thread of its own, from the first task or stage that runs until `stop`."""

    def __init__(
        self, write: Callable[[str], None], quiet: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write, self._quiet, self._clock = write, QUIET if quiet is None else quiet, clock
        self._shown = Shown(())
        self._moved = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def show(self, shown: Shown) -> None:
        """From now on this runs; whoever says so has just said something."""
        self._shown = shown
        self._moved.set()
        if shown.running and self._thread is None:
            self._stopped = False
            self._thread = threading.Thread(target=self._beat, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Say nothing more."""
        self._stopped = True
        self._moved.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _beat(self) -> None:
        while not self._stopped:
            if self._moved.wait(self._quiet):
                self._moved.clear()
                continue
            if self._shown.running:
                try:
                    self._write(f"still running: {_said(self._shown, self._clock())}")
                except (OSError, ValueError):  # nobody reads any more: the build finds out by itself
                    return


def _said(shown: Shown, now: float) -> str:
    return "; ".join(f"{each.label} {how_long(now, each.since, each.expected)}" for each in shown.running)
