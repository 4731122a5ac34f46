"""Ctrl-C in the process `bolt-build`. Within an import it waits for the import's end.

NumPy and other packages written in C answer an exception that comes while they load with text and errors of their own.
This imports next to nothing, so that it stands before anything else is loaded.
"""

from __future__ import annotations

import signal
import time
from types import FrameType

_PATIENCE_SECONDS = 5.0
"""After the first Ctrl-C. A module that takes longer to load, such as one that trains a model, is left at once."""

_ASK_AGAIN_SECONDS = 0.01
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"


class _Patient:
    """The handler of SIGINT."""

    def __init__(self) -> None:
        self._since: float | None = None
        self.broke_import = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Raises KeyboardInterrupt, or has the signal come again soon."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        imports = _imports(frame)
        if imports and now - self._since < _PATIENCE_SECONDS:
            signal.setitimer(signal.ITIMER_REAL, _ASK_AGAIN_SECONDS)
            return
        self._since, self.broke_import = None, self.broke_import or imports
        raise KeyboardInterrupt


_PATIENT = _Patient()


def install() -> None:
    """For the rest of the process, where SIGINT is not ignored as it is under nohup."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    # Whoever handles SIGINT by then hears of it.
    signal.signal(signal.SIGALRM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    signal.signal(signal.SIGINT, _PATIENT.handle)


def broke_an_import() -> bool:
    """True where an import was interrupted after all: what it raises may be an error of its own."""
    return _PATIENT.broke_import


def finish() -> None:
    """Nothing is left that a Ctrl-C could stop: Python ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORT_SYSTEM:
            return True
        frame = frame.f_back
    return False
