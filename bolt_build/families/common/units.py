"""Units of kernels of several steps."""

from __future__ import annotations

from collections.abc import Iterable

from bolt_build.families.base import KernelUnit


def distinct(units: Iterable[KernelUnit]) -> tuple[KernelUnit, ...]:
    """Each once, by name: an engine compiles its winners alone, and tuning compiles none twice."""
    found = {unit.name: unit for unit in units}
    return tuple(found[name] for name in sorted(found))
