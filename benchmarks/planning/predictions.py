"""How far predicted times are from measured ones, by kind of kernel.

    python benchmarks/planning/predictions.py               # writes results/predictions.json; no GPU is needed
    python benchmarks/planning/predictions.py --kind chain  # every kernel of one kind, shown and not written

Every time that locks of the bundled recipes have, and all of `results/kernel_times.json`, is held against what the
package predicts now. Of a problem of which several kernels were measured, regret is what the one that is predicted to
be fastest takes, over the fastest. A third of the problems, chosen by digest, is held out: constants are fitted to the
others alone (`fit_predictions.py`), and both are shown.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.planning.kernel_times import FAMILIES, RECIPES, TARGET, Time, is_chain, times_of, with_cut
from benchmarks.planning.problem_texts import problem_of
from bolt_build.families.base import Candidate, KernelProblem
from bolt_build.graph.ops.products.chain import Averaged
from bolt_build.lockfile.reading import load_lock

_MARKS = {
    "prologue": "prologue", "prenorm": "rows normalised first", "norm": "normalised rows", "rolling": "rolling sums",
    "filters": "bands of groups", "bands": "bands", "deep_cluster": "split-K in clusters",
    "partial": "split-K", "n1": "two products", "warp_m": "warps", "warpgroups": "WGMMA",
}  # fmt: skip
"""Parameters that a kind of CUTLASS's kernels alone has: the first of these."""
_PORTABLE = ("614967c3", "bd9c42c9")
"""How digests of kernels begin under which locks were measured since copies, reductions, means and normalisations of
rows were rewritten: what other locks have of the family `portable` are times of kernels that there are no more."""

_REWRITTEN = (
    "portable chain", "portable binary", "portable convert", "portable reduce", "portable transpose",
    "portable concat", "cutlass images as they lie",
)  # fmt: skip
"""Kinds whose kernels are others than those that locks and `results/kernel_times.json` have times of."""

BAND, REGRET = (0.7, 1.4), 1.1
"""What a kind's ratio is within in geometric mean, and its regret below, where the next does not name it."""
OUTSIDE = {
    "attention warp": "of eleven problems those of few keys have kernels within a tenth of each other first",
    "grouped banded": "of eight problems two have blocks of all rows predicted first, where half of them take less",
    "grouped rows": "of small images, where another cut of the same kernel takes a fifth less",
    "grouped rows + means": "of six problems with several kernels four have them in a wrong order",
    "portable compare": "times of tiles were of other kernels; the plain ones that are left take up to twice as long",
    "portable slice": "times of tiles were of other kernels; rows in words are predicted before plain ones",
}
"""Kinds that are outside of it, and why."""
_LEAST = 5
"""Points of a kind that say anything about it."""


@dataclass(frozen=True)
class Point:
    """A kernel that was measured: seconds that it took, and those that are predicted now."""

    problem: KernelProblem
    what: str
    candidate: Candidate
    source: str
    measured: float
    predicted: float

    @property
    def kind(self) -> str:
        return kind_of(self.problem, self.candidate)

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.measured

    @property
    def held_out(self) -> bool:
        return held_out(self.problem)


def held_out(problem: KernelProblem) -> bool:
    """True of a third of all problems, by digest: constants are not fitted to them."""
    return int(problem.digest[:8], 16) % 3 == 0


def kind_of(problem: KernelProblem, candidate: Candidate) -> str:
    """`cutlass WGMMA`, `grouped chain`, `portable reduce`."""
    stated = dict(candidate.parameters)
    name = problem.op.kind
    if candidate.family in ("grouped", "attention"):
        name = str(stated["kind"])
        name = f"{name} + means" if isinstance(problem.op, Averaged) else name
    if candidate.family == "cutlass":
        if "stem" in stated:
            name = "images as they lie"
        elif "resident" in stated or "rows" in stated:
            pools = [member.op.kind for member in problem.op.sequence[1:]]
            name = "resident weights" if not pools else f"resident weights + {pools[0]}"
        else:
            name = next(name for mark, name in _MARKS.items() if mark in stated)
        name = f"{name} + means" if "sums" in stated else name
    return f"{candidate.family} {name}"


def measured() -> Iterator[Time]:
    """All that is committed, but for chains around depthwise convolutions in locks: their kernels are others since."""
    for path in sorted(RECIPES.glob("*.lock")):
        target = load_lock(path).target(TARGET.name)
        for entry in () if target is None else target.entries:
            made = target.fingerprint(entry).tools.kernels
            if entry.winner.family == "portable" and not made.startswith(_PORTABLE):
                continue
            if not is_chain(entry.winner):
                yield Time(path.name, entry.problem, entry.what, entry.winner, entry.median)
            if entry.runner_up is not None and entry.runner_up_median is not None and not is_chain(entry.runner_up):
                yield Time(path.name, entry.problem, entry.what, entry.runner_up, entry.runner_up_median)
    data = json.loads((record.RESULTS / "kernel_times.json").read_text(encoding="utf-8"))
    yield from times_of(data["sources"])


def points(times: Iterable[Time]) -> tuple[list[Point], int]:
    """Each kernel of a problem once, with the least of its times: what disturbs a measurement makes it longer. And how
    many are none that families have today."""
    found, lost = dict[tuple[str, Candidate], Point](), 0
    for each in sorted(times, key=lambda each: each.us):
        key = (each.problem, each.candidate)
        if key in found:
            continue
        problem, family = problem_of(each.what, each.problem), FAMILIES[each.candidate.family]
        if problem is None or family.refuse(problem, each.candidate, TARGET) is not None:
            lost += 1
            continue
        predicted = family.predict(problem, each.candidate, TARGET)
        if predicted > 0:
            candidate = with_cut(problem, each.candidate)
            point = Point(problem, each.what, candidate, each.source, each.us * 1e-6, predicted)
            if point.kind not in _REWRITTEN:
                found[key] = point
    return list(found.values()), lost


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def regrets(found: Sequence[Point]) -> list[float]:
    """Of each problem with several kernels, what the one predicted to be fastest takes over the fastest one."""
    problems: dict[str, list[Point]] = {}
    for each in found:
        problems.setdefault(each.problem.digest, []).append(each)
    return [
        min(several, key=lambda each: each.predicted).measured / min(each.measured for each in several)
        for several in problems.values()
        if len(several) > 1
    ]


def summary(found: Sequence[Point]) -> dict[str, Any]:
    """Ratio: geometric mean and the tenth and ninetieth percentile. Rank: how often the first is the fastest, and mean
    and greatest regret."""
    ratios, lost = [each.ratio for each in found], regrets(found)
    row: dict[str, Any] = {
        "points": len(found), "problems": len({each.problem.digest for each in found}),
        "ratio": geometric_mean(ratios), "low": quantile(ratios, 0.1), "high": quantile(ratios, 0.9),
    }  # fmt: skip
    if lost:
        row |= {
            "ranked": len(lost), "first_is_best": sum(regret == 1.0 for regret in lost) / len(lost),
            "regret": geometric_mean(lost), "regret_most": max(lost),
        }  # fmt: skip
    return row


def by_kind(found: Sequence[Point]) -> dict[str, dict[str, Any]]:
    """A summary of each kind, those of most points first; and of all, whose regret is over kinds as well."""
    kinds: dict[str, list[Point]] = {"all": list(found)}
    for each in found:
        kinds.setdefault(each.kind, []).append(each)
    rows = {}
    for kind, of_kind in sorted(kinds.items(), key=lambda item: -len(item[1])):
        rows[kind] = summary(of_kind)
        apart = [each for each in of_kind if each.held_out]
        if apart:
            rows[kind]["held_out"] = summary(apart)
    return rows


def outside(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Kinds of enough points whose predictions are further from measured times than kinds should be, and how far."""
    found = {}
    for kind, row in rows.items():
        low, high = BAND
        if row["points"] >= _LEAST and not (low <= row["ratio"] <= high and row.get("regret", 1.0) <= REGRET):
            found[kind] = f"ratio {row['ratio']:.2f}, regret {row.get('regret', 1.0):.2f}"
    return found


def shown(rows: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'':36} points problems ratio   10%   90%  first regret  most | held out: ratio regret"]
    for kind, row in rows.items():
        line = (
            f"{kind:36} {row['points']:6} {row['problems']:8} {row['ratio']:5.2f} {row['low']:5.2f} {row['high']:5.2f}"
        )
        if "regret" in row:
            line += f" {row['first_is_best']:6.0%} {row['regret']:6.3f} {row['regret_most']:5.2f}"
        else:
            line += " " * 20
        if "held_out" in row:
            line += f" | {row['held_out']['ratio']:5.2f} {row['held_out'].get('regret', math.nan):6.3f}"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", help="shows the kernels of kinds whose names end so")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found, lost = points(measured())
    if arguments.kind:
        for each in sorted((each for each in found if each.kind.endswith(arguments.kind)), key=lambda each: each.ratio):
            times = f"{each.ratio:6.2f} {1e6 * each.predicted:8.2f} {1e6 * each.measured:8.2f}"
            print(f"{times} {'*' if each.held_out else ' '} {each.candidate} | {each.what}")
        return
    rows = by_kind(found)
    print(shown(rows))
    print("outside:", outside(rows))
    print(f"{lost} measured kernels are none that there are today")
    facts = record.environment()
    print(
        record.write(
            "predictions",
            {
                **facts,
                "gpu": "NVIDIA H200",
                "lost": lost,
                "band": BAND,
                "most_regret": REGRET,
                "outside": {kind: OUTSIDE.get(kind, "") for kind in outside(rows)},
                "kinds": rows,
            },
            arguments.out,
        )
    )


if __name__ == "__main__":
    main()
