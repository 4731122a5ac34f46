"""Why a kernel is refused: a sentence that keeps its numbers apart, so that many refusals can be told as one."""

from __future__ import annotations

import functools


class Reason(str):
    """`Reason("takes {} bytes, a block has {}", 9, 8)` is the sentence "takes 9 bytes, a block has 8".

    Of one `form` are all reasons that differ in their `numbers` alone. A reason without numbers may be a plain string.
    """

    __slots__ = ("form", "numbers")

    form: str
    numbers: tuple[float, ...]

    def __new__(cls, form: str, *numbers: float) -> Reason:
        """`form` has a `{}` for each of the numbers, and no other brace. Raises ValueError where it has not."""
        return _made(form, *numbers)

    def __getnewargs__(self) -> tuple[str, *tuple[float, ...]]:  # type: ignore[override]
        return self.form, *self.numbers


# Most tiles are refused for the few reasons of the tile before. 2 and 2.0 are equal, but told otherwise.
@functools.lru_cache(maxsize=1 << 14, typed=True)
def _made(form: str, *numbers: float) -> Reason:
    if form.count("{}") != len(numbers):
        raise ValueError(f"{len(numbers)} numbers for '{form}'")
    made = str.__new__(Reason, form.format(*numbers))
    made.form, made.numbers = form, numbers
    return made


def within(place: str, reason: str) -> str:
    """The reason of a part: "the first product: takes 9 bytes, a block has 8"."""
    if isinstance(reason, Reason) and reason.numbers:
        return Reason(f"{place}: {reason.form}", *reason.numbers)
    return f"{place}: {reason}"
