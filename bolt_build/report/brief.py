"""Shorter ways to say what a step computes and with which kernel, for tables in a terminal: from longer to shorter.

Nobody reads them back: a file has the whole text.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

_WORDS = (
    (r", batch \d+", ""), (r" convolution", " conv"), (r" pooling", "pool"), (r"(\d+) to (\d+) channels", r"\1>\2"),
    (r"(\d+) channels", r"\1"), (r"(\d+x\d+) to (\d+x\d+)", r"\1>\2"), (r" / (\d+)", r"/\1"), (r" then ", " | "),
    (r" \+ bias", ""), (r" \+ residual", " + res"), (r" \+ ", "+"), (r",", ""),
)  # fmt: skip


def brief_words(text: str) -> tuple[str, ...]:
    """Of `problem_words.in_words`: `3x3 conv/2 64>128 56x56>28x28+relu`; then without epilogue; then without extents
    too."""
    for pattern, to in _WORDS:
        text = re.sub(pattern, to, text)
    bare = re.sub(r"\+[^|]*?(?= \||$)", "", text)
    narrow = re.sub(r"(?<=\d) \d+x\d+(>\d+x\d+)?(?= \||$)", "", bare)
    return text, bare, narrow


def brief_kernel(text: str) -> tuple[str, ...]:
    """Of a candidate: `cutlass 128x64x64 pingpong cluster=1x2`, where m, n, k become one word and words need no name;
    then without the family."""
    family, *settings = text.split(" ")
    values = dict(each.split("=", 1) for each in settings if "=" in each)
    tile = "x".join(values[name] for name in "mnk") if values.keys() >= set("mnk") else ""
    words = [tile] if tile else []
    for name, value in values.items():
        if not (tile and name in "mnk"):
            words.append(value if value.isalpha() and len(value) > 2 else f"{name}={value}")
    return " ".join((family, *words)), " ".join(words) or family


def wrapped(lines: Iterable[str], width: int | None, inset: int | None = None) -> list[str]:
    """Lines of prose, those that are too long broken between words and set in below: by `inset`, or by four more than
    they are themselves. None is no limit."""
    if width is None:
        return list(lines)
    found: list[str] = []
    for line in lines:
        if len(line) <= width:
            found.append(line)
            continue
        blank = " " * (inset if inset is not None else len(line) - len(line.lstrip()) + 4)
        found += textwrap.wrap(line, width, subsequent_indent=blank, break_on_hyphens=False)
    return found
