"""The schema file, and what is made of the errors that jsonschema finds by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from bolt_build.dtypes import PRECISIONS
from bolt_build.errors import Mark
from bolt_build.schema.recipe import RECIPE_VERSION
from bolt_build.schema.schema_file import rendered
from bolt_build.schema.validate import SAID, fits, recipe_schema, validate
from bolt_build.schema.values import Entry, Items, Scalar, Table, Unreadable, Value
from bolt_build.wording import suggest

MARK = Mark("recipe.yaml", 1, 1)

PROPERTY_MAPS = ("properties", "$defs")
DATA = ("default", "examples", "const", "enum", "required", "type")
APPLICATORS = {"$ref", "items", "properties", "propertyNames"}
"""Keywords that never fail themselves: an error is one of a keyword below them."""
LEAST_LENGTHS = ("minLength", "minItems", "minProperties")


def schemas(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """`schema` and every schema inside it."""
    yield schema
    for keyword, value in schema.items():
        inner = list(value.values()) if keyword in PROPERTY_MAPS else value
        if keyword in DATA:
            continue
        for item in inner if isinstance(inner, list) else [inner]:
            if isinstance(item, dict):
                yield from schemas(item)


def table_of(data: Any) -> Value:
    """JSON data as values without a place of their own."""
    if isinstance(data, dict):
        return Table(tuple(Entry(key, MARK, table_of(value)) for key, value in data.items()), MARK)
    if isinstance(data, list):
        return Items(tuple(table_of(item) for item in data), MARK)
    return Scalar(data, MARK)


def messages(data: dict[str, Any]) -> list[str]:
    table = table_of(data)
    assert isinstance(table, Table)
    return [diagnostic.message for diagnostic in validate(table)]


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(recipe_schema())


def test_the_file_has_the_keys_of_the_program() -> None:
    """Rendered by `python benchmarks/repository/recipe_schema.py`."""
    text = files("bolt_build.schema").joinpath("recipe.schema.json").read_text(encoding="utf-8")
    assert text == rendered(json.loads(text))


def test_every_keyword_that_can_fail_has_its_words() -> None:
    used = {keyword for schema in schemas(recipe_schema()) for keyword in schema}
    assert (used & set(Draft202012Validator.VALIDATORS)) - APPLICATORS == SAID


def test_every_least_length_is_one() -> None:
    """What is too short is said to be empty."""
    least = [schema[keyword] for schema in schemas(recipe_schema()) for keyword in schema if keyword in LEAST_LENGTHS]
    assert set(least) == {1}


def test_every_mapping_refuses_keys_that_nothing_reads() -> None:
    mappings = [schema for schema in schemas(recipe_schema()) if "properties" in schema]
    assert len(mappings) == 15
    assert all(schema["additionalProperties"] is False for schema in mappings)


def test_every_key_is_described() -> None:
    keys = [
        (name, sub)
        for schema in schemas(recipe_schema())
        for name, sub in schema.get("properties", {}).items()
        if "$ref" not in sub
    ]
    assert [name for name, sub in keys if not sub.get("description")] == []


def test_every_pattern_says_what_it_wants() -> None:
    patterns = [schema for schema in schemas(recipe_schema()) if "pattern" in schema]
    assert patterns
    assert all("patternErrorMessage" in schema for schema in patterns)


def test_every_default_is_valid_where_it_stands() -> None:
    definitions = {"$defs": recipe_schema()["$defs"]}
    defaults = [schema for schema in schemas(recipe_schema()) if "default" in schema]
    assert defaults
    for schema in defaults:
        Draft202012Validator({**definitions, **schema}).validate(schema["default"])


def test_version_and_precisions_are_those_of_the_program() -> None:
    assert recipe_schema()["properties"]["bolt"]["const"] == RECIPE_VERSION
    assert recipe_schema()["$defs"]["precision"]["enum"] == list(PRECISIONS)


_ODD = st.none() | st.booleans() | st.integers(-2, 2**33) | st.sampled_from(["", "fp32", "model", "x", "A"])
_VALID: dict[str, Any] = {
    "bolt": 1,
    "extend": "base.yaml",
    "name": "net",
    "model": {"zoo": "resnet50", "batch": [1, 2], "dims": {"sequence": 3}},
    "targets": {"host": {"precision": "fp32"}},
    "policy": {"fusion": {"epilogue": True}},
    "layers": {"conv*": {"precision": "bf16"}},
    "engine": {"io": {"dtype": "model", "layout": "row"}},
    "verify": {"against": "onnxruntime", "samples": 4, "seed": 0},
}


def paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in `data`."""
    if path:
        yield path
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        yield from paths(value, (*path, key))


@st.composite
def _mutants(draw: st.DrawFn) -> dict[str, Any]:
    """The valid recipe with up to three places changed, removed or added to."""
    data: dict[str, Any] = json.loads(json.dumps(_VALID))
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(list(paths(data))))
        parent = data
        for key in path[:-1]:
            parent = parent[key]
        action = draw(st.sampled_from(["set", "delete", "add", "nest"]))
        if action == "delete" and len(data) > 1:
            del parent[path[-1]]
        elif action == "add" and isinstance(parent[path[-1]], dict):
            parent[path[-1]][draw(st.sampled_from(["onnx", "zoo", "extra", "", "batch"]))] = draw(_ODD)
        elif action == "add" and isinstance(parent[path[-1]], list):
            parent[path[-1]].append(draw(_ODD))
        elif action == "nest":
            parent[path[-1]] = draw(st.lists(_ODD, max_size=2) | st.dictionaries(st.just("x"), _ODD, max_size=1))
        else:
            parent[path[-1]] = draw(_ODD)
    return data


@given(data=_mutants())
@settings(max_examples=200, deadline=None)
def test_no_error_gets_lost_on_the_way_into_words(data: dict[str, Any]) -> None:
    assert bool(messages(data)) == (not Draft202012Validator(recipe_schema()).is_valid(data))


def test_an_integer_has_no_fraction_part_at_all() -> None:
    """JSON Schema takes 4.0 for an integer; a recipe that says so is more likely wrong."""
    data = {**_VALID, "verify": {"samples": 4.0}}
    assert messages(data) == ["'verify.samples' must be an integer, found the number 4.0"]
    assert Draft202012Validator(recipe_schema()).is_valid(data)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"bolt": "1"}, "'bolt' must be an integer, found the string '1'"),
        ({"model": {"zoo": "x", "batch": 0.5}}, "'model.batch' must be an integer or a list, found the number 0.5"),
        ({"verify": {"samples": -0.5}}, "'verify.samples' must be an integer, found the number -0.5"),
        ({"model": ["x"]}, "'model' must be a mapping, found a list"),
    ],
)
def test_of_a_value_of_the_wrong_type_nothing_else_is_said(change: dict[str, Any], expected: str) -> None:
    assert messages({**_VALID, **change}) == [expected]


def test_errors_come_in_the_order_of_the_text() -> None:
    """An alias puts several at one mark, where sorting by marks does not order them."""
    data = {**_VALID, "layers": {name: {"precision": 8} for name in "hgfedcba"}}
    said = "'layers.{}.precision' must be fp32, fp16 or bf16, found the integer 8"
    assert messages(data) == [said.format(name) for name in "hgfedcba"]


def test_of_values_that_could_not_be_read_nothing_is_said() -> None:
    unreadable = Unreadable(MARK)
    batches = Items((unreadable, unreadable, Scalar(2, MARK)), MARK)
    model = Table((Entry("zoo", MARK, unreadable), Entry("batch", MARK, batches)), MARK)
    recipe = table_of({**_VALID, "model": None})
    assert isinstance(recipe, Table)
    entries = tuple(Entry("model", MARK, model) if entry.key == "model" else entry for entry in recipe.entries)
    assert validate(Table(entries, MARK)) == ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("resnet50", True), ("x" * 64, True), ("x" * 65, False), ("x\n", False), ("X", True), ("_", False), ("", False)],
)
def test_names_of_engines(name: str, expected: bool) -> None:
    assert fits(name, recipe_schema()["properties"]["name"]) is expected


def test_suggestions() -> None:
    assert suggest("modle", ["model", "name"]) == "did you mean 'model'?"
    assert suggest("Model", ["model", "name"]) == "did you mean 'model'?"
    assert suggest("zzz", ["model", "name"]) is None
