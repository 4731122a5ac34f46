"""Recipes: YAML with a source mark on every value, to a validated, frozen `Recipe`."""

from bolt_build.schema.expand import expand, flatten
from bolt_build.schema.load import load_recipe

__all__ = ["expand", "flatten", "load_recipe"]
