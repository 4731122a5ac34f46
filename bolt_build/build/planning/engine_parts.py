"""What an engine plan has of families and of installed packages."""

from __future__ import annotations

from bolt_build.build.planning.packages import family_package
from bolt_build.build.planning.plan_file import EngineSummary
from bolt_build.families import load
from bolt_build.families.base import Family
from bolt_build.graph.ir import Op
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.plugins import offers
from bolt_build.targets import Target


def families_of(engine: EngineSummary, target: Target) -> tuple[Family, ...]:
    """The families that the engine's tasks know: those of the target's row, and of those that join it the ones that the
    engine has kernels of. Raises BoltError as `load` does."""
    return tuple(family for family in load(target) if family.name in target.families or family.name in engine.families)


def used_families(plan: EnginePlan) -> tuple[str, ...]:
    """Names of the families that the engine has kernels of, sorted."""
    return tuple(sorted({step.candidate.family for batch in plan.plans for step in batch.steps}))


def used_packages(plan: EnginePlan, target: Target) -> tuple[str, ...]:
    """Names of the packages that the engine has operators, kernels or its target from, sorted."""
    operators = {type(step.problem.op) for batch in plan.plans for step in batch.steps}
    found = {family_package(family) for family in used_families(plan)}
    found |= {_operator_package(op) for op in operators}
    found |= {offer.package for offer in offers("bolt_build.targets") if offer.name == target.name}
    return tuple(sorted(name for name in found if name is not None))


def _operator_package(op: type[Op]) -> str | None:
    return next((offer.package for offer in offers("bolt_build.ops") if offer.module == op.__module__), None)
