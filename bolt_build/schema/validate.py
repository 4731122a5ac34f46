"""A recipe's values against its JSON Schema: every departure at once, each with its place and what mends it.

`KEYWORDS` are the keywords of JSON Schema 2020-12 that `recipe.schema.json` may use. They are read here, rather than
by the jsonschema package, because importing that takes longer than everything else that a build with nothing to do
spends on its recipe, and because its messages would have to be replaced anyway. The tests hold the two together.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from bolt_build.errors import Diagnostic, Mark
from bolt_build.schema.document import resolve_plain
from bolt_build.schema.values import Items, Scalar, Table, Unreadable, Value, describe, plain, shorten

Schema = dict[str, Any]

ANNOTATIONS = frozenset({"$schema", "title", "description", "default", "examples", "$defs", "patternErrorMessage"})
"""Keywords that constrain nothing."""

KEYWORDS = ANNOTATIONS | {
    "$ref", "type", "const", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "items", "minItems",
    "uniqueItems", "properties", "additionalProperties", "propertyNames", "required", "minProperties", "anyOf", "oneOf",
}  # fmt: skip

_TYPE_WORDS = {
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "empty",
}

_SPOKEN_BOOLEANS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}


@cache
def recipe_schema() -> Schema:
    """The JSON Schema of recipes. Callers must not change it."""
    text = files("bolt_build.schema").joinpath("recipe.schema.json").read_text(encoding="utf-8")
    schema: Schema = json.loads(text)
    return schema


def resolved(schema: Schema) -> Schema:
    """`schema` with its `$ref` followed; keywords beside the reference hold too."""
    reference = schema.get("$ref")
    if reference is None:
        return schema
    return {**recipe_schema()["$defs"][reference.removeprefix("#/$defs/")], **schema}


def validate(recipe: Table) -> tuple[Diagnostic, ...]:
    """What is wrong with `recipe` by the schema, in the order of the text."""
    validation = _Validation()
    validation.check(recipe, recipe_schema(), "", recipe.mark)
    return tuple(validation.found)


def suggest(word: str, known: Iterable[str]) -> str | None:
    """ "did you mean 'x'?" for the known word nearest to `word`; None where none is near."""
    near = difflib.get_close_matches(word.lower(), list(known), 1, 0.6)
    return f"did you mean '{near[0]}'?" if near else None


def listed(words: Iterable[str], last: str = "and") -> str:
    """'a', 'b' and 'c'."""
    return _joined([f"'{word}'" for word in words], last)


def _joined(words: Sequence[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


class _Validation:
    """Walks values and schema together. A value's place is its dotted key, and the mark of its key where it is unfit
    to be pointed at itself (a mapping that lacks something)."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []

    def check(self, value: Value, schema: Schema, key: str, key_mark: Mark) -> None:
        schema = resolved(schema)
        if isinstance(value, Unreadable):
            return
        if "anyOf" in schema:
            self._any_of(value, schema["anyOf"], key, key_mark)
        elif "type" in schema and not has_type(value, _types(schema)):
            self._wrong_type(value, _types(schema), key, key_mark)
        elif isinstance(value, Table):
            self._table(value, schema, key, key_mark)
        elif isinstance(value, Items):
            self._items(value, schema, key)
            self._choice(value, schema, key)
        else:
            self._scalar(value, schema, key)

    def _say(self, code: str, message: str, mark: Mark, hint: str | None = None) -> None:
        self.found.append(Diagnostic(code, message, mark, hint))

    def _any_of(self, value: Value, branches: list[Schema], key: str, key_mark: Mark) -> None:
        """Branches differ by type, so the one that fits the value's type is the one that was meant."""
        types = tuple(name for branch in branches for name in _types(resolved(branch)))
        for branch in branches:
            if has_type(value, _types(resolved(branch))):
                self.check(value, branch, key, key_mark)
                return
        self._wrong_type(value, types, key, key_mark)

    def _wrong_type(self, value: Value, types: tuple[str, ...], key: str, key_mark: Mark) -> None:
        wanted = " or ".join(_TYPE_WORDS[name] for name in types if name != "null")
        hint = None
        if isinstance(value, Scalar) and isinstance(value.value, str):
            text = value.value
            if "boolean" in types and text.lower() in _SPOKEN_BOOLEANS:
                hint = f"write {_SPOKEN_BOOLEANS[text.lower()]}: in YAML 1.2, {text} is a string"
            elif has_type(Scalar(resolve_plain(text), value.mark), types):
                hint = "write it without quotes"
        elif "string" in types and isinstance(value, Scalar) and value.value is not None:
            hint = "write it in quotes"
        empty = isinstance(value, Scalar) and value.value is None
        self._say(
            "wrong-type", f"'{key}' must be {wanted}, found {describe(value)}", key_mark if empty else value.mark, hint
        )

    def _table(self, table: Table, schema: Schema, key: str, key_mark: Mark) -> None:
        properties: dict[str, Schema] = schema.get("properties", {})
        rest = schema.get("additionalProperties", True)
        shortest = schema.get("propertyNames", {}).get("minLength", 0)
        prefix = f"{key}." if key else ""
        for entry in table.entries:
            if len(entry.key) < shortest:
                self._say("bad-value", f"a key of '{key}' is empty", entry.mark)
            elif entry.key in properties:
                self.check(entry.value, properties[entry.key], prefix + entry.key, entry.mark)
            elif isinstance(rest, dict):
                self.check(entry.value, rest, prefix + entry.key, entry.mark)
            elif rest is False:
                self._unknown_key(entry.key, entry.mark, list(properties), key)
        for name in schema.get("required", ()):
            if table.get(name) is None:
                hint = f"add '{name}: {schema['properties'][name]['const']}'" if name == "bolt" else None
                self._say("missing-key", f"{_owner(key)} needs the key '{name}'", key_mark, hint)
        if len(table.entries) < schema.get("minProperties", 0):
            self._say("bad-value", f"'{key}' must not be empty", key_mark)
        if "oneOf" in schema:
            self._one_of(table, schema["oneOf"], key, key_mark)

    def _unknown_key(self, name: str, mark: Mark, known: list[str], owner: str) -> None:
        hint = suggest(name, known) or f"its keys: {', '.join(known)}"
        self._say("unknown-key", f"'{shorten(name)}' is not a key of {_owner(owner)}", mark, hint)

    def _one_of(self, table: Table, branches: list[Schema], key: str, key_mark: Mark) -> None:
        """Each branch requires one key; a mapping has exactly one of them."""
        names = [name for branch in branches for name in branch["required"]]
        present = [entry for entry in table.entries if entry.key in names]
        if not present:
            self._say("missing-key", f"'{key}' needs one of {listed(names, 'or')}", key_mark)
        for extra in present[1:]:
            first = present[0].mark
            where = f"line {first.line}" if first.file == extra.mark.file else f"{first.file}:{first.line}"
            message = f"'{key}' has {listed(entry.key for entry in present)}, and may have only one of them"
            self._say("bad-value", message, extra.mark, f"'{present[0].key}' is at {where}")

    def _items(self, items: Items, schema: Schema, key: str) -> None:
        for index, item in enumerate(items.items):
            self.check(item, schema.get("items", {}), f"{key}[{index}]", item.mark)
        if len(items.items) < schema.get("minItems", 0):
            self._say("bad-value", f"'{key}' must not be empty", items.mark)
        if schema.get("uniqueItems", False):
            seen: list[str] = []
            for item in items.items:
                text = json.dumps(plain(item), sort_keys=True)
                if text in seen:
                    self._say("bad-value", f"'{key}' has {shorten(text)} twice", item.mark)
                seen.append(text)

    def _scalar(self, scalar: Scalar, schema: Schema, key: str) -> None:
        value = scalar.value
        if isinstance(value, str):
            self._text(value, scalar.mark, schema, key)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            least, most = schema.get("minimum"), schema.get("maximum")
            if least is not None and value < least:
                self._say("bad-value", f"'{key}' must be at least {least}, found {shorten(str(value))}", scalar.mark)
            if most is not None and value > most:
                self._say("bad-value", f"'{key}' must be at most {most}, found {shorten(str(value))}", scalar.mark)
        self._choice(scalar, schema, key)

    def _text(self, text: str, mark: Mark, schema: Schema, key: str) -> None:
        if len(text) < schema.get("minLength", 0):
            self._say("bad-value", f"'{key}' must not be empty", mark)
        elif len(text) > schema.get("maxLength", len(text)):
            self._say("bad-value", f"'{key}' has {len(text)} characters, more than {schema['maxLength']}", mark)
        elif "pattern" in schema and not matches(schema["pattern"], text):
            message = f"'{key}' may not be '{shorten(text)}': {schema['patternErrorMessage']}"
            self._say("bad-value", message, mark, suggest_name(text))

    def _choice(self, value: Scalar | Items, schema: Schema, key: str) -> None:
        choices = [schema["const"]] if "const" in schema else schema.get("enum", ())
        found = plain(value)
        if not choices or any(type(found) is type(choice) and found == choice for choice in choices):
            return
        words = [str(choice) for choice in choices]
        message = f"'{key}' must be {_joined(words, 'or')}, found {describe(value)}"
        near = suggest(found, words) if isinstance(found, str) else None
        self._say("bad-value", message, value.mark, near)


def has_type(value: Value, types: tuple[str, ...]) -> bool:
    """True where `value` has one of JSON Schema's `types`. A float is no integer, even without a fraction."""
    if isinstance(value, Items):
        return "array" in types
    if isinstance(value, Table):
        return "object" in types
    if isinstance(value, Unreadable) or value.value is None:
        return "null" in types
    if isinstance(value.value, bool):
        return "boolean" in types
    if isinstance(value.value, int):
        return "integer" in types or "number" in types
    return ("number" if isinstance(value.value, float) else "string") in types


def matches(pattern: str, text: str) -> bool:
    """True where the JSON Schema `pattern` occurs in `text`; its `$` is the very end, as in JavaScript."""
    return re.search(re.sub(r"(?<!\\)\$$", r"\\Z", pattern), text) is not None


def suggest_name(text: str) -> str | None:
    """A legal name made of `text`, as a hint."""
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_").lstrip("0123456789_")
    return f"did you mean '{name}'?" if name else None


def _types(schema: Schema) -> tuple[str, ...]:
    types = schema.get("type", ())
    return (types,) if isinstance(types, str) else tuple(types)


def _owner(key: str) -> str:
    return f"'{key}'" if key else "a recipe"
