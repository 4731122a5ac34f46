"""A file's values against its JSON Schema: every departure at once, each with its place and what mends it.

jsonschema finds the errors. `_SENTENCES` says each of them, by its keyword, in words for whoever wrote the recipe.
jsonschema is imported on first use, as help, `clean` and the like start in less time than its import takes.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from bolt_build.errors import Diagnostic, Mark
from bolt_build.schema.document import resolve_plain
from bolt_build.schema.names import engine_name
from bolt_build.schema.valid_before import key_of, valid_before
from bolt_build.schema.values import Items, Scalar, Table, Unreadable, Value, describe, plain, shorten
from bolt_build.wording import joined, listed, suggest

if TYPE_CHECKING:
    # It takes 0.1 s to import: a recipe that was valid before is not validated.
    from jsonschema import ValidationError

    # It takes 0.1 s to import: a recipe that was valid before is not validated.
    from jsonschema.protocols import Validator

Schema = dict[str, Any]

_Path = tuple[str | int, ...]

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


@dataclass(frozen=True)
class _Place:
    """A value, its dotted key, and the mark of that key for what lacks something that could be pointed at."""

    key: str
    key_mark: Mark
    value: Value
    document: str

    @property
    def mark(self) -> Mark:
        """The value's own mark; its key's where nothing is written behind it."""
        return self.key_mark if isinstance(self.value, Scalar) and self.value.value is None else self.value.mark

    @property
    def owner(self) -> str:
        """What the value is called where a key of it is missing or unknown."""
        return f"'{self.key}'" if self.key else f"a {self.document}"


@dataclass(frozen=True)
class _Departure:
    """An error of jsonschema's: `keyword` of `schema` wants `wanted` of the plain value `found`.

    A wrong type, or a value that fits no branch of an `anyOf`, wants a list of types. The place of an error of
    `propertyNames` is the mapping, and what is found is the key.
    """

    keyword: str
    wanted: Any
    found: Any
    schema: Schema
    place: _Place


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


def validate(table: Table, schema: Schema | None = None, document: str = "recipe") -> tuple[Diagnostic, ...]:
    """What is wrong with `table` by the schema (a recipe's unless another is given, which then names the `document`),
    value for value in the order of the text."""
    values, wanted, known = plain(table), schema or recipe_schema(), valid_before()
    key = key_of(values, wanted)
    if known.knows(key):
        return ()
    errors: dict[_Path, list[ValidationError]] = defaultdict(list)
    for error in _validator(wanted).iter_errors(values):
        for meant in _meant(error):
            errors[tuple(meant.absolute_path)].append(meant)
    found: list[Diagnostic] = []
    for path, place in _places(table, (), "", table.mark, document) if errors else ():
        if path in errors and not isinstance(place.value, Unreadable):
            # Of a value of the wrong type nothing else is worth saying.
            for error in [error for error in errors[path] if _is_type_error(error)] or errors[path]:
                departure = _departure(error, place)
                found += _SENTENCES[departure.keyword](departure)
    if not errors:
        known.learn(key)
    # Of keys that are missing, jsonschema gives one error each that does not say which of them it is about.
    return tuple(dict.fromkeys(found))


def fits(value: Any, schema: Schema) -> bool:
    """True where plain `value` is what `schema` wants."""
    key, known = key_of(value, schema), valid_before()
    fitting = known.knows(key) or _validator(schema).is_valid(value)
    if fitting:
        known.learn(key)
    return fitting


@cache
def _validator_class() -> type[Validator]:
    """JSON Schema 2020-12, but that 4.0 is no integer: a recipe that says so is more likely wrong."""
    # It takes 0.1 s to import: a recipe that was valid before is not validated.
    from jsonschema.validators import Draft202012Validator, extend

    checker = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    strict: type[Validator] = extend(Draft202012Validator, type_checker=checker)  # type: ignore[no-untyped-call]
    return strict


def _validator(schema: Schema) -> Validator:
    return _validator_class()(schema)


def _places(value: Value, path: _Path, key: str, key_mark: Mark, document: str) -> Iterator[tuple[_Path, _Place]]:
    """Every value in `value`, itself first, by its path as jsonschema writes it."""
    yield path, _Place(key, key_mark, value, document)
    if isinstance(value, Table):
        for entry in value.entries:
            below = f"{key}.{entry.key}" if key else entry.key
            yield from _places(entry.value, (*path, entry.key), below, entry.mark, document)
    elif isinstance(value, Items):
        for index, item in enumerate(value.items):
            yield from _places(item, (*path, index), f"{key}[{index}]", item.mark, document)


def _meant(error: ValidationError) -> Iterator[ValidationError]:
    """`error`, or where none of several branches fits, the errors of that branch whose type the value has."""
    if error.validator == "anyOf":
        mistyped = {cause.schema_path[0] for cause in _mismatches(error)}
        causes = [cause for cause in error.context or () if cause.schema_path[0] not in mistyped]
        if causes:
            for cause in causes:
                yield from _meant(cause)
            return
    yield error


def _mismatches(error: ValidationError) -> list[ValidationError]:
    """The branches of an `anyOf` that want another type."""
    return [cause for cause in error.context or () if cause.validator == "type" and not cause.path]


def _is_type_error(error: ValidationError) -> bool:
    return error.validator in ("type", "anyOf")


def _departure(error: ValidationError, place: _Place) -> _Departure:
    assert isinstance(error.schema, dict)
    wanted: Any = error.validator_value
    if _is_type_error(error):
        causes = _mismatches(error) if error.validator == "anyOf" else [error]
        each: list[Any] = [cause.validator_value for cause in causes]
        wanted = [name for some in each for name in ([some] if isinstance(some, str) else some)]
    return _Departure(str(error.validator), wanted, error.instance, error.schema, place)


def _wrong_type(wrong: _Departure) -> Iterator[Diagnostic]:
    place, found = wrong.place, wrong.found
    hint = None
    if isinstance(found, str):
        if "boolean" in wrong.wanted and found.lower() in _SPOKEN_BOOLEANS:
            hint = f"write {_SPOKEN_BOOLEANS[found.lower()]}: in YAML 1.2, {found} is a string"
        elif fits(resolve_plain(found), {"type": wrong.wanted}):
            hint = "write it without quotes"
    elif "string" in wrong.wanted and found is not None and isinstance(place.value, Scalar):
        hint = "write it in quotes"
    if "object" in wrong.wanted:
        hint = _as_mapping(place.key, found)
    words = " or ".join(_TYPE_WORDS[name] for name in wrong.wanted if name != "null")
    yield Diagnostic("wrong-type", f"'{place.key}' must be {words}, found {describe(place.value)}", place.mark, hint)


_PRECISION = re.compile(r"fp32|fp16|bf16")


def _as_mapping(key: str, found: Any) -> str | None:
    """How what was probably meant is written as the mapping that it has to be."""
    words = [found] if isinstance(found, str) else found
    if not isinstance(words, list) or not words or not all(isinstance(each, str) for each in words):
        return None
    if key == "targets":
        return f"write targets: {{{', '.join(f'{shorten(each)}: {{}}' for each in words)}}}"
    if key == "model" and isinstance(found, str):
        return f"write model: {{{'onnx' if found.endswith('.onnx') else 'zoo'}: {shorten(found)}}}"
    if key.startswith("targets.") and isinstance(found, str) and _PRECISION.fullmatch(found):
        return f"write {{precision: {found}}}"
    return None


def _not_a_choice(wrong: _Departure) -> Iterator[Diagnostic]:
    words = [str(choice) for choice in ([wrong.wanted] if wrong.keyword == "const" else wrong.wanted)]
    message = f"'{wrong.place.key}' must be {joined(words, 'or')}, found {describe(wrong.place.value)}"
    near = suggest(wrong.found, words) if isinstance(wrong.found, str) else None
    yield Diagnostic("bad-value", message, wrong.place.mark, near)


def _out_of_range(wrong: _Departure) -> Iterator[Diagnostic]:
    bound = "at least" if wrong.keyword == "minimum" else "at most"
    message = f"'{wrong.place.key}' must be {bound} {wrong.wanted}, found {shorten(str(wrong.found))}"
    yield Diagnostic("bad-value", message, wrong.place.mark)


def _too_long(wrong: _Departure) -> Iterator[Diagnostic]:
    message = f"'{wrong.place.key}' has {len(wrong.found)} characters, more than {wrong.wanted}"
    yield Diagnostic("bad-value", message, wrong.place.mark)


def _unlike_pattern(wrong: _Departure) -> Iterator[Diagnostic]:
    place, why = wrong.place, wrong.schema["patternErrorMessage"]
    if isinstance(place.value, Table):
        marks = [entry.mark for entry in place.value.entries if entry.key == wrong.found]
        yield Diagnostic("bad-value", f"'{shorten(wrong.found)}' may not be a key of {place.owner}: {why}", marks[0])
        return
    name = engine_name(wrong.found)
    hint = f"did you mean '{name}'?" if name is not None and fits(name, wrong.schema) else None
    yield Diagnostic("bad-value", f"'{place.key}' may not be '{shorten(wrong.found)}': {why}", place.mark, hint)


def _empty(wrong: _Departure) -> Iterator[Diagnostic]:
    place = wrong.place
    if not isinstance(place.value, Table):
        yield Diagnostic("bad-value", f"'{place.key}' must not be empty", place.mark)
    elif wrong.keyword == "minProperties":
        yield Diagnostic("bad-value", f"'{place.key}' must not be empty", place.key_mark)
    else:
        marks = [entry.mark for entry in place.value.entries if entry.key == wrong.found]
        yield Diagnostic("bad-value", f"a key of {place.owner} is empty", marks[0])


def _repeated(wrong: _Departure) -> Iterator[Diagnostic]:
    assert isinstance(wrong.place.value, Items)
    seen: set[str] = set()
    for item in wrong.place.value.items:
        if isinstance(item, Unreadable):
            continue
        text = json.dumps(plain(item), sort_keys=True)
        if text in seen:
            yield Diagnostic("bad-value", f"'{wrong.place.key}' has {shorten(text)} twice", item.mark)
        seen.add(text)


def _unknown_keys(wrong: _Departure) -> Iterator[Diagnostic]:
    assert isinstance(wrong.place.value, Table)
    known = list(wrong.schema.get("properties", {}))
    for entry in wrong.place.value.entries:
        if entry.key not in known:
            hint = suggest(entry.key, known) or f"its keys: {', '.join(known)}"
            message = f"'{shorten(entry.key)}' is not a key of {wrong.place.owner}"
            yield Diagnostic("unknown-key", message, entry.mark, hint)


def _missing_keys(wrong: _Departure) -> Iterator[Diagnostic]:
    for name in wrong.wanted:
        if name not in wrong.found:
            rule = wrong.schema["properties"][name]
            hint = f"add '{name}: {rule['const']}'" if "const" in rule else None
            message = f"{wrong.place.owner} needs the key '{name}'"
            yield Diagnostic("missing-key", message, wrong.place.key_mark, hint)


def _not_exactly_one(wrong: _Departure) -> Iterator[Diagnostic]:
    """Each branch requires one key; a mapping has exactly one of them."""
    place = wrong.place
    assert isinstance(place.value, Table)
    names = [name for branch in wrong.wanted for name in branch["required"]]
    present = [entry for entry in place.value.entries if entry.key in names]
    if not present:
        yield Diagnostic("missing-key", f"{place.owner} needs one of {listed(names, 'or')}", place.key_mark)
    for extra in present[1:]:
        first = present[0].mark
        where = f"line {first.line}" if first.file == extra.mark.file else f"{first.file}:{first.line}"
        message = f"{place.owner} has {listed(entry.key for entry in present)}, and may have only one of them"
        yield Diagnostic("bad-value", message, extra.mark, f"'{present[0].key}' is at {where}")


_SENTENCES: dict[str, Callable[[_Departure], Iterable[Diagnostic]]] = {
    "type": _wrong_type,
    "anyOf": _wrong_type,
    "const": _not_a_choice,
    "enum": _not_a_choice,
    "minimum": _out_of_range,
    "maximum": _out_of_range,
    "minLength": _empty,
    "minItems": _empty,
    "minProperties": _empty,
    "maxLength": _too_long,
    "pattern": _unlike_pattern,
    "uniqueItems": _repeated,
    "additionalProperties": _unknown_keys,
    "required": _missing_keys,
    "oneOf": _not_exactly_one,
}

SAID = frozenset(_SENTENCES)
"""The keywords of JSON Schema whose errors are put in words here. `recipe.schema.json` must use no others that
can fail."""
