"""Recipes drawn from the schema, right ones, and mistakes put into them."""

from __future__ import annotations

import copy
import re
from random import Random
from typing import Any

from bolt_build.schema.validate import Schema, recipe_schema, resolved
from bolt_build.targets import all_targets

_TEXTS = (
    "net", "a", "deep_gelu", "n" * 64, "Net-2.b", "9", "90s", "20min", "2h", "999999h", "*", "/layer1/*", "net.lock",
)  # fmt: skip
"""Texts of which some fit each pattern of the schema."""

_STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 2**31 - 1, 2**31, 2**32, 2**63, 2**64, -(2**63), 10**30, 10**99, 10**400, 0.5, -0.0,
    1e308, float("inf"), float("nan"), "", " ", "\n", "a\nb", "\0", "\x1b[31mred", "\u202eright to left", "é\u0301",
    "漢字", "🧱" * 30, "\u200b", "\ufeff", "x" * 10000, "*", "[", "[!", "**", "?" * 50, "/", "../../etc/passwd",
    "%s%n", "{0}", "1", "true", "null", "1e3", "host", "resnet50", [], {},
    [1], [[1]], [None], {"a": 1}, {"": 1}, [1, 1], [True, 1],
    [1] * 1000, {"host": {}}, [{}], "net.onnx", "base.yaml", "-1s", "0s", "1 h", "fp32", "FP32", "bf16", "fp8",
)  # fmt: skip
"""Values that are somewhere wrong, somewhere right."""

_KEYS = (
    "", " ", "Bolt", "modle", "zzo", "<<", "a.b", "\x1b[1m", "é", "漢字", "x" * 3000, "__proto__", "0", "null", "*",
)  # fmt: skip


def drawn(random: Random) -> dict[str, Any]:
    """A recipe, right where the schema can tell."""
    data: dict[str, Any] = _object(random, recipe_schema())
    # What the schema leaves to the code: names of targets and models, and files that are there.
    known = list(all_targets())
    chosen = random.sample(known, random.randint(1, min(4, len(known))))
    data["targets"] = {
        target.name: random.choice((None, {}, {"precision": target.precisions[0]}, {"batch": [1, 4]}))
        for target in chosen
    }
    model = {key: value for key, value in data["model"].items() if key not in ("zoo", "onnx", "variant")}
    data["model"] = random.choice(({"zoo": "resnet18"}, {"onnx": "net.onnx"})) | model
    if "zoo" in data["model"]:
        data["model"].pop("fixed", None)
    variants = list(data.get("variants", ()))
    if variants and random.random() < 0.3:
        data["model"]["variant"] = random.choice(variants)
    data.pop("extend", None)
    if random.random() < 0.1:
        data["extend"] = "base.yaml"
    return data


def _object(random: Random, schema: Schema) -> dict[str, Any]:
    found = {}
    required = schema.get("required", ())
    for name, below in schema.get("properties", {}).items():
        if name in required or random.random() < 0.4:
            found[name] = _value(random, below)
    further = schema.get("additionalProperties")
    if further:
        for name in random.sample(("net", "a", "height", "/layer1/*", "conv_1"), random.randint(0, 3)):
            if fits_names(name, schema):
                found[name] = _value(random, further)
    if len(found) < schema.get("minProperties", 0) and schema.get("properties"):
        name = random.choice(sorted(schema["properties"]))
        found[name] = _value(random, schema["properties"][name])
    return found


def fits_names(name: str, schema: Schema) -> bool:
    """Whether a mapping of this schema may have the key: names of its own are lower-case words."""
    return "pattern" not in schema.get("propertyNames", {}) or name.isidentifier()


def _value(random: Random, schema: Schema) -> Any:
    schema = resolved(schema)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return random.choice(schema["enum"])
    if "anyOf" in schema:
        return _value(random, random.choice(schema["anyOf"]))
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    kind = random.choice(kinds)
    if kind == "object":
        return _object(random, schema)
    if kind == "array":
        # Of lists in lists each has one, or they would not end.
        most = 1 if "anyOf" in resolved(schema["items"]) else 4
        items = [_value(random, schema["items"]) for _ in range(random.randint(1, most))]
        return sorted(set(items)) if schema.get("uniqueItems") else items
    if kind == "integer":
        low, high = schema.get("minimum", 0), schema.get("maximum", 100)
        return random.choice((low, high, random.randint(low, min(high, low + 100))))
    if kind == "number":
        return random.choice((0, 16000, -0.5, 1e-3))
    if kind == "boolean":
        return random.random() < 0.5
    if kind == "null":
        return None
    return _text(random, schema)


def _text(random: Random, schema: Schema) -> str:
    """Raises IndexError where no text is known that fits: add one to `_TEXTS`."""
    return random.choice([text for text in _TEXTS if re.search(schema.get("pattern", ""), text)])


def spoiled(random: Random, data: dict[str, Any]) -> dict[str, Any]:
    """`data` with one mistake: a value, a key, something gone, or something that stands elsewhere too."""
    data = copy.deepcopy(data)
    tables = [table for table in _below(data) if isinstance(table, dict)]
    filled = [table for table in tables if table] or [data]
    table = random.choice(filled)
    kind = random.randrange(6)
    if kind == 0 or not table:
        table[random.choice(_KEYS)] = random.choice(_STRANGE)
        return data
    key = random.choice(sorted(table))
    if kind == 1:
        del table[key]
    elif kind == 2:
        table[_misspelt(random, key)] = table.pop(key)
    elif kind == 3:
        random.choice(filled)[key] = table[key] if not isinstance(table[key], dict) else copy.deepcopy(table[key])
    else:
        table[key] = copy.deepcopy(random.choice(_STRANGE))
    return data


def _misspelt(random: Random, key: str) -> str:
    at = random.randint(0, len(key))
    return random.choice(
        (key[:at] + key[at + 1 :], key[:at] + random.choice("xyz_-. \u0301") + key[at:], key.upper(), key[::-1])
    )


def _below(value: Any) -> list[Any]:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(below for part in parts for below in _below(part))]


def unlike(name: str) -> str:
    """A long name as it may stand in a report."""
    return name if len(name) <= 30 else f"{name[:30]}... ({len(name)})"
