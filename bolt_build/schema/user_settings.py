"""What a user sets once for all recipes, in `$XDG_CONFIG_HOME/bolt-build/config.yaml` (or `~/.config/...`).

shared:
  cache: s3://team/bolt      # a directory, s3://, https://, http://, gs:// or az://
  write: false               # true for those whom the team trusts to fill it, its CI above all
  timeout: 10                # seconds without a byte from the store until a build goes on without it
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bolt_build.errors import BoltError, Diagnostic
from bolt_build.own_folders import config_folder
from bolt_build.schema.document import DocumentKind, read_document
from bolt_build.schema.shared_place import DEFAULT_TIMEOUT, SharedPlace
from bolt_build.schema.values import Scalar, Table, Value, describe
from bolt_build.wording import suggest

SETTINGS_FILE = "config.yaml"
LONGEST_TIMEOUT = 3600.0
_KIND = DocumentKind("settings file", "shared:")
_KEYS = ("cache", "write", "timeout")


@dataclass(frozen=True)
class UserSettings:
    """`shared` is None where the user names no store."""

    shared: SharedPlace | None = None


def settings_file() -> Path | None:
    """Where a user's settings would lie; None where there is no home directory."""
    folder = config_folder()
    return None if folder is None else folder / SETTINGS_FILE


def read_settings(path: Path | None) -> UserSettings:
    """The settings in the file at `path`, those of nobody where there is no such file. Raises BoltError with all that
    is wrong with it."""
    if path is None or not path.exists():
        return UserSettings()
    document, wrong = read_document(path, _KIND)
    found = [*wrong, *_unknown(document, ("shared",), "")]
    entry = document.get("shared")
    if entry is None:
        table = None
    elif isinstance(entry.value, Table):
        table = entry.value
        found += [*_unknown(table, _KEYS, "shared."), *_wrong_values(table)]
    else:
        table = None
        hint = "shared: {cache: s3://team/bolt}"
        message = f"'shared' must be a mapping, found {describe(entry.value)}"
        found.append(Diagnostic("wrong-type", message, entry.value.mark, hint))
    if found:
        raise BoltError(found)
    return UserSettings() if table is None else UserSettings(_shared(table))


def _unknown(table: Table, known: tuple[str, ...], prefix: str) -> Iterator[Diagnostic]:
    for entry in table.entries:
        if entry.key not in known:
            hint = suggest(entry.key, known) or f"its keys: {', '.join(known)}"
            yield Diagnostic("unknown-key", f"unknown key '{prefix}{entry.key}'", entry.mark, hint)


def _wrong_values(table: Table) -> Iterator[Diagnostic]:
    def wrong(key: str, what: str, value: Value, hint: str) -> Diagnostic:
        return Diagnostic("wrong-type", f"'shared.{key}' must be {what}, found {describe(value)}", value.mark, hint)

    cache = table.get("cache")
    if cache is None:
        yield Diagnostic("missing-key", "'shared' names no 'cache'", table.mark, "such as cache: s3://team/bolt")
    elif not isinstance(cache.value, Scalar) or not isinstance(cache.value.value, str) or not cache.value.value:
        yield wrong("cache", "a directory or a URL", cache.value, "such as cache: s3://team/bolt")
    write = table.get("write")
    if write is not None and not (isinstance(write.value, Scalar) and isinstance(write.value.value, bool)):
        yield wrong("write", "true or false", write.value, "write: true is for those whom the team trusts to fill it")
    timeout = table.get("timeout")
    if timeout is not None and _seconds(timeout.value) is None:
        yield wrong("timeout", "a number of seconds above 0, at most an hour", timeout.value, "such as timeout: 10")


def _seconds(value: Value) -> float | None:
    number = value.value if isinstance(value, Scalar) else None
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= LONGEST_TIMEOUT:
        return None
    return float(number)


def _shared(table: Table) -> SharedPlace:
    """What a table says in which nothing is wrong."""

    def value(key: str) -> Value | None:
        entry = table.get(key)
        return None if entry is None else entry.value

    cache, write, timeout = value("cache"), value("write"), value("timeout")
    assert isinstance(cache, Scalar), "it was looked at"
    seconds = DEFAULT_TIMEOUT if timeout is None else _seconds(timeout)
    assert seconds is not None, "it was looked at"
    return SharedPlace(os.path.expanduser(str(cache.value)), isinstance(write, Scalar) and write.value is True, seconds)
