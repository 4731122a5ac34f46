"""Kernels for chains around depthwise convolutions, and for few output channels, beside the kernels apart."""

from __future__ import annotations

from math import exp, log
from typing import Any

from . import figures, table


@figures("chain_kernels")
def chains(data: Any) -> dict[str, str]:
    """A row a layer: of each way what one kernel takes, and how many times as long the fastest apart do."""
    ways = {"chain": "depthwise + 1x1", "expanded": "1x1 + depthwise", "inverted": "all three"}
    rows = [
        [ways[each["way"]], layer, f"{each['us']:.1f}", " + ".join(f"{us:.1f}" for us in each["apart_us"]),
         f"{each['speed']:.2f}"]
        for layer, each in sorted(data["shapes"].items(), key=lambda item: (list(ways).index(item[1]["way"]), item[0]))
    ]  # fmt: skip
    summary = data["summary"]
    head = [
        f"us, fp16, fp32 accumulation, batch {data['batch']}, H200",
        "layer",
        "one kernel",
        "apart",
        "apart over one",
    ]
    return {
        "chains": table(head, rows), "chains.mean": f"{summary['geometric_mean']:.2f}",
        "chains.least": f"{summary['least']:.2f}", "chains.tried": f"{summary['tried']}",
        "chains.wrong": f"{summary['wrong']}",
    }  # fmt: skip


@figures("normed_kernels")
def normed(data: Any) -> dict[str, str]:
    """A row a layer of ConvNeXt-Tiny."""
    rows = [
        [layer, f"{each['us']:.1f}", " + ".join(f"{us:.1f}" for us in each["apart_us"]), f"{each['speed']:.2f}"]
        for layer, each in data["shapes"].items()
    ]
    head = ["us, fp16, fp32 accumulation and statistics, H200", "one kernel", "apart", "apart over one"]
    return {"normed": table(head, rows)}


@figures("narrow_convolutions")
def narrow(data: Any) -> dict[str, str]:
    """A row a layer: the fastest kernel of the new kind beside the fastest of the others."""
    rows = []
    for layer, found in data["shapes"].items():
        kind = next(name for name in ("rolling", "diagonal") if found.get(name))
        one, other = (min(each["us"] for each in found[name] if not each["message"]) for name in (kind, "others"))
        rows.append([layer, kind, f"{found['bytes_us']:.1f}", f"{one:.1f}", f"{other:.1f}", f"{other / one:.2f}"])
    head = ["us, fp16, fp32 accumulation, H200", "kind", "bytes at 4.3 TB/s", "its fastest", "fastest other", "gain"]
    return {"narrow": table(head, rows), "narrow.wrong": str(data["wrong"])}


@figures("sliding_windows")
def sliding(data: Any) -> dict[str, str]:
    """A row a layer: the fastest kernel whose windows slide beside the fastest of the others."""
    rows, gains = [], []
    for layer, found in data["shapes"].items():
        one, other = found["best"]["sliding"], found["best"]["others"]
        gains.append(other / one)
        rows.append([layer, f"{found['bytes_us']:.1f}", f"{one:.1f}", f"{other:.1f}", f"{other / one:.2f}"])
    head = ["us, fp16, fp32 accumulation, H100", "bytes at 4.3 TB/s", "sliding", "fastest other", "gain"]
    tried = sum(len(found[way]) for found in data["shapes"].values() for way in ("sliding", "others"))
    return {
        "sliding": table(head, rows), "sliding.wrong": str(data["wrong"]), "sliding.tried": str(tried),
        "sliding.faster": f"{sum(gain > 1 for gain in gains)} of {len(gains)}",
        "sliding.mean": f"{exp(sum(map(log, (max(gain, 1.0) for gain in gains))) / len(gains)):.2f}",
    }  # fmt: skip
