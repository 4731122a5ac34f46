"""Texts of packages that people take away, by their templates."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import jinja2


def package_text(template: str, words: Mapping[str, object]) -> bytes:
    """The template of `templates/` with `words` in it. A word that is missing is an error."""
    return _environment().get_template(template).render(words).encode()


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("bolt_build.workflows", "templates"), undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )  # fmt: skip
