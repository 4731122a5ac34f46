"""Words of messages: lists of them, numbers of things, and which word was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def suggest(word: str, known: Iterable[str]) -> str | None:
    """ "did you mean 'x'?" for the known word nearest to `word`; None where none is near."""
    near = nearest(word, known)
    return f"did you mean '{near}'?" if near is not None else None


_ELSEWHERE = {
    "cpu": "host", "x86": "host", "x86-64": "host", "x86_64": "host", "amd64": "host",
    "float32": "fp32", "float": "fp32", "single": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16",
    "nhwc": "channels_last", "nchw": "row",
}  # fmt: skip
"""What other tools call things, and their names here."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word for what other tools call `word`, or that nearest to it, in any case; None where none is near."""
    by_lower = {each.lower(): each for each in known}
    same = _ELSEWHERE.get(word.lower())
    near = [same] if same in by_lower else difflib.get_close_matches(word.lower(), by_lower, 1, 0.6)
    return by_lower[near[0]] if near else None


def listed(words: Iterable[str], last: str = "and") -> str:
    """'a', 'b' and 'c'."""
    return joined([f"'{word}'" for word in words], last)


def joined(words: Sequence[str], last: str) -> str:
    """a, b and c, where `last` is `and`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def many(count: int, noun: str) -> str:
    """1 step, 2 steps."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
