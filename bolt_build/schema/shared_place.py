"""A store that a team shares, as users name it and as processes of a build hand it on: these read no YAML."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_TIMEOUT = 10.0


@dataclass(frozen=True)
class SharedPlace:
    """A store that a team shares. `write`: what is built and measured here goes into it. `timeout`: seconds without a
    byte from it until it counts as gone."""

    url: str
    write: bool = False
    timeout: float = DEFAULT_TIMEOUT
