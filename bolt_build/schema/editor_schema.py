"""The recipes' JSON Schema as editors are given it: with an identifier, and the names that this installation knows."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from bolt_build.schema.recipe import RECIPE_VERSION
from bolt_build.schema.validate import Schema, recipe_schema
from bolt_build.targets import Target

SCHEMA_ID = f"urn:bolt-build:recipe:{RECIPE_VERSION}"
"""The `$id` of the schema, by which a file that holds it is known."""


def editor_schema(targets: Sequence[Target], models: Sequence[str]) -> Schema:
    """The schema with each of `targets` as a key of its own, with the precisions that it computes in, and the zoo's
    `models` as the values of `model.zoo`. What other installations know more is no key to this one."""
    schema = {"$schema": recipe_schema()["$schema"], "$id": SCHEMA_ID, **copy.deepcopy(recipe_schema())}
    schema["properties"]["model"]["properties"]["zoo"]["enum"] = list(models)
    named = schema["properties"]["targets"]
    named["additionalProperties"] = False
    named["properties"] = {target.name: _target(schema["$defs"]["target"], target) for target in targets}
    return schema


def _target(form: Schema, target: Target) -> Schema:
    own = copy.deepcopy(form)
    precision = own["properties"]["precision"]
    precision["enum"] = list(target.precisions)
    precision["default"] = target.precisions[0]
    return {**own, "description": target.description}
