"""Text for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """`text` without what would steer a terminal: names and values in it are those of files that others wrote."""
    return "".join(c if c in "\t\n" or c.isprintable() else "\ufffd" for c in text)
