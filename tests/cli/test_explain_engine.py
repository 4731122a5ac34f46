"""What `explain` says of an engine: from predictions, from a lock alone, and from a lock with its records."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from planner_checks import graph
from planner_fakes import LAST, ROW, Fake, recipe

from bolt_build.errors import BoltError, ExitCode
from bolt_build.families.base import Candidate, Expense, KernelProblem, Refusal
from bolt_build.families.reason import Reason
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.lockfile.contents import LockedEngine, LockedTarget, LockEntry
from bolt_build.lockfile.fingerprint import Device, Fingerprint, TuningTools
from bolt_build.planner.engine_plan import Decision
from bolt_build.planner.plan_engine import plan_engine, search_spaces
from bolt_build.planner.selection import PREDICTED
from bolt_build.report.explained.explain import as_json, of_layer, of_sizes, render, render_layer
from bolt_build.report.explained.explainer import explain
from bolt_build.report.explained.explanation import Explanation
from bolt_build.report.explained.whole_engine import engine_lines
from bolt_build.schema.recipe import TargetSpec
from bolt_build.targets import Target, target_named
from bolt_build.tuning.records.kernel_record import Record, Statistics, Status
from bolt_build.tuning.trials.tuning_set import tuning_set
from bolt_build.workflows.evidence import Evidence

Golden = Callable[[str, str], None]
H200 = target_named("h200")
SPEC = TargetSpec("h200", "fp16")
TILES = (64, 128, 256, 32)
HERE = Fingerprint(Device("NVIDIA H200", 132, 1 << 37, 700, "580.1"), TuningTools("13.0", "4.2", "-O3", "headers"))


def tile(size: int) -> Candidate:
    return Candidate("fake", (("tile", size),))


@dataclass(frozen=True)
class Tiled(Fake):
    """Convolutions in four tiles, the first predicted fastest, on inputs that it pads to 4 channels; the rest as `Fake`
    does it. Tiles beyond 256 are refused."""

    def candidates(self, problem: KernelProblem, target: Target) -> tuple[tuple[Candidate, ...], tuple[Refusal, ...]]:
        if not isinstance(problem.op, Conv):
            return (Candidate(self.name),), ()
        refused = tuple(Refusal(self.name, f"tile {n}", Reason("{} rows for a product of 8", n)) for n in (512, 1024))
        return tuple(map(tile, TILES)), (*refused, Refusal(self.name, "tile 4", "too thin"))

    def predict(self, problem: KernelProblem, candidate: Candidate, target: Target) -> float:
        if not isinstance(problem.op, Conv):
            return 2e-6
        return (4 + TILES.index(int(dict(candidate.parameters)["tile"]))) * 1e-6

    def expense(self, problem: KernelProblem, candidate: Candidate | None = None) -> Expense:
        if not isinstance(problem.op, Conv):
            return Expense(problem.nbytes, problem.flops)
        return Expense(problem.nbytes + 4_300_000, problem.flops * 4 // 3, "3 channels as 4")


FAMILIES = (Tiled(layouts=lambda node: (LAST,) if isinstance(node.op, Conv) else (ROW,)),)


def evidence(lock: LockedTarget | None = None) -> Evidence:
    """An engine of one batch: a conversion, a convolution with its ReLU, another conversion, a view and a product."""
    net = graph("""
        graph net batch=2 (%x: f32[2,3,80,80]) -> (%y) {
          const %w: f32[64,3,3,3] #
          const %b: f32[64] #
          const %fc: f32[102400,5] #
          %c = conv(%x, %w, %b) strides=[2,2] pads_begin=[1,1] pads_end=[1,1] // "/conv"
          %r = relu(%c) // "/relu"
          %f = reshape(%r) shape=[2,102400] // "/flat"
          %y = matmul(%f, %fc) // "/fc"
        }""")
    made = (net,), recipe(), SPEC, H200, FAMILIES
    problems = tuning_set(search_spaces(*made), FAMILIES, H200, 3)
    selection = PREDICTED if lock is None else lock.selection("net.lock.yaml")
    return Evidence(plan_engine(*made, selection), H200, FAMILIES, problems, selection.source, lock)


def convolution(known: Evidence) -> KernelProblem:
    return next(step.problem for step in known.engine.plan.plans[0].steps if isinstance(step.problem.op, Conv))


def locked(known: Evidence) -> Evidence:
    """The same where a lock says that 128 is faster than 64, so that the plan takes it."""
    problem = convolution(known)
    entry = LockEntry(problem.digest, "conv", tile(128), 3.2, tile(64), 4.0, 5.0, 3, "here")
    lock = LockedTarget("h200", (("here", HERE),), (entry,), ())
    return evidence(lock)


def record(problem: KernelProblem, candidate: Candidate, median: float | None, message: str = "") -> Record:
    status = Status.WRONG if median is None else Status.OK
    times = None if median is None else Statistics(median, median, median, 0.0, 20, 100)
    return Record(problem.digest, candidate, status, message, times)


def measured(known: Evidence, *others: tuple[Fingerprint, Record]) -> Evidence:
    problem = convolution(known)
    found = (record(problem, tile(64), 4.0), record(problem, tile(128), 3.2), record(problem, tile(256), None, "off"))
    return replace(known, records=(*others, *((HERE, each) for each in found)))


def the_convolution(explanation: Explanation) -> str:
    return render_layer(of_layer([explanation], "/conv")[0])


@pytest.mark.parametrize("width", [100, 120, 160])
def test_it_fits_a_terminal(width: int) -> None:
    """Every line, tables and prose, of all steps and of one."""
    explained = explain(evidence())
    lines = render(explained, width=width).splitlines()
    (layer,) = of_layer([explained], "/relu")
    lines += render_layer(layer, width=width).splitlines()
    assert [line for line in lines if len(line) > width] == []
    assert any(line.startswith("step  layer") and "share" in line for line in lines) or width == 100


def test_every_step_stands_in_a_table_with_totals_and_decisions(golden: Golden) -> None:
    golden("explain/predicted.txt", render(explain(evidence())))
    golden("explain/measured.txt", render(explain(measured(locked(evidence())))))


def test_lengths_that_are_padded_stand_apart_from_what_was_fused() -> None:
    known = explain(evidence())
    padded = Decision("lengths", "sequence", "does not pad", "'mean' is a sum over it")
    lines = render(replace(known, fusion=(*known.fusion, padded))).splitlines()
    assert "fusion: fuse-epilogues: fused 1" in lines
    assert "lengths: sequence: does not pad ('mean' is a sum over it)" in lines


def test_a_layer_of_a_predicted_engine(golden: Golden) -> None:
    golden("explain/layer_predicted.txt", the_convolution(explain(evidence())))


def test_a_layer_whose_kernel_a_lock_names_without_its_records(golden: Golden) -> None:
    golden("explain/layer_locked.txt", the_convolution(explain(locked(evidence()))))


def test_a_layer_with_the_records_of_every_candidate(golden: Golden) -> None:
    golden("explain/layer_measured.txt", the_convolution(explain(measured(locked(evidence())))))


def test_records_of_another_device_than_the_locks_say_nothing() -> None:
    known = locked(evidence())
    other = replace(HERE, device=replace(HERE.device, name="NVIDIA H100"))
    elsewhere = replace(known, records=((other, record(convolution(known), tile(256), 1.0)),))
    assert explain(elsewhere) == explain(known)


def test_what_was_measured_beyond_the_limit_is_not_called_untried() -> None:
    known = measured(locked(evidence()))
    more = replace(known, records=(*known.records, (HERE, record(convolution(known), tile(32), 6.4))))
    before, after = (explain(each).batches[0].layers[1] for each in (known, more))
    assert [each.kernel for each in before.untried] == ["tile 512", "tile 1024", "tile 4", "fake tile=32"]
    assert [each.kernel for each in after.untried] == ["tile 512", "tile 1024", "tile 4"]
    assert [(each.kernel, each.measured) for each in after.attempts] == [
        ("fake tile=64", 4.0), ("fake tile=32", 6.4), ("fake tile=256", None),
    ]  # fmt: skip


@pytest.mark.parametrize(("left", "said"), [(1, "1 candidate not tried:"), (2, "2 candidates not tried:")])
def test_what_is_not_tried_is_counted_in_words(left: int, said: str) -> None:
    """`left` are those of the only layer that leaves some out."""
    (batch, *_) = (known := explain(evidence())).batches
    layers = tuple(replace(layer, untried=layer.untried[:left]) for layer in batch.layers)
    lines = render(replace(known, batches=(replace(batch, layers=layers),))).splitlines()
    assert said in lines


def test_without_a_lock_the_device_with_the_most_records_counts() -> None:
    known = evidence()
    other = replace(HERE, device=replace(HERE.device, driver="575.0"))
    found = explain(measured(known, (other, record(convolution(known), tile(64), 9.0))))
    (layer,) = (layer for layer in found.batches[0].layers if layer.name == "/relu")
    assert (layer.source, layer.predicted, layer.measured) == ("prediction", 4.0, 4.0)
    assert layer.runner_up is not None
    assert (layer.runner_up.kernel, layer.runner_up.margin) == ("fake tile=128", pytest.approx(-0.2))


def test_bounds_are_the_problems_own_bytes_and_operations_at_the_targets_rates() -> None:
    known = evidence()
    problem = convolution(known)
    (layer,) = (layer for layer in explain(known).batches[0].layers if layer.name == "/relu")
    assert layer.roofline is not None
    assert problem.nbytes == 2 * (2 * 3 * 6400 + 64 * 27 + 64 + 2 * 64 * 1600)
    assert problem.flops == 2 * 64 * 1600 * (2 * 27 + 1)
    assert (layer.roofline.memory, layer.roofline.arithmetic) == (
        pytest.approx(problem.nbytes / H200.bandwidth * 1e6), pytest.approx(problem.flops / H200.rate("fp16") * 1e6)
    )  # fmt: skip
    assert layer.roofline.bound == max(layer.roofline.memory, layer.roofline.arithmetic)
    assert layer.roofline.share == pytest.approx(layer.roofline.bound / layer.time)


def test_totals_add_up() -> None:
    (batch,) = explain(measured(locked(evidence()))).batches
    run = [layer for layer in batch.layers if layer.kernel != "view"]
    assert (len(batch.layers), len(run), batch.totals.measured, batch.totals.predicted) == (6, 5, 1, 4)
    assert batch.totals.time == pytest.approx(3.2 + 4 * 2.0)
    assert (batch.totals.conversions, batch.totals.conversion_time) == (3, pytest.approx(6.0))
    assert [layer.step for layer in batch.layers if layer.after_conversions] == [1, 3]
    assert batch.totals.padded == 1
    assert batch.totals.padding_time == pytest.approx(4_300_000 / 4.3e12 * 1e6)


KEYS = {
    "explanation": {"is", "version", "name", "target", "precision", "source", "batches", "fusion", "refusals"},
    "batch": {"is", "batch", "layers", "totals", "changes", "chains", "engine", "slow"},
    "change": {"is", "step", "layer", "tensor", "source", "to", "nbytes", "edge", "how", "kernel"},
    "totals": {
        "is", "time", "measured", "predicted", "bound", "conversions", "conversion_time", "padded", "padding_time",
    },
    "layer": {
        "is", "step", "name", "nodes", "words", "problem", "digest", "kernel", "headers", "source", "predicted",
        "measured", "runner_up", "attempts", "failed", "timed", "untimed", "locked", "untried", "refused", "roofline",
        "padding", "reads", "writes", "is_conversion", "after_conversions", "decisions",
    },
    "untried": {"is", "family", "kernel", "reason"},
    "attempt": {"is", "kernel", "predicted", "measured", "status", "message"},
    "runner_up": {"is", "kernel", "time", "measured", "margin"},
    "roofline": {"is", "nbytes", "flops", "memory", "arithmetic", "bound", "by", "share", "bandwidth", "rate"},
    "padding": {"is", "nbytes", "flops", "time", "why", "without"},
}  # fmt: skip


def test_the_json_has_these_keys() -> None:
    """Programs read them: a change of their meaning is a new version."""
    data = as_json(explain(measured(locked(evidence()))), attempts=True)
    assert json.loads(json.dumps(data)) == data
    (batch,) = data["batches"]
    layer = batch["layers"][1]
    found = {
        "explanation": data, "batch": batch, "change": batch["changes"][0], "totals": batch["totals"], "layer": layer,
        "attempt": layer["attempts"][0], "untried": layer["untried"][0], "runner_up": layer["runner_up"],
        "roofline": layer["roofline"], "padding": layer["padding"],
    }  # fmt: skip
    assert {name: set(value) for name, value in found.items()} == KEYS
    assert data["version"] == 2


@dataclass(frozen=True)
class Choosy(Tiled):
    """Its tile of 256 reads three channels as they are."""

    def expense(self, problem: KernelProblem, candidate: Candidate | None = None) -> Expense:
        return Expense(problem.nbytes, problem.flops) if candidate == tile(256) else super().expense(problem)


def padding_line(known: Evidence) -> str:
    choosy = replace(known, families=(Choosy(layouts=FAMILIES[0].layouts),))
    (line,) = [line for line in the_convolution(explain(choosy)).splitlines() if line.strip().startswith("padding")]
    return line


def test_what_padding_gains_stands_beside_what_it_costs() -> None:
    """By prediction; and by measurement where the chosen kernel was measured."""
    without = "(3 channels as 4); without it fake tile=256 takes"
    assert padding_line(evidence()).endswith(f"{without} 6.00 us predicted (+50.0 %)")
    known = locked(evidence())
    problem = convolution(known)
    timed = tuple((HERE, record(problem, tile(size), time)) for size, time in ((64, 4.0), (128, 3.2), (256, 4.8)))
    assert padding_line(replace(known, records=timed)).endswith(f"{without} 4.80 us measured (+50.0 %)")
    assert "without it" not in padding_line(measured(known))


def test_the_list_of_candidates_is_only_in_the_json_of_a_layer() -> None:
    explanation = explain(evidence())
    short, long = (as_json(explanation, attempts=attempts) for attempts in (False, True))
    layers = [each["batches"][0]["layers"][1] for each in (short, long)]
    assert [(len(layer["attempts"]), len(layer["untried"])) for layer in layers] == [(0, 0), (2, 4)]
    assert {**layers[1], "attempts": [], "untried": []} == layers[0]


@pytest.mark.parametrize("name", ["/conv", "/relu"])
def test_a_layer_has_the_names_of_all_the_nodes_that_it_covers(name: str) -> None:
    (found,) = of_layer([explain(evidence())], name)
    assert [layer.step for batch in found.batches for layer in batch.layers] == [1]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("/rellu", "did you mean '/relu'?"),
        ("fl", "did you mean '/flat'?"),
        ("dense", "its layers: x@f16/channels_last, /relu, /conv, r@f16/row, /flat, /fc, y@f32/row"),
    ],
)
def test_an_unknown_layer_is_a_diagnostic_with_near_names(name: str, hint: str) -> None:
    with pytest.raises(BoltError) as caught:
        of_layer([explain(evidence())], name)
    (diagnostic,) = caught.value.diagnostics
    assert caught.value.exit_code is ExitCode.USAGE
    assert (diagnostic.code, diagnostic.message) == ("unknown-layer", f"tiny has no layer '{name}'")
    assert diagnostic.hint == hint


def test_an_unknown_layer_of_a_large_engine_is_answered_with_some_of_its_layers() -> None:
    explanation = explain(evidence())
    (batch, *_) = explanation.batches
    layers = tuple(replace(batch.layers[0], name=f"/n{i}", nodes=()) for i in range(11))
    with pytest.raises(BoltError) as caught:
        of_layer([replace(explanation, batches=(replace(batch, layers=layers),))], "dense")
    shown = ", ".join(f"/n{i}" for i in range(8))
    assert caught.value.diagnostics[0].hint == f"its layers: {shown} and 3 more, which 'bolt-build plan' lists"


def test_one_batch_alone() -> None:
    explanation = explain(evidence())
    assert of_sizes(explanation, 2, ()) == explanation
    assert of_sizes(explanation, 3, ()).batches == ()


def test_a_kernel_of_the_whole_engines_choice_says_what_it_replaces() -> None:
    known = locked(evidence())
    assert known.lock is not None
    problem = convolution(known).digest
    (cover,) = known.engine.covers
    whole = LockedEngine(2, cover.graph, "e" * 64, 50.0, 45.0, 0.1, 7, ((problem, tile(256), 3.4),), "here", 2)
    lock = replace(known.lock, covers=(cover,), engines=(whole,))
    explanation = explain(evidence(lock))
    assert [layer.kernel for layer in explanation.batches[0].layers if layer.digest == problem] == ["fake tile=256"]
    lines = render(explanation).splitlines()
    at = lines.index(
        "whole engine of batch 2: 50.0 us with the kernels that are fastest alone, 45.0 us (-10.00%) with 1 of them "
        "replaced (7 swaps tried, 2 other plans)"
    )
    assert lines[at + 1] == "  /relu: fake tile=256 (3.40 us alone) for fake tile=128 (3.20 us alone)"
    layer = the_convolution(explanation)
    assert "  time        3.40 us measured; 6.00 us predicted, 1.76 of it" in layer
    assert "  runner-up   fake tile=128, 3.20 us measured (-5.9 %)" in layer
    # Where the plan took other kernels, nothing is said of those.
    declined = explain(evidence(replace(lock, covers=())))
    assert declined.batches[0].engine is None
    only_plan = replace(whole, swaps=(), in_place_of="f" * 64)
    for covers in ((), (replace(cover, graph="0" * 64),)):
        elsewhere = explain(evidence(replace(lock, covers=covers, engines=(only_plan,))))
        assert elsewhere.batches[0].engine is None
    none = explain(evidence(replace(lock, engines=(replace(whole, swaps=(), gain=0.0),))))
    assert none.batches[0].engine is not None
    assert engine_lines(none.batches[0].engine) == [
        (
            "whole engine of batch 2: 50.0 us with the kernels that are fastest alone, none faster (7 swaps tried, 2 "
            "other plans)"
        )
    ]
    planned = explain(evidence(replace(lock, engines=(only_plan,))))
    assert planned.batches[0].engine is not None
    assert engine_lines(planned.batches[0].engine) == [
        (
            "whole engine of batch 2: 50.0 us with the kernels that are fastest alone, 45.0 us (-10.00%) with another "
            "plan (7 swaps tried, 2 other plans)"
        )
    ]
