"""Engines in bf16 beside the same in fp16."""

from __future__ import annotations

from typing import Any

from . import figures, of_gpu, table

_FORMS = {"fp16": "fp16", "bf16": "bf16", "bf16_wide": "bf16, some layers in fp32"}


@figures("bf16_engines")
def bf16_engines(data: Any) -> dict[str, str]:
    """A row an engine; models stay together."""
    rows = []
    for row in data["rows"]:
        form = next(form for form in reversed(_FORMS) if row["recipe"].endswith(f"_{form}"))
        judged, (bench,) = row["verification"], row["bench"]
        least = min(output["cosine"] for output in judged["outputs"])
        rows.append([
            row["recipe"].removesuffix(f"_{form}"), _FORMS[form], f"{bench['median_ms']:.3f}", str(judged["layers"]),
            f"{judged['largest_used']:.2f}", f"{least:.6f}",
        ])  # fmt: skip
    head = [
        f"batch {data['batch']}, {data['accumulator']} accumulation, {of_gpu(data)}", "precision", "ms",
        "layers verified", "worst of its tolerance", "cosine with fp32",
    ]  # fmt: skip
    right = sum(row["verified"] is True and row["verification"]["ok"] for row in data["rows"])
    return {"bf16_engines": table(head, rows), "bf16_engines.right": f"{right} of {len(data['rows'])}"}
