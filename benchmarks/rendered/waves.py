"""Encoders' products in tiles that fill whole waves, and with a normalisation in front or behind in the same kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import figures, table


def _best(kernels: Any) -> str:
    """Microseconds of the fastest."""
    return f"{min(each['us'] for each in kernels if each['us'] is not None):.1f}"


def _compared(name: str, data: Any, head: Sequence[str], ways: Sequence[Sequence[str]]) -> dict[str, str]:
    """A row a product: of each of `ways` the fastest kernel, or the sum of several that run one after the other."""
    rows = [
        [product, *(" + ".join(_best(kernels[part]) for part in way) for way in ways), f"{kernels['gain']:.2f}"]
        for product, kernels in data["products"].items()
    ]
    return {name: table([f"us, fp16, {head[0]}, H200", *head[1:]], rows), f"{name}.wrong": str(data["wrong"])}


_PORTABLE, _MOST = 8, 16
"""Blocks of a cluster that every GPU with clusters has at most, and those that an H200 has."""


@figures("wave_tiles")
def waves(data: Any) -> dict[str, str]:
    """Such tiles beside the fastest other, the lock's among them."""
    products = {name: {**each, "others": each["locked"] + each["others"]} for name, each in data["products"].items()}
    head = ["fp32 accumulation", "such tiles, or slices", "others", "gain"]
    return _compared("waves", {**data, "products": products}, head, [["new"], ["others"]])


@figures("prenorm_kernels")
def prenorm(data: Any) -> dict[str, str]:
    """One kernel beside the normalisation and the product apart."""
    head = ["fp32 accumulation and statistics", "one kernel", "apart", "apart over one"]
    return _compared("prenorm", data, head, [["together"], ["norm", "product"]])


@figures("norm_exchanges")
def exchanges(data: Any) -> dict[str, str]:
    """Blocks that exchange through memory beside clusters, and beside both kernels apart."""
    head = ["fp32 accumulation and statistics", "through memory", "clusters", "apart", "gain"]
    return _compared("exchanges", data, head, [["memory"], ["cluster"], ["product", "norm"]])


@figures("cluster_reads")
def clusters(data: Any) -> dict[str, str]:
    """Blocks alone beside clusters of two, and how fast the first read from L2."""
    rows = [
        [product, _best(each["alone"][:1]), *(_best(each[way]) for way in ("alone", "clusters")), f"{each['gain']:.2f}"]
        for product, each in data["products"].items()
    ]
    head = [
        f"us, fp16, fp32 accumulation, {data['gpu']}",
        "128 x 128 alone",
        "fastest alone",
        "fastest in clusters",
        "gain",
    ]
    square = [each["alone"][0]["us"] / min(k["us"] for k in each["clusters"]) for each in data["products"].values()]
    read = [each["read"] for each in data["products"].values()]
    return {
        "clusters": table(head, rows),
        "clusters.wrong": str(data["wrong"]),
        "clusters.read": f"{min(read):.1f} to {max(read):.1f}",
        "clusters.square": f"{min(square):.2f} to {max(square):.2f}",
    }


@figures("cluster_slots")
def slots(data: Any) -> dict[str, str]:
    """Clusters at once, by their size, a row for each number of blocks that share a multiprocessor."""
    found = data["clusters"]
    sizes = [size for size in next(iter(found.values())) if int(size) <= _PORTABLE or int(size) == _MOST]
    rows = [[beside, *(str(counts[size]) for size in sizes)] for beside, counts in found.items()]
    head = [f"clusters at once, {data['gpu']}; blocks of a multiprocessor", *(f"of {size}" for size in sizes)]
    return {
        "slots": table(head, rows),
        "slots.4": str(found["1"]["4"]),
        "slots.used": str(8 * found["1"]["8"]), "slots.multiprocessors": str(data["multiprocessors"]),
    }  # fmt: skip
