"""The portable kernels, one file an operator or a close group; `RULES` has one entry an operator.

A file is found by lying here, in a folder of its kin: its tuple `RULES` says how the operators that it names are
offered and emitted. There is no list to keep.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

from bolt_build.families.portable.rule import Rule
from bolt_build.graph.ir import Op
from bolt_build.plugins import names_below

MODULES: tuple[ModuleType, ...] = tuple(import_module(f"{__name__}.{name}") for name in names_below(__name__, __path__))
"""Every file below this folder, in the order of the files' own names."""


def rules_of(modules: Iterable[ModuleType]) -> dict[type[Op], Rule]:
    """The rules that `modules` list, by operator. Raises ValueError where two claim the same operator."""
    found: dict[type[Op], Rule] = {}
    for module in modules:
        rules: tuple[Rule, ...] = getattr(module, "RULES", ())
        for rule in rules:
            if rule.op in found:
                raise ValueError(f"two portable rules for {rule.op.kind}")
            found[rule.op] = rule
    return found


RULES: dict[type[Op], Rule] = rules_of(MODULES)
