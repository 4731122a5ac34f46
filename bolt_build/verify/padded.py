"""Shorter inputs beside the reference: what planning says of padding is run once for each dimension."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

import numpy as np

from bolt_build.errors import Diagnostic
from bolt_build.graph.ir import Array
from bolt_build.planner.engine_plan import BatchPlan, EnginePlan, PaddedDim
from bolt_build.sizes import sizes_of
from bolt_build.verify.outputs import compare_outputs
from bolt_build.verify.reference import widened
from bolt_build.verify.report import VerifyReport
from bolt_build.verify.samples import Samples
from bolt_build.verify.sensitivity import Growth
from bolt_build.verify.tolerance import Tolerances


class PaddingContext(Protocol):
    """What this needs of a padded `runtime.loader.Context`."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]: ...


class PaddingModel(Protocol):
    """What this needs of a `runtime.loader.Model`."""

    def context(
        self, batch: int, *, dims: Mapping[str, int], padded: bool
    ) -> AbstractContextManager[PaddingContext]: ...


class WholeModel(Protocol):
    """What this needs of a `Reference`."""

    def outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]: ...


def with_padding(
    model: PaddingModel, reference: WholeModel, plan: EnginePlan, samples: Samples, tolerances: Tolerances,
    report: VerifyReport,
) -> VerifyReport:  # fmt: skip
    """The report with what departs where the largest plan runs a sample of the next smaller one, padded along one
    dimension that the plan pads. A sample whose mask leaves nothing of a row says nothing, and is left out."""
    found: list[Diagnostic] = []
    for which, dim in enumerate(plan.padded):
        for small, large in _pair(plan, which) if not dim.refused else ():
            samples.count(small.batch, small.inputs)  # reads them, where they are a file's
            inputs = samples.inputs(small, 0)
            if which > 0 and _leaves_nothing(dim, inputs):
                continue
            growth = {
                o.name: Growth(o.amplification, o.of_elements, o.changed)
                for b in report.batches
                for o in b.outputs
                if sizes_of(b) == small.sizes
            }
            with model.context(large.batch, dims=dict(large.dims), padded=True) as context:
                results = context.run(inputs)
            expected = reference.outputs({name: widened(array) for name, array in inputs.items()})
            judged = compare_outputs(small, tolerances, growth, [results], [expected])
            found += [
                Diagnostic("padding-departs", f"padded to {large.sizes}: {each.message}")
                for each in judged.problems
                if each.severity == "error"
            ]
    return replace(report, ok=report.ok and not found, problems=(*report.problems, *found))


def _pair(plan: EnginePlan, which: int) -> Iterator[tuple[BatchPlan, BatchPlan]]:
    """The largest plan behind that with the next smaller number of one dimension."""
    numbers = [each.sizes.numbers for each in plan.plans]
    most = tuple(max(column) for column in zip(*numbers, strict=True))
    along = {
        own[which]: each
        for own, each in zip(numbers, plan.plans, strict=True)
        if all(number == most[i] for i, number in enumerate(own) if i != which)
    }
    ordered = [along[number] for number in sorted(along)]
    if len(ordered) > 1:
        yield ordered[-2], ordered[-1]


def _leaves_nothing(dim: PaddedDim, inputs: Mapping[str, Array]) -> bool:
    """True where whole numbers or booleans, which may be a mask, are zero all along the dimension."""
    axes = dict(dim.axes)
    return any(
        not np.any(array, axis=axis).all()
        for name, array in inputs.items()
        if array.dtype.kind in "iub"
        for axis in axes.get(name, ())
    )
