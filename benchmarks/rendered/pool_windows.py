"""What poolings take whose windows slide, beside the plain kernel."""

from __future__ import annotations

from math import prod
from typing import Any

from . import figures, table

_BYTES_A_SECOND = 4.3e12
"""What the script counts bytes in."""


@figures("pool_windows")
def pool_windows(data: Any) -> dict[str, str]:
    rows, faster = list[list[str]](), list[float]()
    for name, shape in data["shapes"].items():
        plain, sliding = shape["best"]["direct"], shape["best"]["sliding"]
        reached = shape["bytes_us"] * 1e-6 * _BYTES_A_SECOND / 1e6
        rows.append([name, *(f"{us:.1f}, {reached / us:.2f}" for us in (plain, sliding)), f"{plain / sliding:.2f}"])
        if "s1" in name and " b32 " in name and "planes" not in name and not name.startswith("other"):
            faster.append(plain / sliding)
    kernels = sum(len(shape[way]) for shape in data["shapes"].values() for way in ("direct", "sliding"))
    return {
        "pool_windows": table(["us, TB/s; H100", "plain", "sliding", "times as fast"], rows),
        "pool_windows.kernels": str(kernels),
        "pool_windows.wrong": str(data["wrong"] or "none"),
        "pool_windows.mean": f"{prod(faster) ** (1 / len(faster)):.2f}",
    }
