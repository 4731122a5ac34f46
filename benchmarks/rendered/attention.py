"""Attention kernels beside PyTorch's."""

from __future__ import annotations

from typing import Any

from . import figures, table

_PEERS = {"cudnn": "cuDNN", "flash": "FlashAttention-2", "efficient": "memory-efficient"}


@figures("attention_peers")
def attention(data: Any) -> dict[str, str]:
    return _figures("attention", data)


@figures("attention_peers_h100")
def attention_h100(data: Any) -> dict[str, str]:
    return _figures("attention_h100", data)


def _figures(prefix: str, data: Any) -> dict[str, str]:
    head = [
        f"us, fp16, fp32 softmax and accumulation, {data['gpu'].removeprefix('NVIDIA ')}", "kernel", *_PEERS.values(),
        "fastest of these over kernel", "the same, of the kernel predicted fastest", "TFLOP/s", "fastest kernel",
    ]  # fmt: skip
    rows = [
        [
            " x ".join(map(str, each["shape"])), f"{each['us']:.1f}",
            *(f"{each['peers'][name]:.1f}" for name in _PEERS),
            f"{each['ahead']:.2f}", f"{each['ahead_predicted']:.2f}", f"{each['tflops']:.0f}",
            f"`{each['kernels'][0]['candidate'].removeprefix('attention kind=')}`",
        ]
        for each in data["shapes"]
    ]  # fmt: skip
    kernels = sum(len(each["kernels"]) for each in data["shapes"])
    return {
        prefix: table(head, rows),
        f"{prefix}.mean": f"{data['geometric_mean_64']:.2f}",
        f"{prefix}.least": f"{data['least_64']:.2f}",
        f"{prefix}.torch": ".".join(data["versions"]["torch"].split(".")[:2]),
        f"{prefix}.checked": f"{kernels} kernels and {data['odd']} more for random shapes",
        f"{prefix}.wrong": str(len(data["wrong"]) + sum(each["wrong"] for each in data["shapes"])),
    }
