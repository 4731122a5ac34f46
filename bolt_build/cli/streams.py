"""The three standard streams, which a stranger may have closed, filled or given another encoding."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import IO, TextIO


def prepare() -> None:
    """Open what is closed, so that no other file gets its number and is written into; let no character be too much.

    Names of files and nodes may hold what a terminal's encoding lacks: it is written as an escape."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            _give_nothing(number)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 (for good)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="backslashreplace")


def complain(text: str) -> None:
    """Write to standard error. Where that is gone or full, the exit code alone has to say it."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        abandon(sys.stderr)


def wants_color(stream: IO[str]) -> bool:
    """Whether what is written there may have colours: a terminal that knows them, of a user who wants them.

    An empty NO_COLOR says nothing (no-color.org)."""
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def abandon(stream: TextIO) -> None:
    """Let a stream that takes no more flush into nothing, as Python flushes it once more at exit."""
    with contextlib.suppress(OSError, ValueError):
        _give_nothing(stream.fileno())


def _give_nothing(number: int) -> None:
    handle = os.open(os.devnull, os.O_RDWR)
    if handle != number:
        os.dup2(handle, number)
        os.close(handle)
