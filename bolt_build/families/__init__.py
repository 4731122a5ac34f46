"""Kernel families: who can compute what on a target, and the C++ that does it.

A family is one folder here, or an object that another package names through the entry-point group
`bolt_build.families`, where a target's row names it or it joins the row. None is imported before it is asked for.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint

from bolt_build.errors import BoltError, Diagnostic
from bolt_build.families.base import AddedFamily, Family
from bolt_build.plugins import Found, Plugged, guarded, has, plugged
from bolt_build.targets import Target

_GROUP = "bolt_build.families"
_BUILT_IN = {
    name: EntryPoint(name, f"bolt_build.families.{name}.family:{kind}", _GROUP)
    for name, kind in (
        ("onednn", "OneDnn"),
        ("cutlass", "Cutlass"),
        ("grouped", "Grouped"),
        ("attention", "Attention"),
        ("portable", "Portable"),
    )
}
_PROTOCOL = (
    "name", "joins", "include_dir", "sources", "propose", "propose_conversion", "candidates", "variants", "predict",
    "expense", "refuse", "emit", "units",
)  # fmt: skip


def load(target: Target) -> tuple[Family, ...]:
    """The families of `target`, in order of preference: those that its row names, and behind them those of other
    packages that join the row.

    Raises BoltError: "unknown-family", one diagnostic for each name that neither this package nor another one has, or
    where another package's family cannot be used.
    """
    added = {each.thing.name: each for each in plugged_families().checked()}
    missing = [
        Diagnostic(
            "unknown-family",
            f"target '{target.name}' names the unknown kernel family '{name}'",
            hint=f"known: {', '.join((*_BUILT_IN, *added))}",
        )
        for name in target.families
        if name not in _BUILT_IN and name not in added
    ]
    if missing:
        raise BoltError(missing)
    joining = [name for name, each in added.items() if target.name in each.thing.joins and name not in target.families]
    return tuple(
        _BUILT_IN[name].load()() if name in _BUILT_IN else _guarded(added[name])
        for name in (*target.families, *joining)
    )


def plugged_families() -> Found[AddedFamily]:
    """The families of other packages, and what is wrong with some."""
    return plugged(group="bolt_build.families", own=_BUILT_IN, check=has("Family", *_PROTOCOL))


def _guarded(added: Plugged[AddedFamily]) -> Family:
    return guarded(added.offer, added.thing)
