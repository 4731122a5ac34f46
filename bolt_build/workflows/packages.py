"""What installed packages add to bolt-build, and what of it cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bolt_build.bench.peers import plugged_peers
from bolt_build.errors import Diagnostic
from bolt_build.families import plugged_families
from bolt_build.graph.operators import plugged_operators
from bolt_build.graph.zoo import plugged_models
from bolt_build.planner.pipeline import plugged_passes
from bolt_build.plugins import GROUPS, Found, offers
from bolt_build.targets import plugged_targets
from bolt_build.toolchain.probe import plugged_tools

_LOOK: tuple[Callable[[], Found[Any]], ...] = (
    plugged_operators, plugged_families, plugged_passes, plugged_targets, plugged_tools, plugged_models, plugged_peers,
)  # fmt: skip
"""One for each group of `plugins.GROUPS`."""


@dataclass(frozen=True)
class InstalledPackage:
    """A package that adds something: what can be used of it ("pass 'fold-twice'"), and what is wrong with the rest."""

    name: str
    version: str
    adds: tuple[str, ...]
    problems: tuple[Diagnostic, ...]


def installed_packages() -> tuple[InstalledPackage, ...]:
    """Every package that adds something, by name. Imports all that they offer."""
    found = [look() for look in _LOOK]
    offered = [each.offer for group in found for each in group.plugged]
    problems = [problem for group in found for problem in group.problems]
    versions = {offer.package: offer.version for group in GROUPS for offer in offers(group)}
    return tuple(
        InstalledPackage(
            name,
            versions[name],
            tuple(offer.what for offer in offered if offer.package == name),
            tuple(problem for problem in problems if problem.subject == name),
        )
        for name in sorted(versions)
    )
