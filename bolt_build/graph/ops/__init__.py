"""The operators of the IR, one file an operator or a close group. Importing this package defines all of them.

A file is found by lying here, in a folder of its kin: its `Op` classes are the IR's operators, its tuple `IMPORTERS`
(where it has one) says which ONNX operators become them. There is no list to keep.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

from bolt_build.graph.importing import Importer
from bolt_build.graph.ir import Op
from bolt_build.plugins import names_below

MODULES: tuple[ModuleType, ...] = tuple(import_module(f"{__name__}.{name}") for name in names_below(__name__, __path__))
"""Every file below this folder, in the order of the files' own names."""


def operators_of(modules: Iterable[ModuleType]) -> tuple[type[Op], ...]:
    """The operator classes that `modules` define themselves, by class name."""
    found = {
        each
        for module in modules
        for each in vars(module).values()
        if inspect.isclass(each)
        and issubclass(each, Op)
        and each.__module__ == module.__name__
        and not inspect.isabstract(each)
    }
    return tuple(sorted(found, key=lambda op: op.__name__))


def importers_of(modules: Iterable[ModuleType]) -> tuple[Importer, ...]:
    """The importers that `modules` list, in their order."""
    return tuple(importer for module in modules for importer in getattr(module, "IMPORTERS", ()))


OPS: tuple[type[Op], ...] = tuple(op for op in operators_of(MODULES) if op.in_graphs)
"""Every operator class of graphs' text form."""

OF_PROBLEMS: tuple[type[Op], ...] = tuple(op for op in operators_of(MODULES) if not op.in_graphs)
"""Operators that kernel problems have and graphs do not."""

IMPORTERS: tuple[Importer, ...] = importers_of(MODULES)
"""The importers of all of them."""
