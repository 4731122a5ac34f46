"""Words of messages: lists of them, numbers of things, and which word was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def suggest(word: str, known: Iterable[str]) -> str | None:
    """ "did you mean 'x'?" for the known word nearest to `word`; None where none is near."""
    near = nearest(word, known)
    return f"did you mean '{near}'?" if near is not None else None


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word nearest to `word`, whatever its case; None where none is near."""
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), by_lower, 1, 0.6)
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
