"""`recipe.schema.json`: keys as `recipe.py` has them, and the rest as it stands in the file."""

from __future__ import annotations

import json
from typing import Any

from bolt_build.schema.keys import Schema, schema_of
from bolt_build.schema.recipe import LayerSpec, ModelSpec, Recipe, TargetSpec, VariantSpec

_WIDTH = 110


def rendered(schema: Schema) -> str:
    """The text of the file whose contents are `schema`, with all keys of the dataclasses made anew."""
    model = {**schema["properties"]["model"], "properties": schema_of(ModelSpec)}
    named = (("target", TargetSpec), ("variant", VariantSpec), ("layer", LayerSpec))
    kinds = {name: {**schema["$defs"][name], "properties": schema_of(kind)} for name, kind in named}
    properties = {**schema["properties"], "model": model, **schema_of(Recipe)}
    return _text({**schema, "properties": properties, "$defs": {**schema["$defs"], **kinds}}, 0) + "\n"


def _text(value: Any, depth: int) -> str:
    """JSON, on one line where it is short and describes nothing."""
    if not isinstance(value, dict | list) or not value:
        return json.dumps(value)
    line = _line(value)
    if len(line) + 2 * depth <= _WIDTH and '"description"' not in line:
        return line
    inner = "  " * (depth + 1)
    if isinstance(value, list):
        parts = [_text(item, depth + 1) for item in value]
    else:
        parts = [f"{json.dumps(name)}: {_text(item, depth + 1)}" for name, item in value.items()]
    opened, closed = "[]" if isinstance(value, list) else "{}"
    joined = f",\n{inner}".join(parts)
    return f"{opened}\n{inner}{joined}\n{'  ' * depth}{closed}"


def _line(value: Any) -> str:
    if isinstance(value, dict) and value:
        return "{ " + ", ".join(f"{json.dumps(name)}: {_line(item)}" for name, item in value.items()) + " }"
    return f"[{', '.join(map(_line, value))}]" if isinstance(value, list) else json.dumps(value)
