"""What a report of an engine is made from: what is known of its kernels, and what its build left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bolt_build.build.builder import BuildOptions, chosen
from bolt_build.errors import BoltError
from bolt_build.schema.recipe import Recipe
from bolt_build.verify.report import VerifyReport
from bolt_build.workflows.built import built_engines
from bolt_build.workflows.compared import Figure, sizes_of, verification_of
from bolt_build.workflows.evidence import Evidence, gather


@dataclass(frozen=True)
class ReportedEngine:
    """`sizes` and `verification` are those of the build, `unbuilt` says why there are none: it was not finished, or is
    not what the recipe describes any more. A build that was not verified here has sizes alone."""

    evidence: Evidence
    sizes: tuple[Figure, ...] = ()
    verification: VerifyReport | None = None
    unbuilt: str = ""


def report_engines(recipe: Recipe, options: BuildOptions, say: Callable[[str], None]) -> tuple[ReportedEngine, ...]:
    """The engines of the chosen targets, planned as a build does. Nothing is built or measured.

    Raises BoltError for what is wrong with the recipe, the model, the lock or the records, and for a damaged build.
    """
    found = []
    for spec in chosen(recipe, options.targets):
        evidence = gather(recipe, spec, options, say)
        try:
            (built,) = built_engines(recipe, replace(options, targets=(spec.name,)))
        except BoltError as error:
            found.append(ReportedEngine(evidence, unbuilt="; ".join(each.message for each in error.diagnostics)))
            continue
        sizes = tuple(sizes_of(built.directory, evidence.engine.plan))
        found.append(ReportedEngine(evidence, sizes, verification_of(built.directory)))
    return tuple(found)
