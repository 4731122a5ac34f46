"""All operators of this installation: those of `graph/ops`, and those of other packages.

Another package adds operators through the entry-point group `bolt_build.ops`. Each entry point names a module that is
what a file of `graph/ops` is: `Op` classes, and a tuple `IMPORTERS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from bolt_build.graph.importing import Importer
from bolt_build.graph.ir import Op
from bolt_build.graph.ops import MODULES, OPS, importers_of, operators_of
from bolt_build.plugins import Found, Plugged, is_a, plugged, refused, remembered


@remembered
def operators() -> dict[str, type[Op]]:
    """Every operator class of graphs, by its name in text IR. Raises BoltError where another package's cannot be used.

    Once they are asked for, plans name the classes of other packages too.
    """
    added = operators_of(each.thing for each in plugged_operators().checked())
    return {op.kind: op for op in (*OPS, *(op for op in added if op.in_graphs))}


def importers() -> tuple[Importer, ...]:
    """The importers of all operators, the built-in ones first. Raises BoltError as `operators` does."""
    return importers_of((*MODULES, *(each.thing for each in plugged_operators().checked())))


def added_operators() -> frozenset[tuple[str, str]]:
    """Domain and name of the ONNX operators that other packages import. Raises BoltError as `operators` does."""
    added = importers_of(each.thing for each in plugged_operators().checked())
    return frozenset((each.domain, each.op_type) for each in added)


def plugged_operators() -> Found[ModuleType]:
    """The modules of operators of other packages, and what is wrong with some: those that claim an operator, or a
    version of an ONNX operator, that another one has."""
    found = plugged(group="bolt_build.ops", own=(), check=is_a(ModuleType))
    claimed = dict.fromkeys(_claims(MODULES), "bolt-build itself has")
    sound: list[Plugged[ModuleType]] = []
    problems = list(found.problems)
    for each in found.plugged:
        reason = _reason(each.thing, claimed)
        if reason is None:
            sound.append(each)
            claimed |= dict.fromkeys(_claims([each.thing]), f"the {each.offer.source} adds too")
        else:
            problems.append(refused(each.offer, reason))
    return Found(tuple(sound), tuple(problems))


def _claims(modules: Iterable[ModuleType]) -> list[str]:
    """What two modules may not both have: a class's name, by which plans name it, its kind, and ONNX's versions."""
    known = tuple(modules)
    found = [name for op in operators_of(known) for name in (f"an operator {op.__name__}", f"a kind '{op.kind}'")]
    for each in importers_of(known):
        operator = f"{each.domain}.{each.op_type}" if each.domain else each.op_type
        found += [f"an importer for version {version} of {operator}" for version in each.versions]
    return found


def _reason(module: ModuleType, claimed: dict[str, str]) -> str | None:
    given = getattr(module, "IMPORTERS", ())
    if not isinstance(given, tuple) or not all(isinstance(each, Importer) for each in given):
        return "its IMPORTERS is no tuple of Importer"
    claims = _claims([module])
    if not claims:
        return "the module has neither operators nor IMPORTERS"
    twice = next((claim for claim in claims if claims.count(claim) > 1), None)
    if twice is not None:
        return f"it has {twice} twice"
    taken = next((claim for claim in claims if claim in claimed), None)
    return None if taken is None else f"it has {taken}, which {claimed[taken]}"
