"""Tokens of the graph's text form, and the error that says where a text is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<newline>\n)|(?P<space>[ \t\r]+)|(?P<comment>//[^\n]*)|(?P<arrow>->)|(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<word>(?:(?!//)[A-Za-z0-9_./+\-])+)|(?P<punct>[%'(){}\[\]:,=|@#])""",
    re.VERBOSE,
)


class TextError(ValueError):
    """The text is no graph. `line` and `column` count from 1; the message begins with them."""

    def __init__(self, message: str, line: int, column: int) -> None:
        self.line, self.column = line, column
        super().__init__(f"line {line}, column {column}: {message}")


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    line: int
    column: int

    @property
    def shown(self) -> str:
        return {"newline": "the end of the line", "end": "the end of the text"}.get(self.kind, f"'{self.text}'")


def tokens_of(text: str) -> list[Token]:
    """All tokens but spaces, with one of kind "end" behind them. Raises TextError."""
    found: list[Token] = []
    position, line, start = 0, 1, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise TextError(f"unexpected character {text[position]!r}", line, position - start + 1)
        kind = match.lastgroup or ""
        if kind != "space":
            found.append(Token(kind, match.group(), line, position - start + 1))
        position = match.end()
        if kind == "newline":
            line, start = line + 1, position
    return [*found, Token("end", "", line, position - start + 1)]
