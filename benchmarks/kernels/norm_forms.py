"""Takes what `norm_forms.cu` printed on a GPU into the results: of every case the fastest kernel of each form.

    python benchmarks/kernels/norm_forms.py FILE.json [--before FILE.json]

`--before` is what the program of an earlier commit printed, in which clusters of blocks computed one slab after the
other: kernels that were given up, kept as the reason why. Writes `results/norm_forms.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record

PEAK = 4.3
"""Terabytes a second of an H200."""


def fastest(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """By case and form."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        form = "slabs, several a block" if row.get("clusters") else row["form"]
        forms = found.setdefault(row["case"], {})
        if form not in forms or row["us"] < forms[form]["us"]:
            forms[form] = row
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--gpu", default="NVIDIA H200")
    arguments = parser.parse_args()
    rows = json.loads(arguments.file.read_text())
    result = record.environment() | {
        "command": "python benchmarks/kernels/norm_forms.py FILE.json (what norm_forms.cu printed)",
        "gpu": arguments.gpu, "precision": "fp16", "accumulator": "fp32", "peak_terabytes_per_second": PEAK,
        "kernels": len(rows),
        "largest_error": max(row["error"] for row in rows), "fastest": fastest(rows),
    }  # fmt: skip
    if arguments.before is not None:
        before = fastest(json.loads(arguments.before.read_text()))
        name = "slabs, several a block"
        result["given_up"] = {case: forms[name] for case, forms in before.items() if name in forms}
    print(record.write("norm_forms", result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
