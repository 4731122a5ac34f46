"""Content digests and the JSON form of the frozen dataclasses that pass between stages.

`encode` and `decode` are each other's inverse for dataclasses made of None, bool, int, float, str, Enum, tuples
and other such dataclasses; a union of dataclasses carries the class's name under "is". `digest` is the SHA-256 of
the encoded form with sorted keys, so equal values have equal digests in every process.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import types
import typing
from collections import deque
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from bolt_build.user_files import open_regular

T = TypeVar("T")


def digest_bytes(data: bytes) -> str:
    """SHA-256 of `data` in hex."""
    return hashlib.sha256(data).hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256 of a file's contents in hex. Raises OSError, also for what is no regular file."""
    with open_regular(path) as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def digest(value: object) -> str:
    """SHA-256 in hex of the canonical JSON of `value` (a dataclass, or plain JSON data)."""
    return digest_bytes(canonical_json(value).encode())


def canonical_json(value: object) -> str:
    """One line, sorted keys, no spaces: equal values give equal text."""
    return json.dumps(encode(value), sort_keys=True, separators=(",", ":"))


_PLAIN = frozenset({str, int, float, bool})
"""Most values that are encoded; none of them is an enumeration's."""


def encode(value: object) -> Any:
    """`value` as plain JSON data. Raises TypeError for what has no JSON form."""
    if value is None or type(value) in _PLAIN:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        encoded: dict[str, Any] = {"is": type(value).__name__}
        for name, unsaid, default in _fields(type(value)):
            item = getattr(value, name)
            if not unsaid or item != default:
                encoded[name] = item if item is None or type(item) in _PLAIN else encode(item)
        return encoded
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    raise TypeError(f"{type(value).__name__} has no JSON form")


UNSAID = types.MappingProxyType({"unsaid": True})
"""Metadata of a field that is left out where it has its default: digests of values stay what they were before it."""


@functools.cache
def _fields(cls: type) -> tuple[tuple[str, bool, object], ...]:
    """Of each field that `__init__` takes the name, whether it is left out where it has its default, and that."""
    return tuple((f.name, bool(f.metadata.get("unsaid", False)), f.default) for f in dataclasses.fields(cls) if f.init)


def decode(cls: Callable[..., T], data: Any) -> T:
    """The inverse of `encode`. Raises ValueError where `data` does not have the form of `cls`."""
    return typing.cast("T", _decode(cls, data))


def _decode(hint: Any, data: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(hint), data)
    if origin is tuple:
        args = typing.get_args(hint)
        if not isinstance(data, list):
            raise ValueError(f"expected a list, found {type(data).__name__}")
        kinds = [args[0]] * len(data) if args[-1] is Ellipsis else list(args)
        return tuple(_decode(kind, item) for kind, item in zip(kinds, data, strict=True))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(data)
    if isinstance(hint, type) and not dataclasses.is_dataclass(hint):
        accepted: Any = (int, float) if hint is float else hint
        if not isinstance(data, accepted) or (isinstance(data, bool) and hint is not bool):
            raise ValueError(f"expected {hint.__name__}, found {type(data).__name__}")
        return _as_float(data) if hint is float else data
    return _decode_dataclass(hint, data)


def _as_float(data: int | float) -> float:
    try:
        return float(data)
    except OverflowError as error:
        raise ValueError("expected float, found an integer that no float can hold") from error


def _decode_union(kinds: tuple[Any, ...], data: Any) -> Any:
    if data is None and types.NoneType in kinds:
        return None
    rest = [kind for kind in kinds if kind is not types.NoneType]
    if len(rest) == 1:
        return _decode(rest[0], data)
    for kind in rest:
        try:
            return _decode(kind, data)
        except ValueError:
            continue
    raise ValueError(f"no member of the union takes {data!r:.80}")


def _decode_dataclass(hint: Any, data: Any) -> Any:
    if not isinstance(data, dict) or "is" not in data:
        raise ValueError(f"expected a {hint.__name__}, found {data!r:.80}")
    cls = _named(hint, data["is"])
    hints = _hints(cls)
    values = {}
    for field in dataclasses.fields(cls):
        if field.init and field.name in data:
            values[field.name] = _decode(hints[field.name], data[field.name])
    try:
        return cls(**values)
    except TypeError as error:
        raise ValueError(f"{cls.__name__}: {error}") from error


def _named(base: Any, name: str) -> Any:
    """The class called `name`: `base` itself or one of its subclasses, the one that was there first where a package
    that may not have the name defines another."""
    waiting = deque([base])
    while waiting:
        cls = waiting.popleft()
        if cls.__name__ == name:
            return cls
        waiting.extend(cls.__subclasses__())
    raise ValueError(f"{name!r:.80} is no {base.__name__}")


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)
