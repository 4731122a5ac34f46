"""Gathers what kernels were measured to take on the H200, so that predictions can be held against it: from records of
tunings, and from results of other benchmarks, which call their problems by names of their own.

    # records as `bolt-build tune --records-out` gives them, and the locks of the same tunings
    python benchmarks/planning/kernel_times.py --records FILE... --locks FILE...
    python benchmarks/planning/kernel_times.py  # keeps the records that it has, and reads results again
    # but those of operators that were measured wrongly, and of algorithms whose kernels are others now
    python benchmarks/planning/kernel_times.py --forget resample algorithm=permuted

No GPU is needed. Locks are not gathered: `predictions.py` reads them as they are. Writes `results/kernel_times.json`:
of each
problem its line, and us by candidate. Kernels that gave wrong results, or none, are left out.

Chains around depthwise convolutions have other inner loops since `chain_kernels.json`, and take about two thirds of
the time: of those kinds, times are those of `slab_kernels.json` and since (earlier records were dropped with `--forget
kind=chain kind=expanded kind=inverted`). Those of `prologue_forms.json` and `sliced_products.json` are left out: the
same kernels, but those of clusters, took less in tunings, so that forms can be compared with each other there, and not
with others.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record
from benchmarks.kernels import chain_kernels, mean_kernels, narrow_convolutions, slab_kernels, sliding_windows
from benchmarks.peers import attention_peers
from benchmarks.planning.problem_texts import candidate_of, pair_of, problem_of, text_of
from bolt_build.families import load
from bolt_build.families.base import Candidate, KernelProblem
from bolt_build.families.portable.family import RuleFamily
from bolt_build.lockfile.reading import load_lock
from bolt_build.planner.problem_text import describe_problem
from bolt_build.targets import target_named
from bolt_build.tuning.records.export import exported_records
from bolt_build.tuning.records.kernel_record import Status

TARGET = target_named("h200")
FAMILIES = {family.name: family for family in load(TARGET)}
RECIPES = ROOT / "recipes"
CHAINS = ("chain", "expanded", "inverted", "strips")
"""Kinds of the family grouped whose kernels are others since `chain_kernels.json`."""


@dataclass(frozen=True)
class Time:
    """What a candidate took for a problem, in us, and the result that says so."""

    source: str
    problem: str
    what: str
    candidate: Candidate
    us: float


def stated(problem: KernelProblem, text: str) -> Candidate | None:
    """The candidate that a text shows: settings follow parameters, and no word says where they begin. None where
    today's families have no such kernel for the problem."""
    name, *words = text.split()
    pairs = tuple(map(pair_of, words))
    for count in range(len(pairs), -1, -1):
        candidate = Candidate(name, pairs[:count], pairs[count:])
        if FAMILIES[name].refuse(problem, candidate, TARGET) is None:
            return candidate
    return None


def with_cut(problem: KernelProblem, candidate: Candidate) -> Candidate:
    """A plain kernel as it is offered today: candidates of earlier locks do not state how it is cut."""
    family = FAMILIES[candidate.family]
    if candidate.parameters != (("algorithm", "direct"),) or not isinstance(family, RuleFamily):
        return candidate
    return family.plain(problem, TARGET)


def _result(name: str) -> Any:
    return json.loads((record.RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _time(source: str, problem: KernelProblem, text: str, us: float | None) -> Iterator[Time]:
    candidate = None if us is None else stated(problem, text)
    if us is not None and candidate is not None:
        yield Time(source, problem.digest, describe_problem(problem), candidate, us)


def of_chains() -> Iterator[Time]:
    """Depthwise convolutions with the normalisation behind them, and the kernels apart that chains stand for. Chains
    themselves were timed with inner loops that there are no more: `of_slabs` has them."""
    known = {(each.trial.layer.label, each.way): each.trial.step.problem for each in chain_kernels.planned(1, 1)}
    for source in ("chain_kernels", "normed_kernels"):
        for each in _result(source)["kernels"]:
            if (problem := known.get((each["layer"], each["way"]))) is not None and not is_chain(
                candidate_of(each["candidate"])
            ):
                yield from _time(source, problem, each["candidate"], each["us"])


def is_chain(candidate: Candidate) -> bool:
    """Whether it is a kernel of products around a depthwise convolution."""
    return candidate.family == "grouped" and dict(candidate.parameters).get("kind") in CHAINS


def of_slabs() -> Iterator[Time]:
    """Chains around depthwise convolutions, and what is in front of squeeze and excitation."""
    known = {layer: trial.step.problem for layer, _, trial in slab_kernels.planned(1)}
    for layer, found in _result("slab_kernels")["layers"].items():
        for each in (each for way in slab_kernels.WAYS for each in found.get(way, ())):
            yield from _time("slab_kernels", known[layer], each["candidate"], each["us"])


def of_narrow_convolutions() -> Iterator[Time]:
    """Few output channels, and large depthwise windows."""
    found = _result("narrow_convolutions")["shapes"]
    for shape in narrow_convolutions.SHAPES:
        problem = narrow_convolutions.problem_of(shape)
        for each in (*found[shape.name][shape.kind], *found[shape.name]["others"]):
            yield from _time("narrow_convolutions", problem, each["candidate"], each["us"])


def of_sliding_windows() -> Iterator[Time]:
    """Depthwise windows that slide down an image, and other kernels for them; none that another card took."""
    result = _result("sliding_windows")
    if "H200" not in result.get("gpu", ""):
        return
    found = result["shapes"]
    for shape in sliding_windows.SHAPES:
        problem = sliding_windows.problem_of(shape)
        for each in (*found[shape.name]["sliding"], *found[shape.name]["others"]) if shape.name in found else ():
            yield from _time("sliding_windows", problem, each["candidate"], each["us"])


def of_means() -> Iterator[Time]:
    """Depthwise convolutions that leave means, in each of the ways in which sums of tiles are added up."""
    layers = _result("mean_kernels")["layers"]
    for shape in mean_kernels.SHAPES:
        _, step = shape.step()
        for each in (each for way in mean_kernels.WAYS for each in layers[shape.name][way]):
            yield from _time("mean_kernels", step.problem, each["candidate"], each["us"])


def of_other_steps() -> Iterator[Time]:
    """Steps of networks that no recipe names, those of the family cutlass: other families have other kernels since.
    What is equal in several networks was timed as often; the least time counts."""
    for network in _result("other_steps")["networks"].values():
        for step in network["steps"]:
            candidate = candidate_of(step["kernel"])
            if candidate.family == "cutlass" and "H200" in network["gpu"]:
                yield Time("other_steps", step["problem"], step["what"], candidate, step["us"])


def of_attention() -> Iterator[Time]:
    for shape in _result("attention_peers")["shapes"]:
        problem = attention_peers.packed(*shape["shape"])
        for each in shape["kernels"]:
            yield from _time("attention_peers", problem, each["candidate"], each["us"])


def of_uncertain() -> Iterator[Time]:
    """Kernels of drawn problems whose predictions are least certain, where an H200 has run them and lines can be read
    back: those of gated products have none."""
    if not (record.RESULTS / "uncertain_kernels.json").exists():
        return
    result = _result("uncertain_kernels")
    for shape in result["shapes"].values() if "H200" in result.get("gpu", "") else ():
        problem = problem_of(shape["what"], shape["problem"])
        for each in () if problem is None else shape["kernels"]:
            yield from _time("uncertain_kernels", problem, each["candidate"], each["us"])


def of_records(files: Iterable[Path], locks: Iterable[Path]) -> Iterator[Time]:
    """Records of problems that a lock says what they are, in a line that can be read back: sums of rows have none."""
    lines = {
        entry.problem: entry.what
        for path in (*sorted(RECIPES.glob("*.lock")), *locks)
        for target in load_lock(path).targets
        for entry in target.entries
        if problem_of(entry.what, entry.problem) is not None
    }
    for file in files:
        found, _ = exported_records(json.loads(file.read_text(encoding="utf-8")), str(file))
        for _, each in found:
            if each.status is Status.OK and each.statistics is not None and each.problem in lines:
                yield Time("records", each.problem, lines[each.problem], each.candidate, each.statistics.median)


SOURCES = (
    of_chains, of_slabs, of_narrow_convolutions, of_sliding_windows, of_means, of_other_steps, of_attention,
    of_uncertain,
)  # fmt: skip
"""Results of other benchmarks."""


def as_json(times: Iterable[Time]) -> dict[str, Any]:
    """By source and problem; of a candidate that was measured twice, the lesser time."""
    sources: dict[str, dict[str, dict[str, Any]]] = {}
    for each in sorted(times, key=lambda each: (each.source, each.problem, text_of(each.candidate), each.us)):
        row = sources.setdefault(each.source, {}).setdefault(each.problem, {"what": each.what, "us": {}})
        row["us"].setdefault(text_of(each.candidate), round(each.us, 3))
    return sources


def times_of(data: dict[str, Any]) -> Iterator[Time]:
    """What `as_json` made JSON of."""
    for source, problems in data.items():
        for problem, row in problems.items():
            for text, us in row["us"].items():
                yield Time(source, problem, row["what"], candidate_of(text), us)


def _words(time: Time) -> tuple[str, ...]:
    """What `--forget` may call it."""
    return (time.what.partition("(")[0], *(f"{name}={value}" for name, value in time.candidate.parameters))


def _is_one(each: Time) -> bool:
    """Whether the problem can be read back, and the kernel is one that families have today."""
    problem = problem_of(each.what, each.problem)
    return problem is not None and FAMILIES[each.candidate.family].refuse(problem, each.candidate, TARGET) is None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", nargs="+", type=Path, default=[])
    parser.add_argument(
        "--locks", nargs="+", type=Path, default=[], help="those of records that no recipe's lock knows"
    )
    parser.add_argument("--forget", nargs="+", default=[], metavar="WORD", help="drops kept records of these")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    forgotten = frozenset(arguments.forget)
    earlier = record.RESULTS / "kernel_times.json"
    kept = list(times_of(_result("kernel_times")["sources"])) if earlier.exists() else []
    found = [
        *(each for each in kept if each.source == "records" and forgotten.isdisjoint(_words(each)) and _is_one(each)),
        *of_records(arguments.records, arguments.locks),
    ]
    for source in SOURCES:
        found += source()
    facts = record.environment("nvidia-cutlass")
    facts["command"] = "python benchmarks/planning/kernel_times.py"
    counts = {source: sum(each.source == source for each in found) for source in dict.fromkeys(e.source for e in found)}
    print(counts)
    result = {**facts, "gpu": "NVIDIA H200", "sources": as_json(found)}
    print(record.write("kernel_times", result, arguments.out))


if __name__ == "__main__":
    main()
