"""The forms of `plan` and `graph` that are charts: what both need for them."""

from __future__ import annotations

import sys
from collections.abc import Callable

from bolt_build.build.builder import BuildOptions, chosen
from bolt_build.report.pages.chart import Chart
from bolt_build.report.pages.mermaid import mermaid
from bolt_build.report.pages.svg import svg
from bolt_build.schema.recipe import Recipe
from bolt_build.workflows.evidence import Evidence, gather

FORMATS: dict[str, Callable[[Chart], str]] = {"mermaid": mermaid, "svg": svg}


def evidences(recipe: Recipe, options: BuildOptions) -> list[Evidence]:
    """Of each of the chosen targets. Raises BoltError."""
    specs = chosen(recipe, options.targets)
    return [gather(recipe, spec, options, lambda text: print(text, file=sys.stderr)) for spec in specs]
