"""Recipes: YAML with a source mark on every value, to a validated, frozen `Recipe`.

Nothing is imported here: most processes of a build want a frozen type of `recipe.py`, and no reader of YAML.
"""
