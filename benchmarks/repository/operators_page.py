"""Renders docs/operators.md: what `bolt-build operators` prints, and what came of the onnx package's node cases.

python benchmarks/repository/operators_page.py
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import ROOT, record

PAGE = ROOT / "docs" / "operators.md"

_HEAD = """\
# Operators

What bolt-build imports of ONNX. `python benchmarks/repository/operators_page.py` renders this page.
`bolt-build operators` prints the first table for the installation at hand, with the operators of other packages.

## What is imported

"Data" are the element types of models whose tensors may be computed at run time. An operator that takes constants alone
is computed at import. The columns of devices name the kernel families that have kernels for it, and say "a view" where
no byte is moved.

"""

_CASES = """
## ONNX's own cases

The {cases} node cases of onnx {onnx}, run in engines of the host target (`{command}`, {date};
[raw](../benchmarks/results/onnx_nodes.json)). Each case is tried as it is, with all its inputs as data; with its first
floating-point input that may be as data, and the others as initializers; and with all of them as initializers, which
import folds. Of {runs} runs {wrong} are wrong. {data} cases run with all inputs as data, {first} more with one input as
data, {constants} more are folded, and {refused} are refused. A case of a function comes a second time, written out as
the function's body. The reason is the most frequent one for which an operator's cases do not run as they are.

| operator | cases | data | one input | folded | refused | wrong | most frequent reason |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def main() -> None:
    from bolt_build.report.operators import markdown
    from bolt_build.targets import all_targets
    from bolt_build.workflows.operators import operators

    result = json.loads((record.RESULTS / "onnx_nodes.json").read_text())
    PAGE.write_text(_HEAD + markdown(operators(all_targets())) + cases(result), encoding="utf-8")
    print(PAGE)


def cases(result: dict[str, Any]) -> str:
    """The page's second half."""
    counts = result["counts"]
    runs = sum(counts[form]["right"] + counts[form]["wrong"] for form in ("data", "first", "constants"))
    head = _CASES.format(
        cases=len(result["cases"]), onnx=result["versions"]["onnx"], command=result["command"],
        date=result["date"], runs=runs, wrong=len(result["wrong"]),
        **{how: counts["cases"].get(how, 0) for how in ("data", "first", "constants", "refused")},
    )  # fmt: skip
    reasons: dict[str, Counter[str]] = {}
    for case in result["cases"].values():
        if "reason" in case:
            reasons.setdefault(case["row"], Counter())[_general(case["reason"])] += 1
    return head + "".join(_row(name, found, reasons.get(name)) for name, found in result["operators"].items())


def _row(name: str, found: dict[str, int], reasons: Counter[str] | None) -> str:
    numbers = [sum(found.values()), *(found.get(how, 0) for how in ("data", "first", "constants", "refused", "wrong"))]
    # The most frequent one; of several the first in the alphabet.
    reason = min(reasons, key=lambda text: (-reasons[text], text)) if reasons else ""
    return f"| {name} | {' | '.join(map(str, numbers))} | {reason} |\n"


def _general(reason: str) -> str:
    """The first of what was said, without the names of the case's nodes and tensors."""
    first = re.split(r": nodes? '", reason.split("; ")[0])[0]
    first = re.sub(r"^(\w+)(,? '[^']*')+(?=:)", r"\1", first)
    return re.sub(r"\bthe (input|output|initializer) '[^']*'", r"the \1", first).replace("|", "\\|")


if __name__ == "__main__":
    main()
