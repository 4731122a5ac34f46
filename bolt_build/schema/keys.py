"""Keys of a recipe as fields of dataclasses: each says what it is once, and the JSON Schema, the reading of a file and
`check --expand` follow from that.

    samples: int = field(default=4, metadata=key("Seeded random inputs for each batch size.", minimum=1))

A field whose metadata is `section(...)` holds a dataclass of keys below its name. Fields without either are no keys.
A key without a default has to be written. One that is `optional` has none in the schema either, and no null: where a
recipe does not write it, the field's default is held and nothing is written.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from enum import Enum
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

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
    EXTENTS = "a whole number, or a list; held as a tuple"
    EXTENTS_BY_NAME = "the same for each name; held as pairs, names of one extent first, several ascending"
    NAMES = "a list; held as a tuple"
    VALUES_BY_NAME = "for each name a value or lists of some; held as pairs, lists as tuples"


@dataclasses.dataclass(frozen=True)
class Key:
    """What a key's metadata says: its description, rules of JSON Schema beside its type, and its form.

    `kind` names a definition of the schema's `$defs`, which has the type, and the description where there is none here.
    `name` is what recipes call it; "" where that is the field's name.
    """

    description: str
    rules: tuple[tuple[str, Any], ...] = ()
    form: Form = Form.PLAIN
    kind: str = ""
    name: str = ""
    optional: bool = False


@dataclasses.dataclass(frozen=True)
class Section:
    """What the metadata of a field says that holds keys. A recipe may write the key `short` alone in its place."""

    description: str
    short: str = ""


def key(
    description: str = "", *, form: Form = Form.PLAIN, kind: str = "", name: str = "", optional: bool = False,
    **rules: Any,
) -> dict[str, object]:  # fmt: skip
    """Metadata of a field that is a key. `rules` are keywords of JSON Schema: `minimum=1`, `enum=["row", "model"]`."""
    return {"key": Key(description, tuple(rules.items()), form, kind, name, optional)}


def section(description: str, *, short: str = "") -> dict[str, object]:
    """Metadata of a field that holds a dataclass of keys, or None where a recipe need not write it."""
    return {"key": Section(description, short)}


@dataclasses.dataclass(frozen=True)
class _Field:
    """A key or section: the `name` that recipes call it by, the `field` that holds it, its type and default."""

    name: str
    field: str
    said: Key | Section
    hint: Any
    default: Any

    @property
    def optional(self) -> bool:
        return self.default is None if isinstance(self.said, Section) else self.said.optional


def schema_of(kind: type) -> dict[str, Schema]:
    """The schema of each key of a dataclass, by name, defaults included."""
    return {each.name: _schema(each) for each in _fields(kind)}


def read(kind: type[T], data: Mapping[str, Any], marks: Mapping[str, Mark], prefix: str, **others: Any) -> T:
    """The dataclass that a mapping of a valid recipe is, its defaults filled in. `prefix` is the mapping's dotted key
    with a dot behind it; `marks` say where keys stand, and so what paths are relative to. `others` are its fields that
    are no keys."""
    hashed: Any = kind  # mypy takes no type for Hashable
    values = dict(others)
    for each in _fields(hashed):
        if each.optional and each.name not in data:
            continue
        value, dotted = data[each.name], f"{prefix}{each.name}"
        if isinstance(each.said, Key):
            values[each.field] = _held(each.said, each.hint, value, marks.get(dotted))
        else:
            below = value if isinstance(value, Mapping) else {each.said.short: value}
            values[each.field] = read(each.hint, below, marks, f"{dotted}.")
    return kind(**values)


def written(value: object, folder: str) -> dict[str, Any]:
    """The keys of a dataclass as a recipe in `folder` writes them: `read`'s inverse."""
    kind: Any = type(value)  # mypy takes no type for Hashable
    found = {}
    for each in _fields(kind):
        held = getattr(value, each.field)
        if each.optional and held == each.default:
            continue
        found[each.name] = _said(each.said, held, folder) if isinstance(each.said, Key) else written(held, folder)
    return found


def beside(name: str, mark: Mark) -> str:
    """The absolute path of a file that a recipe names relative to itself."""
    return os.path.abspath(os.path.join(os.path.dirname(mark.file), name))


def relative(path: str, folder: str) -> str:
    """A file as a recipe in `folder` names it."""
    return os.path.relpath(path, folder).replace(os.sep, "/")


@functools.cache
def _fields(kind: type) -> tuple[_Field, ...]:
    """The fields that are keys or sections."""
    hints = get_type_hints(kind)
    fields = ((each, each.metadata["key"]) for each in dataclasses.fields(kind) if "key" in each.metadata)
    return tuple(
        _Field(getattr(said, "name", "") or each.name, each.name, said, _there(said, hints[each.name]), each.default)
        for each, said in fields
    )


def _there(said: Key | Section, hint: Any) -> Any:
    """The type of a value that a recipe writes."""
    if isinstance(said, Section) or said.optional:
        return next((each for each in get_args(hint) if each is not NoneType and NoneType in get_args(hint)), hint)
    return hint


def _schema(field: _Field) -> Schema:
    said, default = field.said, {} if field.optional else {"default": _default(field)}
    if field.default is dataclasses.MISSING and isinstance(said, Key):
        default = {}
    if isinstance(said, Key):
        return {**_head(said, field.hint), **dict(said.rules), **default}
    required = [e.name for e in _fields(field.hint) if e.default is dataclasses.MISSING and not e.optional]
    below: Schema = {
        "type": "object", "additionalProperties": False, **({"required": required} if required else {}), **default,
        "properties": schema_of(field.hint),
    }  # fmt: skip
    if said.short:
        return {"description": said.description, "anyOf": [below["properties"][said.short], below]}
    return {"description": said.description, **below}


def _default(field: _Field) -> Any:
    return _said(field.said, field.default, "") if isinstance(field.said, Key) else {}


def _head(said: Key, hint: Any) -> Schema:
    """Description and type."""
    head: Schema = {"description": said.description} if said.description else {}
    of_kind = {"$ref": f"#/$defs/{said.kind}"}
    if said.form is Form.DURATION:
        return head | durations.RULES
    if said.form in (Form.EXTENTS_BY_NAME, Form.VALUES_BY_NAME):
        return head | {"type": "object", "propertyNames": {"minLength": 1}, "additionalProperties": of_kind}
    if said.kind:
        return head | of_kind
    # Words that are all there are say more than that one must be a string.
    return head if "enum" in dict(said.rules) and hint is str else head | {"type": _JSON_TYPES[hint]}


def _held(said: Key, hint: Any, value: Any, mark: Mark | None) -> Any:
    if value is None:
        return None
    if said.form is Form.DURATION:
        return durations.seconds_of(value)
    if said.form is Form.PATH:
        assert mark is not None, "a path has no default but None"
        return beside(value, mark)
    if said.form is Form.EXTENTS:
        return _extents(value)
    if said.form is Form.NAMES:
        return tuple(value)
    if said.form is Form.EXTENTS_BY_NAME:
        pairs = ((name, tuple(sorted(_extents(extents)))) for name, extents in value.items())
        return tuple(sorted(pairs, key=lambda pair: len(pair[1]) > 1))
    if said.form is Form.VALUES_BY_NAME:
        return tuple((name, _frozen(each)) for name, each in value.items())
    return float(value) if hint in (float, float | None) else value


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _thawed(value: Any) -> Any:
    return list(map(_thawed, value)) if isinstance(value, tuple) else value


def _extents(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def _said(said: Key, value: Any, folder: str) -> Any:
    if value is None:
        return None
    if said.form is Form.DURATION:
        return durations.duration_of(value)
    if said.form in (Form.EXTENTS, Form.NAMES):
        return list(value)
    if said.form is Form.EXTENTS_BY_NAME:
        return {name: extents[0] if len(extents) == 1 else list(extents) for name, extents in value}
    if said.form is Form.VALUES_BY_NAME:
        return {name: _thawed(each) for name, each in value}
    return relative(value, folder) if said.form is Form.PATH else value
