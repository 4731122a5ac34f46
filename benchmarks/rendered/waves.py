"""Encoders' products in tiles that fill whole waves, and with a normalisation in front or behind in the same kernel."""

from __future__ import annotations

from typing import Any

from . import figures, table


def _best(kernels: Any) -> float:
    """Microseconds of the fastest."""
    return float(min(each["us"] for each in kernels if each["us"] is not None))


@figures("wave_tiles")
def waves(data: Any) -> dict[str, str]:
    """A row a product: the fastest kernel in such tiles beside the fastest other."""
    rows = [
        [name, f"{_best(each['new']):.1f}", f"{_best(each['locked'] + each['others']):.1f}", f"{each['gain']:.2f}"]
        for name, each in data["products"].items()
    ]
    head = ["us, fp16, fp32 accumulation, H200", "such tiles, or slices", "others", "gain"]
    return {"waves": table(head, rows), "waves.wrong": str(data["wrong"])}


@figures("prenorm_kernels")
def prenorm(data: Any) -> dict[str, str]:
    """A row a product: one kernel beside the normalisation and the product apart."""
    rows = [
        [name, f"{_best(each['together']):.1f}", f"{_best(each['norm']):.1f} + {_best(each['product']):.1f}",
         f"{each['gain']:.2f}"]
        for name, each in data["products"].items()
    ]  # fmt: skip
    head = ["us, fp16, fp32 accumulation and statistics, H200", "one kernel", "apart", "apart over one"]
    return {"prenorm": table(head, rows), "prenorm.wrong": str(data["wrong"])}


@figures("norm_exchanges")
def exchanges(data: Any) -> dict[str, str]:
    """A row a product: blocks that exchange through memory beside clusters, and beside both kernels apart."""
    rows = [
        [name, f"{_best(each['memory']):.1f}", f"{_best(each['cluster']):.1f}",
         f"{_best(each['product']):.1f} + {_best(each['norm']):.1f}", f"{each['gain']:.2f}"]
        for name, each in data["products"].items()
    ]  # fmt: skip
    head = ["us, fp16, fp32 accumulation and statistics, H200", "through memory", "clusters", "apart", "gain"]
    return {"exchanges": table(head, rows), "exchanges.wrong": str(data["wrong"])}
