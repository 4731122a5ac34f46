"""Signal handlers for a while. Only the main thread may set them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def handled(handler: Callable[[int, FrameType | None], object], *numbers: signal.Signals) -> Iterator[None]:
    """Let `handler` have the signals `numbers`, but for those that the caller ignores; as before afterwards."""
    before = {
        number: signal.signal(number, handler)
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN
    }  # fmt: skip
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)
