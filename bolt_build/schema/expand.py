"""A `Recipe` as text: the whole recipe as YAML, and as flat (key, value) pairs that can be compared."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any

import yaml

from bolt_build.schema.document import CORE_RESOLVERS
from bolt_build.schema.keys import written
from bolt_build.schema.recipe import RECIPE_VERSION, Recipe


class _CoreDumper(yaml.SafeDumper):
    """Quotes what either YAML 1.1 or YAML 1.2 would take for something else than a string."""


for _tag, _pattern, _first in CORE_RESOLVERS:
    _CoreDumper.add_implicit_resolver(_tag, _pattern, _first)


def expand(recipe: Recipe) -> str:
    """YAML of `recipe` with every default written out; beside the recipe's file it loads to an equal recipe."""
    data = {"bolt": RECIPE_VERSION, **_data(recipe)}
    return yaml.dump(data, Dumper=_CoreDumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)


def flatten(recipe: Recipe) -> tuple[tuple[str, str], ...]:
    """Dotted keys and their JSON values, defaults included: what differs between two engines' recipes differs here.

    Files are relative to the recipe's, so that a recipe that moved with its model has not changed. Of the variants only
    the one that is built is here.
    """
    variants = () if recipe.variant is None else (recipe.variant,)
    return tuple(_flat(_data(replace(recipe, variants=variants)), ""))


def _flat(data: dict[str, Any], prefix: str) -> list[tuple[str, str]]:
    pairs = []
    for key, value in data.items():
        if isinstance(value, dict):
            pairs += _flat(value, f"{prefix}{key}.")
        else:
            pairs.append((prefix + key, json.dumps(value)))
    return pairs


def _data(recipe: Recipe) -> dict[str, Any]:
    folder = os.path.dirname(os.path.abspath(recipe.path))
    return {
        "name": recipe.name,
        "model": written(recipe.model, folder),
        "variants": {variant.name: written(variant, folder) for variant in recipe.variants},
        "targets": {target.name: written(target, folder) for target in recipe.targets},
        "policy": written(recipe.policy, folder),
        "layers": {layer.match: written(layer, folder) for layer in recipe.layers},
        "engine": written(recipe.engine, folder),
        "verify": written(recipe.verify, folder),
        "tuning": written(recipe.tuning, folder),
    }
