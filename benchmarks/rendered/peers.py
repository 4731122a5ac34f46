"""Engines beside PyTorch's."""

from __future__ import annotations

import math
from typing import Any

from . import figures, percent, table
from .contestants import contestants_of

_NAMES = {"resnet50": "ResNet-50", "resnet18": "ResNet-18", "vgg16": "VGG-16", "repvgg_a0": "RepVGG-A0"}
_ORDER = (("resnet50", 1), ("resnet50", 32), ("resnet50", 128), ("resnet18", 32), ("vgg16", 32), ("repvgg_a0", 32))
_COMPILED = "torch.compile max-autotune; both read fp16, channels last"


_MODES = {"torch-compile": "torch.compile max-autotune", "torch-reduce-overhead": "torch.compile reduce-overhead"}


def _head(rows: list[Any], what: str) -> list[str]:
    return [what, *(f"{_NAMES[row['model']]}, batch {row['batch']}" for row in rows)]


@figures("against_peers")
def peers(data: Any) -> dict[str, str]:
    rows = _ordered(data)
    compiled = [f"{row['peer']['compile_max_autotune_ms']:.3f}" for row in rows]
    took = [f"{row['peer']['compile_s']:.0f} s" for row in rows]
    eager = [f"{min(row['peer']['graph_ms'], row['peer']['graph_bn_folded_ms']):.3f}" for row in rows]
    over = [f"{row['torch_compile_over']['channels_last']:.2f}" for row in rows]
    summary = data["summary"]["channels_last"]
    departs = max(abs(part) for row in rows for part in row["engine_after_over_before"].values())
    return {
        "peers": table(
            _head(rows, f"ms, fp16, fp32 accumulation, {_gpus(data)}"),
            [
                ["engine, fp16 channels-last in, as PyTorch has it", *_engines(rows, "channels_last")],
                ["engine, fp32 NCHW in, as the model has it", *_engines(rows, "planes")],
                ["the same, kernels chosen by prediction alone", *_engines(rows, "static")],
                ["torch.compile max-autotune", *compiled],
                ["how long it compiled", *took],
                ["eager in a CUDA graph, BatchNorm folded where that is faster", *eager],
                ["torch.compile over engine, same input", *over],
            ],
        ),
        "peers.mean": f"{summary['measured']['geometric_mean']:.2f}",
        "peers.mean_of_faster": f"{summary['measured or expected']['geometric_mean']:.2f}",
        "peers.torch": data["versions"]["torch"].rpartition(".")[0],
        "peers.departs": percent(departs, 1),
        "peers.earlier": ", ".join(
            f"{row['peer']['compile_max_autotune_ms'] / (1 + row['peer_departs_from_expected_by']):.3f}" for row in rows
        ),
    }


@figures("against_peers", beside=("dense_peers",))
def short_peers(earlier: Any, verb: Any | None) -> dict[str, str]:
    """The README's table: by `bolt-build bench --against` where that has been measured, else by the earlier script."""
    if verb is None:
        rows, summary = _ordered(earlier), earlier["summary"]["channels_last"]
        lines = [
            ["engine", *_engines(rows, "channels_last")],
            [_COMPILED, *(f"{row['peer']['compile_max_autotune_ms']:.3f}" for row in rows)],
            ["how long torch.compile compiled", *(f"{row['peer']['compile_s']:.0f} s" for row in rows)],
        ]
        return {
            "peers.short": table(_head(rows, f"ms, fp16, fp32 accumulation, {_gpus(earlier)}"), lines),
            "peers.short_mean": f"{summary['measured']['geometric_mean']:.2f}",
            "peers.short_faster": f"{summary['measured or expected']['geometric_mean']:.2f}",
            "peers.short_by": "by `against_peers.py`, as the table above",
        }
    rows = _ordered(verb)
    before = {_key(row): row["peer"]["compile_max_autotune_ms"] for row in _ordered(earlier)}
    asked = {name for row in rows for name in (*contestants_of(row), *row["failed"])}
    lines = [
        [text, *(_cell(row, name, "median_ms", ".3f") for row in rows)]
        for name, text in (("engine", "engine"), *_MODES.items(), ("torch-graph", "eager in a CUDA graph"))
        if name in asked
    ]
    lines += [
        [f"how long {text.split()[1]} compiled", *(_cell(row, name, "compile_seconds", ".0f", " s") for row in rows)]
        for name, text in _MODES.items()
        if name in asked
    ]
    what = f"ms, {verb['precision']}, {verb['accumulator']} accumulation, {verb['gpu'].removeprefix('NVIDIA ')}"
    return {
        "peers.short": table(_head(rows, f"{what}; all read fp16, channels last"), lines),
        "peers.short_mean": f"{_mean(rows):.2f}",
        "peers.short_faster": f"{_mean(rows, before):.2f}",
        "peers.short_by": f"by `bolt-build bench --against` with PyTorch {verb['versions']['torch'].rpartition('.')[0]}"
        " (`cnn_peers.py --table dense_peers`)",
    }


def _ordered(data: Any) -> list[Any]:
    """The rows that were measured, in the table's order."""
    found = {(row["model"], row["batch"]): row for row in data["rows"]}
    return [found[key] for key in _ORDER if key in found]


def _gpus(data: Any) -> str:
    return ", ".join(sorted({each["gpu"].removeprefix("NVIDIA ") for each in data["gpus"]}))


def _engines(rows: list[Any], form: str) -> list[str]:
    return [f"{row['engine_ms'][form]:.3f}" if form in row["engine_ms"] else "" for row in rows]


def _cell(row: Any, name: str, key: str, form: str, unit: str = "") -> str:
    """What a contestant has; "failed" where it did, nothing where it was not asked for."""
    if name in row["failed"]:
        return "failed"
    ran = contestants_of(row).get(name)
    return "" if ran is None else f"{ran[key]:{form}}{unit}"


def _key(row: Any) -> tuple[str, int]:
    return row["model"], row["batch"]


def _mean(rows: list[Any], earlier: dict[tuple[str, int], float] | None = None) -> float:
    """Geometric mean of the time of torch.compile's faster mode over the engine's, where both ran. `earlier` are times
    of earlier runs, which count where they are shorter."""
    ratios = []
    for row in rows:
        ran = {name: each["median_ms"] for name, each in contestants_of(row).items()}
        compiled = [ran[name] for name in _MODES if name in ran]
        if compiled and "engine" in ran:
            ratios.append(min([*compiled, (earlier or {}).get(_key(row), math.inf)]) / ran["engine"])
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
