"""Units of kernels of several steps."""

from __future__ import annotations

from collections.abc import Iterable

from bolt_build.digest import digest
from bolt_build.families.base import KernelUnit


def named_unit(text: str, memory_mb: int, label: str = "") -> KernelUnit:
    """The unit of a kernel's C++, named by that."""
    return KernelUnit(f"k_{digest(text)[:16]}.cu", text, memory_mb, label)


def distinct(units: Iterable[KernelUnit]) -> tuple[KernelUnit, ...]:
    """Each once, by name: an engine compiles its winners alone, and tuning compiles none twice."""
    found = {unit.name: unit for unit in units}
    return tuple(found[name] for name in sorted(found))
