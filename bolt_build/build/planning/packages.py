"""Which installed packages an engine depends on: what they add takes part in its plan, and in its tasks where used.

Every package that adds operators, families or passes is asked when a target is planned, so a change of any of them
plans again. What that leaves as it was is not built again: tasks depend on the packages that the engine uses
(`engine_parts.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from bolt_build.plugins import Offer, offers
from bolt_build.targets import Target

_PLANNED = ("bolt_build.ops", "bolt_build.families", "bolt_build.passes")


def asked_for(target: Target) -> Callable[[Offer], bool]:
    """Of which offers planning for `target` may make use."""
    return lambda offer: offer.group in _PLANNED or (offer.group, offer.name) == ("bolt_build.targets", target.name)


def named(packages: tuple[str, ...]) -> Callable[[Offer], bool]:
    """True of the offers of these packages."""
    return lambda offer: offer.package in packages


def family_package(family: str) -> str | None:
    """The package that adds the kernel family of this name, None for a built-in one."""
    return next((offer.package for offer in offers("bolt_build.families") if offer.name == family), None)
