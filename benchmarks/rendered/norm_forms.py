"""What each form of a normalisation reaches of a GPU's memory bandwidth."""

from __future__ import annotations

from typing import Any

from . import figures, table

_FORMS = ("direct", "turns", "slabs", "passes")


@figures("norm_forms")
def norm_forms(data: Any) -> dict[str, str]:
    peak = data["peak_terabytes_per_second"]

    def cell(row: dict[str, Any] | None) -> str:
        return "" if row is None else f"{row['us']:.1f}, {row['terabytes_per_second'] / peak:.0%}"

    rows = [
        [case.replace("_", " "), *(cell(forms.get(form)) for form in _FORMS), cell(data.get("given_up", {}).get(case))]
        for case, forms in data["fastest"].items()
    ]
    head = [
        f"us, {data['precision']}, {data['accumulator']} statistics, {data['gpu'].removeprefix('NVIDIA ')}",
        *_FORMS,
    ]
    return {
        "norm_forms": table([*head, "given up: several slabs a block"], rows),
        "norm_forms.kernels": str(data["kernels"]),
        "norm_forms.error": f"{data['largest_error']:.2g}",
    }
