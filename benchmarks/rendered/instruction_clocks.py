"""What instructions of chains around depthwise convolutions take."""

from __future__ import annotations

from typing import Any

from . import figures, table

_SAID = {
    "HMMA.16816": "product of 16 x 8 by 16, fp32 sums", "HMMA.1688": "the same of half the depth",
    "LDSM.x4": "load of an A operand (`ldmatrix`)", "STSM.x4": "store of one (`stmatrix`)", "SHFL": "shuffle",
    "MUFU.EX2": "power of two", "MUFU.TANH": "tangent", "F2FP": "two numbers rounded to halves",
    "HMNMX2": "two halves bounded", "PRMT": "bytes permuted", "FFMA": "product and sum in fp32",
}  # fmt: skip


@figures("instruction_clocks")
def clocks(data: Any) -> dict[str, str]:
    """A row an instruction, and a row a width of stores."""
    rows = [[_SAID[name], f"`{name}`", f"{value:.1f}"] for name, value in data["clocks"].items()]
    head = [f"clocks of a scheduler, {data['gpu']}", "SASS", "for a warp"]
    wide = [[f"{nbytes} bytes of a pixel a warp", f"{us:.1f}"] for nbytes, us in data["writes_us"].items()]
    return {
        "clocks": table(head, rows), "clocks.silu": f"{data['silu_error']:.0e}",
        "clocks.writes": table([f"32 images of 56x56 pixels of 144 channels, {data['gpu']}", "us"], wide),
    }  # fmt: skip
