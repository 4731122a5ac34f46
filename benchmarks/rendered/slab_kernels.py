"""Kernels around depthwise convolutions: slabs of the halo expanded ahead, or in turn."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from . import figures, of_gpu, table
from .prologue_forms import fastest, mean

_LAYER = re.compile(r"(\d+) (\d)x\ds(\d) (?:(\d+) )?(\d+)\+(dw\+mean|\d+)")
"""`112 3x3s2 16 96+24`: extent, window, stride, channels given, expanded and left."""


@figures("slab_kernels", "chain_kernels", "cudnn_convolutions")
def slabs(data: Any, before: Any, cudnn: Any) -> dict[str, str]:
    """A row a layer, and how many times as long what is beside the fastest takes."""
    old, apart = _of_before(before), _of_cudnn(cudnn)
    rows, gains = [], dict[str, list[float]](before=[], turns=[], cudnn=[])
    for layer, found in data["layers"].items():
        ahead, turns = fastest(found["ahead"]), fastest(found["turns"])
        least = min(us for us in (ahead, turns) if us is not None)
        was, sums = old.get(layer), _apart(layer, data["batch"], apart)
        if was is not None:
            gains["before"].append(was / least)
        if ahead is not None and turns is not None:
            gains["turns"].append(ahead / turns)
        if sums is not None:
            gains["cudnn"].append(sum(sums) / least)
        of_sums = "-" if sums is None else " + ".join(f"{us:.1f}" for us in sums)
        rows.append([layer, *(_us(us) for us in (ahead, turns, was)), of_sums])
    head = [
        f"us, fp16, fp32 accumulation, batch {data['batch']}, {of_gpu(data)}", "ahead", "in turn", "before",
        "cuDNN, convolutions apart",
    ]  # fmt: skip
    tried = sum(len(found[way]) for found in data["layers"].values() for way in ("ahead", "turns"))
    faster = sum(gain > 1 for gain in gains["turns"])
    return {
        "slabs": table(head, rows), "slabs.tried": str(tried), "slabs.wrong": str(data["wrong"]),
        "slabs.before": mean(gains["before"]), "slabs.layers": str(len(gains["before"])),
        "slabs.turns": mean(gains["turns"]), "slabs.faster": f"{faster} of {len(gains['turns'])}",
        "slabs.cudnn": mean(gains["cudnn"]),
    }  # fmt: skip


def _us(us: float | None) -> str:
    return "-" if us is None else f"{us:.1f}"


def _of_before(data: Any) -> dict[str, float]:
    """What the fastest kernel of a layer took: labels say which of the ways it is."""
    found: dict[str, float] = {}
    for each in data["kernels"]:
        if each["way"] in ("chain", "inverted") and each["us"] is not None:
            found[each["layer"]] = min(each["us"], found.get(each["layer"], each["us"]))
    return found


def _of_cudnn(data: Any) -> dict[str, float]:
    """By convolution, the least of what it took in the networks."""
    found: dict[str, float] = {}
    for network in data["rows"].values():
        for step in network["steps"]:
            for convolution, us in zip(step["convolutions"], step["cudnn_us"], strict=True):
                if us is not None:
                    found[convolution] = min(us, found.get(convolution, us))
    return found


def _apart(layer: str, batch: int, known: dict[str, float]) -> list[float] | None:
    """What cuDNN takes for each convolution of the layer, None where one was not timed."""
    times = [known.get(text) for text in _convolutions(layer, batch)]
    found = [us for us in times if us is not None]
    return found if len(found) == len(times) else None


def _convolutions(layer: str, batch: int) -> Iterable[str]:
    """The layer's convolutions as `cudnn_convolutions.json` calls them."""
    match = _LAYER.fullmatch(layer)
    if match is None:
        raise ValueError(f"no layer is called '{layer}'")
    extent, window, stride, given, channels = (int(text or 0) for text in match.groups()[:-1])
    left, pad = (extent + stride - 1) // stride, window // 2
    if given:
        yield _convolution(batch, extent, given, channels, 1)
    pads = f"strides {stride},{stride} pads {pad},{pad},{pad},{pad}"
    weights = f"{channels}x{window}x{window}x1"
    yield f"{batch}x{extent}x{extent}x{channels} {weights} {pads} dilations 1,1 groups {channels}"
    if match.group(6) != "dw+mean":
        yield _convolution(batch, left, channels, int(match.group(6)), 1)


def _convolution(batch: int, extent: int, given: int, made: int, window: int) -> str:
    """One without groups, strides and padding."""
    weights = f"{made}x{window}x{window}x{given}"
    return f"{batch}x{extent}x{extent}x{given} {weights} strides 1,1 pads 0,0,0,0 dilations 1,1 groups 1"
