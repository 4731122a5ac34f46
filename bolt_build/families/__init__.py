"""Kernel families: who can compute what on a target, and the C++ that does it.

A family is one folder here, or an object that another package names through the entry-point group
`bolt_build.families`. None is imported before it is asked for.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from bolt_build.errors import BoltError, Diagnostic
from bolt_build.families.base import Family
from bolt_build.targets import Target

_GROUP = "bolt_build.families"
_BUILT_IN = {
    name: EntryPoint(name, f"bolt_build.families.{name}.family:{kind}", _GROUP)
    for name, kind in (("onednn", "OneDnn"), ("cutlass", "Cutlass"), ("portable", "Portable"))
}


def load(target: Target) -> tuple[Family, ...]:
    """The families that `target` names, in its order of preference.

    Raises BoltError ("unknown-family"), one diagnostic for each name that neither this package nor an entry point has.
    """
    found: dict[str, Family] = {name: _BUILT_IN[name].load()() for name in target.families if name in _BUILT_IN}
    if any(name not in found for name in target.families):
        for entry in entry_points(group=_GROUP):
            family: Family = entry.load()
            found.setdefault(family.name, family)
    known = ", ".join(dict.fromkeys([*_BUILT_IN, *found]))
    missing = [
        Diagnostic(
            "unknown-family", f"target '{target.name}' names the unknown kernel family '{name}'", hint=f"known: {known}"
        )
        for name in target.families
        if name not in found
    ]
    if missing:
        raise BoltError(missing)
    return tuple(found[name] for name in target.families)
