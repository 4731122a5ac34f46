"""The paper's Table 3: convolutions whose channels miss the alignment."""

from __future__ import annotations

import re
from typing import Any

from . import figures, table

_ROW = re.compile(r"n(\d+)_(\d+x\d+)_(\d+)_(\d+)_(\d+x\d+)_pad(\d+x\d+)")


@figures("padding")
def padding(data: Any) -> dict[str, str]:
    summary = data["summary"]
    gpu = summary["gpu"].removeprefix("NVIDIA ")
    head = [
        f"us, {summary['dtype']}, {summary['accumulator']} accumulation, {gpu}", "batch", "window, padding",
        "as it is", "padded by a copy", "padded from the start", "as it is over padded", "the paper's, T4",
        "the copy's part", "the paper's, T4",
    ]  # fmt: skip
    rows = []
    for row in data["rows"]:
        found = _ROW.fullmatch(row["row"])
        assert found is not None
        batch, extents, channels, filters, window, pads = found.groups()
        us, paper = row["us"], row["paper_t4"]
        rows.append(
            [
                f"{extents}, {channels} to {filters}",
                batch,
                f"{window}, {pads}",
                *(f"{us[form]:.1f}" for form in ("unpadded", "padded", "folded")),
                f"{row['speed_padded']:.2f}",
                f"{paper['speed_padded']:.2f}",
                f"{row['cost_of_padding']:.0%}",
                f"{paper['cost_of_padding']:.0%}",
            ]
        )
    return {
        "padding": table(head, rows),
        "padding.speed": f"{summary['speed_padded']:.2f}",
        "padding.folded": f"{summary['speed_folded']:.2f}", "padding.cost": f"{summary['cost_of_padding']:.0%}",
    }  # fmt: skip
