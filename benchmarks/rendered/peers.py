"""Engines beside PyTorch's."""

from __future__ import annotations

from typing import Any

from . import figures, percent, table

_NAMES = {"resnet50": "ResNet-50", "resnet18": "ResNet-18", "vgg16": "VGG-16", "repvgg_a0": "RepVGG-A0"}
_ORDER = (("resnet50", 1), ("resnet50", 32), ("resnet50", 128), ("resnet18", 32), ("vgg16", 32), ("repvgg_a0", 32))


@figures("against_peers")
def peers(data: Any) -> dict[str, str]:
    found = {(row["model"], row["batch"]): row for row in data["rows"]}
    rows = [found[key] for key in _ORDER]
    gpus = sorted({each["gpu"].removeprefix("NVIDIA ") for each in data["gpus"]})
    head = [
        f"ms, fp16, fp32 accumulation, {', '.join(gpus)}",
        *(f"{_NAMES[model]}, batch {batch}" for model, batch in _ORDER),
    ]

    def engines(form: str) -> list[str]:
        return [f"{row['engine_ms'][form]:.3f}" if form in row["engine_ms"] else "" for row in rows]

    compiled = [f"{row['peer']['compile_max_autotune_ms']:.3f}" for row in rows]
    took = [f"{row['peer']['compile_s']:.0f} s" for row in rows]
    eager = [f"{min(row['peer']['graph_ms'], row['peer']['graph_bn_folded_ms']):.3f}" for row in rows]
    over = [f"{row['torch_compile_over']['channels_last']:.2f}" for row in rows]
    summary = data["summary"]["channels_last"]
    departs = max(abs(part) for row in rows for part in row["engine_after_over_before"].values())
    return {
        "peers.short": table(
            head,
            [
                ["engine", *engines("channels_last")],
                ["torch.compile max-autotune; both read fp16, channels last", *compiled],
                ["how long torch.compile compiled", *took],
            ],
        ),
        "peers": table(
            head,
            [
                ["engine, fp16 channels-last in, as PyTorch has it", *engines("channels_last")],
                ["engine, fp32 NCHW in, as the model has it", *engines("planes")],
                ["the same, kernels chosen by prediction alone", *engines("static")],
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


@figures("dense_peers")
def dense_peers(data: Any) -> dict[str, str]:
    """The same models as `bolt-build bench --against` measures them."""
    found = {(row["model"], row["batch"]): row for row in data["rows"]}
    rows = [found[key]["contestants"] for key in _ORDER]
    head = [
        f"ms, {data['precision']}, {data['accumulator']} accumulation, {data['gpu'].removeprefix('NVIDIA ')}",
        *(f"{_NAMES[model]}, batch {batch}" for model, batch in _ORDER),
    ]
    names = {
        "engine": "engine", "torch-compile": "torch.compile max-autotune; both read fp16, channels last",
        "torch-reduce-overhead": "torch.compile reduce-overhead", "torch-graph": "eager in a CUDA graph",
    }  # fmt: skip
    lines = [[text, *(f"{row[name]['median_ms']:.3f}" for row in rows)] for name, text in names.items()]
    took = ["how long max-autotune compiled", *(f"{row['torch-compile']['compile_seconds']:.0f} s" for row in rows)]
    return {
        "dense_peers": table(head, [*lines, took]),
        "dense_peers.mean": f"{data['summary']['all']['geometric_mean']:.2f}",
    }
