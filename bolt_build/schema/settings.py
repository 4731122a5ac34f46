"""`--set KEY=VALUE`: parts of a recipe as a command line gives them, with marks into that command line."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bolt_build.errors import BoltError, Diagnostic, Mark
from bolt_build.schema.document import read_value
from bolt_build.schema.extend import merge
from bolt_build.schema.values import Entry, Table, Value, shorten

PLACE = "--set"
"""The file that marks name; their line is the number of the setting."""

_KEY = re.compile(r'(?:"(?P<quoted>[^"]*)"|(?P<bare>[^."=]+))(?P<end>\.|=)')
_FIXED = ("bolt", "extend")
"""Keys that say how the recipe's file is to be read."""


def settings_table(settings: Sequence[str]) -> Table:
    """The settings as one mapping; of two for the same key the later one holds. Keys are dotted, and quoted where they
    hold dots themselves (`layers."/layer1.0/*".persistent=never`); values are YAML.

    Raises BoltError with everything that is wrong with their form.
    """
    table = Table((), Mark(PLACE, 1, 1))
    wrong: list[Diagnostic] = []
    for number, text in enumerate(settings, 1):
        try:
            table = merge(table, _table(text, number))
        except BoltError as error:
            wrong += error.diagnostics
    if wrong:
        raise BoltError(wrong)
    return table


def _table(text: str, number: int) -> Table:
    keys: list[tuple[str, Mark]] = []
    at, end = 0, "."
    while end == ".":
        match = _KEY.match(text, at)
        if match is None:
            hint = "such as policy.fusion.persistent=never; a key with dots in quotes"
            message = f"'{shorten(text)}' is no KEY=VALUE"
            raise BoltError([Diagnostic("bad-setting", message, Mark(PLACE, number, at + 1), hint)])
        key = match["quoted"] if match["quoted"] is not None else match["bare"]
        keys.append((key, Mark(PLACE, number, at + 1, match.end() - at - 1)))
        at, end = match.end(), match["end"]
    if keys[0][0] in _FIXED:
        message = f"'{keys[0][0]}' is the file's own, and cannot be set"
        raise BoltError([Diagnostic("bad-setting", message, keys[0][1])])
    return _nested(keys, read_value(text[at:], Mark(PLACE, number, at + 1)))


def _nested(keys: Sequence[tuple[str, Mark]], value: Value) -> Table:
    (key, mark), *below = keys
    return Table((Entry(key, mark, _nested(below, value) if below else value),), mark)
