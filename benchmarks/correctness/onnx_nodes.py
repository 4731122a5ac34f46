"""Runs the onnx package's node cases in engines of the host, and says of each whether it is refused, right or wrong.

    python benchmarks/correctness/onnx_nodes.py [--only GLOB] [--keep] [--work FOLDER] [--out FILE]

Many cases are merged into one engine. Each is tried with all its inputs as data, with the first that may be as data and
the others as initializers, and with all of them as initializers. `docs/operators.md` is rendered from the result by
`operators_page.py`. Exits with 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record
from benchmarks.correctness import node_differences
from benchmarks.correctness.merged_engine import Array, Workshop, merged, outputs_of
from benchmarks.correctness.node_differences import RIGHT, stored
from benchmarks.correctness.onnx_cases import FORMS, GIVEN, Case, Form, Refused, imported, node_cases
from bolt_build.errors import BoltError
from bolt_build.scratch import scratch_folder

_TOGETHER = 300
"""Graphs of one engine."""

REFUSED = "refused"


class Results:
    """How each form of each case ended: "right", "refused", or what is wrong with it; and why it was refused."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self._cases = cases
        self._found: dict[str, dict[str, str]] = {case.name: {} for case in cases}
        self._reasons: dict[str, str] = {}

    def keep(self, kept: dict[str, dict[str, str]], chosen: Sequence[Case]) -> None:
        """Takes over from an earlier result how the cases ended that are not `chosen`."""
        again = {case.name for case in chosen}
        for name, row in kept.items():
            if name not in again:
                self._found[name] = {form: row[form] for form in FORMS if form in row}
                if "reason" in row:
                    self._reasons[name] = row["reason"]

    def refused(self, case: Case, form: str, reasons: Sequence[str]) -> None:
        self._found[case.name][form] = REFUSED
        if form == GIVEN:
            self._reasons[case.name] = "; ".join(reasons)

    def ended(self, form: Form, how: str) -> None:
        self._found[form.case.name][form.form] = how

    def wrong(self) -> dict[str, str]:
        """What is neither right nor refused, by case and form."""
        return {
            f"{name}, {form}": how
            for name, forms in self._found.items()
            for form, how in forms.items()
            if how not in (RIGHT, REFUSED)
        }

    def counts(self) -> dict[str, dict[str, int]]:
        """How many cases ended how, by form; and "cases", how many are right in which form first, or refused in all."""
        found = {}
        for form in FORMS:
            ends = Counter(forms[form] for forms in self._found.values() if form in forms)
            wrong = ends.total() - ends[RIGHT] - ends[REFUSED]
            found[form] = {REFUSED: ends[REFUSED], RIGHT: ends[RIGHT], "wrong": wrong}
        return {**found, "cases": dict(Counter(self._status(case) for case in self._cases))}

    def operators(self) -> dict[str, dict[str, int]]:
        """How many cases of each operator end how."""
        found: dict[str, Counter[str]] = {}
        for case in sorted(self._cases, key=lambda case: case.operator.lower()):
            found.setdefault(row_of(case), Counter())[self._status(case)] += 1
        return {name: dict(counts) for name, counts in found.items()}

    def cases(self) -> dict[str, dict[str, str]]:
        """Every case: its row of the table, how each form ended, and why it was refused as it is, where it was."""
        return {
            case.name: {
                "row": row_of(case), **self._found[case.name],
                **({"reason": self._reasons[case.name]} if case.name in self._reasons else {}),
            }
            for case in self._cases
        }  # fmt: skip

    def _status(self, case: Case) -> str:
        """The first form that is right, or "refused"; "wrong" where any form is."""
        forms = self._found[case.name]
        if any(how not in (RIGHT, REFUSED) for how in forms.values()):
            return "wrong"
        return next((form for form in FORMS if forms.get(form) == RIGHT), REFUSED)


def row_of(case: Case) -> str:
    """The row of the table that a case counts in."""
    return f"{case.operator}, written out" if case.written_out else case.operator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="a glob of the names of cases (repeatable)")
    parser.add_argument("--keep", action="store_true", help="of other cases keep what the result says")
    parser.add_argument("--work", type=Path, help="where engines are made and stay (default: nowhere)")
    parser.add_argument("--out", type=Path, help="write here instead of results/onnx_nodes.json")
    args = parser.parse_args()
    begun = time.monotonic()
    cases = node_cases()
    chosen = [case for case in cases if any(fnmatch.fnmatch(case.name, each) for each in args.only or ["*"])]
    results = Results(cases if args.keep else chosen)
    if args.keep:
        results.keep(json.loads((record.RESULTS / "onnx_nodes.json").read_text())["cases"], chosen)
    with scratch_folder() as temporary:
        workshop = Workshop(args.work or temporary)
        forms = []
        for case in chosen:
            forms += planned(case, workshop, results)
        print(f"{len(chosen)} cases, {len(forms)} runs", flush=True)
        for first in range(0, len(forms), _TOGETHER):
            ran(forms[first : first + _TOGETHER], workshop, results, f"engine{first // _TOGETHER}")
    wrong = results.wrong()
    result = record.environment("bolt-build", "onnx", "numpy") | {
        "wall_s": round(time.monotonic() - begun),
        "counts": results.counts(),
        "wrong": wrong,
        "operators": results.operators(),
        "cases": results.cases(),
    }
    for name, how in wrong.items():
        print(f"{name}: {how}")
    print(result["counts"])
    print(record.write("onnx_nodes", result, args.out))
    sys.exit(1 if wrong else 0)


def planned(case: Case, workshop: Workshop, results: Results) -> list[Form]:
    """The forms of a case that can be imported and have kernels; `results` gets the others."""
    found = []
    for each in imported(case):
        if isinstance(each, Refused):
            results.refused(case, each.form, each.reasons)
            continue
        try:
            workshop.planned(each.graph)
        except BoltError as error:
            results.refused(case, each.form, [diagnostic.message for diagnostic in error.diagnostics])
            continue
        found.append(each)
    return found


def ran(forms: Sequence[Form], workshop: Workshop, results: Results, name: str) -> None:
    """Builds and runs one engine of all `forms`; where that fails, one of each half, down to the one that fails."""
    data = {f"{index}/{name}": array for index, form in enumerate(forms) for name, array in form.data}
    try:
        found = outputs_of(workshop.built(merged([form.graph for form in forms]), name), data)
    except (BoltError, RuntimeError) as error:
        if len(forms) == 1:
            results.ended(forms[0], f"does not run: {error}")
            return
        half = len(forms) // 2
        ran(forms[:half], workshop, results, f"{name}a")
        ran(forms[half:], workshop, results, f"{name}b")
        return
    for index, form in enumerate(forms):
        names = [value.name for value in form.case.model.graph.output]
        results.ended(form, difference(form.case, [found[f"{index}/{output}"] for output in names]))


def difference(case: Case, found: Sequence[Array]) -> str:
    """ "right", or in which output of the case and how the first difference is."""
    wanted = []
    for array in case.outputs:
        assert array is not None, case.name
        wanted.append((stored(array), array.dtype.name))
    return node_differences.difference(wanted, found, case.rtol, case.atol)


if __name__ == "__main__":
    main()
