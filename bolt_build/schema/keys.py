"""Keys of a recipe as fields of dataclasses: each says what it is once, and the JSON Schema, the reading of a file and
`check --expand` follow from that.

    samples: int = field(default=4, metadata=key("Seeded random inputs for each batch size.", minimum=1))

A field whose metadata is `section(...)` holds a dataclass of keys below its name. Fields without either are no keys.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar, get_type_hints

from bolt_build.errors import Mark
from bolt_build.schema import durations

T = TypeVar("T")

Schema = dict[str, Any]

_JSON_TYPES: dict[Any, Any] = {
    bool: "boolean", int: "integer", str: "string", float: "number",
    str | None: ["string", "null"], float | None: ["number", "null"],
}  # fmt: skip
"""JSON Schema's `type` of a field's type."""


class Form(Enum):
    """How a recipe writes a value that the program holds otherwise."""

    PLAIN = "as it is"
    DURATION = "a number and its unit; held as seconds"
    PATH = "relative to the recipe that names it; held as an absolute path"


@dataclasses.dataclass(frozen=True)
class Key:
    """What a key's metadata says: its description, rules of JSON Schema beside its type, and its form.

    `kind` names a definition of the schema's `$defs`, which then has description and type; "" where there is none.
    """

    description: str
    rules: tuple[tuple[str, Any], ...] = ()
    form: Form = Form.PLAIN
    kind: str = ""


@dataclasses.dataclass(frozen=True)
class Section:
    """What the metadata of a field says that holds keys."""

    description: str


def key(description: str = "", *, form: Form = Form.PLAIN, kind: str = "", **rules: Any) -> dict[str, object]:
    """Metadata of a field that is a key. `rules` are keywords of JSON Schema: `minimum=1`, `enum=["row", "model"]`."""
    return {"key": Key(description, tuple(rules.items()), form, kind)}


def section(description: str) -> dict[str, object]:
    """Metadata of a field that holds a dataclass of keys."""
    return {"key": Section(description)}


def schema_of(kind: type) -> dict[str, Schema]:
    """The schema of each key of a dataclass, by name, defaults included."""
    return {name: _schema(said, hint, default) for name, said, hint, default in _keys(kind)}


def overrides_of(kind: type) -> dict[str, Schema]:
    """The same of a dataclass whose keys say nothing where they are not written, and are None then."""
    found = schema_of(kind)
    for rules in found.values():
        del rules["default"]
        if isinstance(rules.get("type"), list):
            (rules["type"],) = (name for name in rules["type"] if name != "null")
    return found


def read(kind: type[T], data: Mapping[str, Any], marks: Mapping[str, Mark], prefix: str) -> T:
    """The dataclass that a mapping of a valid recipe is, its defaults filled in. `prefix` is the mapping's dotted key
    with a dot behind it; `marks` say where keys stand, and so what paths are relative to."""
    hashed: Any = kind  # mypy takes no type for Hashable
    values = {}
    for name, said, hint, _ in _keys(hashed):
        dotted = f"{prefix}{name}"
        if isinstance(said, Section):
            values[name] = read(hint, data[name], marks, f"{dotted}.")
        else:
            values[name] = _held(said, hint, data[name], marks.get(dotted))
    return kind(**values)


def read_overrides(kind: type, data: Mapping[str, Any], marks: Mapping[str, Mark], prefix: str) -> dict[str, Any]:
    """The keys of such a dataclass that a mapping has, by name."""
    keys = ((name, said, hint) for name, said, hint, _ in _keys(kind) if name in data)
    return {name: _held(said, hint, data[name], marks.get(f"{prefix}{name}")) for name, said, hint in keys}


def written(value: object, folder: str) -> dict[str, Any]:
    """The keys of a dataclass as a recipe in `folder` writes them: `read`'s inverse."""
    kind: Any = type(value)  # mypy takes no type for Hashable
    found = {}
    for name, said, _, _ in _keys(kind):
        held = getattr(value, name)
        found[name] = written(held, folder) if isinstance(said, Section) else _said(said, held, folder)
    return found


def beside(name: str, mark: Mark) -> str:
    """The absolute path of a file that a recipe names relative to itself."""
    return os.path.abspath(os.path.join(os.path.dirname(mark.file), name))


def relative(path: str, folder: str) -> str:
    """A file as a recipe in `folder` names it."""
    return os.path.relpath(path, folder).replace(os.sep, "/")


@functools.cache
def _keys(kind: type) -> tuple[tuple[str, Any, Any, Any], ...]:
    """Name, metadata (a Key or a Section), type and default of the fields that are keys."""
    hints, fields = get_type_hints(kind), dataclasses.fields(kind)
    return tuple(
        (each.name, each.metadata["key"], hints[each.name], each.default) for each in fields if "key" in each.metadata
    )


def _schema(said: Key | Section, hint: Any, default: object) -> Schema:
    if isinstance(said, Section):
        return {
            "description": said.description, "type": "object", "additionalProperties": False, "default": {},
            "properties": schema_of(hint),
        }  # fmt: skip
    rules = dict(said.rules)
    head: Schema = {"$ref": f"#/$defs/{said.kind}"} if said.kind else {"description": said.description}
    if said.form is Form.DURATION:
        head |= durations.RULES
    # Words that are all there are say more than that one must be a string.
    elif not said.kind and not ("enum" in rules and hint is str):
        head["type"] = _JSON_TYPES[hint]
    return {**head, **rules, "default": _said(said, default, "")}


def _held(said: Key, hint: Any, value: Any, mark: Mark | None) -> Any:
    if value is None:
        return None
    if said.form is Form.DURATION:
        return durations.seconds_of(value)
    if said.form is Form.PATH:
        assert mark is not None, "a path has no default but None"
        return beside(value, mark)
    return float(value) if hint in (float, float | None) else value


def _said(said: Key, value: Any, folder: str) -> Any:
    if value is None:
        return None
    if said.form is Form.DURATION:
        return durations.duration_of(value)
    return relative(value, folder) if said.form is Form.PATH else value
