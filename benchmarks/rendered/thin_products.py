"""1x1 convolutions of few channels, and products behind a BatchNorm or a gate whose depth a cluster shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import figures, of_gpu, table
from .prologue_forms import mean


@figures("thin_products")
def thin_products(data: Any) -> dict[str, str]:
    """A table each, and how many times as long the fastest other kernel takes as the new one."""
    thin = {name: found for name, found in data["shapes"].items() if "cudnn" in found}
    sliced = {name: found for name, found in data["shapes"].items() if "cudnn" not in found}
    unit = f"us, fp16, fp32 accumulation, {of_gpu(data)}"
    beside = [
        found["cudnn"] / min(us for us in found["warm"].values() if us is not None)
        for found in thin.values()
        if found["cudnn"] is not None
    ]
    tried = sum(len(found[way]) for found in data["shapes"].values() for way in ("tiles", "thin", "whole", "sliced"))
    return {
        "thin_rows": table(
            [unit, "thin", "tiles", "gain", "thin, in L2", "tiles, in L2", "cuDNN, in L2"],
            [
                [name, *_us(found["us"], "thin", "tiles"), _gain(found), *_us(found["warm"], "thin", "tiles"),
                 *_us(found, "cudnn")]
                for name, found in thin.items()
            ],
        ),
        "sliced_prologues": table(
            [unit, "in a cluster", "whole", "gain", "in a cluster, in L2", "whole, in L2"],
            [
                [name, *_us(found["us"], "sliced", "whole"), _gain(found), *_us(found["warm"], "sliced", "whole")]
                for name, found in sliced.items()
            ],
        ),
        "thin_rows.tried": str(tried), "thin_rows.wrong": str(data["wrong"]),
        "thin_rows.cudnn": mean(beside) if beside else "not measured",
        **{f"{name}.{what}": text for name, of in (("thin_rows", thin), ("sliced_prologues", sliced))
           for what, text in _gains([found["gain"] for found in of.values() if found["gain"] is not None])},
    }  # fmt: skip


def _us(found: Any, *ways: str) -> list[str]:
    return ["-" if found[way] is None else f"{found[way]:.1f}" for way in ways]


def _gain(found: Any) -> str:
    return "-" if found["gain"] is None else f"{found['gain']:.2f}"


def _gains(gains: Sequence[float]) -> tuple[tuple[str, str], ...]:
    faster = f"{sum(gain > 1 for gain in gains)} of {len(gains)}"
    return (("mean", mean(gains)), ("least", f"{min(gains):.2f}"), ("most", f"{max(gains):.2f}"), ("faster", faster))
