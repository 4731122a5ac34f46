"""What verification says where a plan does not make of shorter inputs what the model makes of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tiny_engine import tiny_constants, tiny_plan, tiny_reference

from bolt_build.graph.ir import Array
from bolt_build.planner.engine_plan import PaddedDim
from bolt_build.schema.recipe import VerifySpec
from bolt_build.verify.padded import with_padding
from bolt_build.verify.report import REPORT_VERSION, SEEDED, BatchReport, OutputReport, VerifyReport
from bolt_build.verify.samples import Samples
from bolt_build.verify.tolerance import BY_ROUNDING

BATCH = PaddedDim("batch", (("x", (0,)), ("y", (0,))))
AGREES = VerifyReport(REPORT_VERSION, "tiny", "host", "fp32", "it", 0, SEEDED, None, True, (), ())


@dataclass
class Model:
    """Pads, and does `change` to what comes out."""

    change: Callable[[Array], Array]
    asked: list[tuple[int, bool]]

    @contextmanager
    def context(self, batch: int, *, dims: Mapping[str, int], padded: bool) -> Iterator[Model]:
        self.asked.append((batch, padded))
        yield self

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return {"y": self.change(outputs(inputs)["y"])}


class Reference:
    def outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return outputs(feeds)


def outputs(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": tiny_reference(inputs["x"], tiny_constants())}


def verified(change: Callable[[Array], Array], *padded: PaddedDim) -> tuple[VerifyReport, list[tuple[int, bool]]]:
    model = Model(change, [])
    samples = Samples(VerifySpec("onnxruntime", 1, 0))
    plan = replace(tiny_plan(), padded=padded)
    return with_padding(model, Reference(), plan, samples, BY_ROUNDING, AGREES), model.asked


def test_the_largest_plan_runs_a_sample_of_the_next_smaller() -> None:
    assert verified(lambda y: y, BATCH) == (AGREES, [(4, True)])


@pytest.mark.parametrize("padded", [(), (replace(BATCH, refused="it mixes images"),)])
def test_what_is_not_padded_is_not_asked(padded: tuple[PaddedDim, ...]) -> None:
    assert verified(lambda y: y, *padded) == (AGREES, [])


def test_padding_that_reaches_an_output_fails() -> None:
    report, _ = verified(lambda y: y + np.float32(0.5), BATCH)
    (problem,) = report.problems
    assert not report.ok
    assert (problem.code, problem.severity) == ("padding-departs", "error")
    assert problem.message.startswith("padded to batch 4: batch 1, output 'y': ")


def test_whole_numbers_that_rounding_decides_may_be_others_where_they_are_padded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where they are not padded: the same part of them."""
    places = {"y": np.arange(64).reshape(1, 64)}
    monkeypatch.setattr(sys.modules[__name__], "outputs", lambda inputs: places)
    tiny = replace(tiny_plan(), padded=(BATCH,))
    said = OutputReport("y", 0, 0, 0, 0, 0, 0, None, None, 0, None, 0, 0, True, True, changed=0.05)
    report = replace(AGREES, batches=(BatchReport(1, 1, (said,), 0, (), True, True),))
    samples = Samples(VerifySpec("onnxruntime", 1, 0))

    def judged(count: int, report: VerifyReport) -> VerifyReport:
        model = Model(lambda y: np.where(np.arange(64) < count, y + 1, y), [])
        return with_padding(model, Reference(), tiny, samples, BY_ROUNDING, report)

    assert judged(2, report).ok
    assert not judged(2, AGREES).ok
    assert not judged(32, report).ok
