"""Chains of layers in one kernel, and activations."""

from __future__ import annotations

from typing import Any

from . import figures, percent, table

_NAMES = {
    "resnet50": "ResNet-50", "vgg16": "VGG-16", "repvgg_a0_deep": "RepVGG-A0, deepened by 1x1s",
    "repvgg_a1_deep": "RepVGG-A1, deepened by 1x1s", "repvgg_b0_deep": "RepVGG-B0, deepened by 1x1s",
    "mlp_32768": "three layers, 32768 rows, 576 to 128 to 64 to 16 columns",
    "mlp_128320": "three layers, 128320 rows, 96 to 32 to 96 to 32 columns",
}  # fmt: skip


@figures("fusion_choices")
def choices(data: Any) -> dict[str, str]:
    found = {choice["model"]: choice for group in data["groups"] for choice in group["choices"]}

    def cell(choice: Any, which: str) -> str:
        text = f"{choice['ms'][which]:.4f}"
        return text if which == "never" else f"{text}, {choice['fused'][which]}"

    head = [f"ms, and how many fused chains; batch {data['batch']}, {data['dtype']}, H200, replayed in turns"]
    head += ["auto", "always", "never"]
    rows = [[text, *(cell(found[name], which) for which in head[1:])] for name, text in _NAMES.items()]
    costs = [each["cost"]["auto"] for group in data["groups"] for each in group["deepening"]]
    mean = percent(sum(costs) / len(costs), 1)
    return {
        "fusion": table(head, rows),
        "fusion.date": data["date"],
        "deepening": f"{percent(min(costs))} to {percent(max(costs))}, {mean} on average",
        "deepening.paper": percent(data["summary"]["paper_t4"], 1),
        "activations.exact_silu": f"{1 + data['summary']['activations_longer_by']['silu']:.1f} times",
    }


@figures("back_to_back")
def back_to_back(data: Any) -> dict[str, str]:
    summary = data["summary"]
    waiting = summary["without_overlap"]
    return {
        "pairs.mean": f"{summary['geometric_mean']:.2f} times", "pairs.least": f"{summary['least']:.2f} times",
        "pairs.waiting_mean": f"{waiting['geometric_mean']:.2f}", "pairs.waiting_least": f"{waiting['least']:.2f}",
    }  # fmt: skip


@figures("activations", "activation_sass")
def activations(times: Any, sass: Any) -> dict[str, str]:
    names = {"hardswish": "HardSwish", "softplus": "Softplus", "silu": "Silu", "gelu": "Gelu"}
    longer = times["summary"]["activations_longer_by"]

    def instructions(name: str) -> list[str]:
        return [f"{sass[when][name]['instructions']:.0f}" for when in ("now", "before")]

    rows = [[name, percent(longer[key]), *instructions(name)] for key, name in names.items()]
    head = ["RepVGG-A0, batch 32, kernels by prediction", "longer than with ReLU"]
    head += ["instructions an output", "with exact functions"]
    return {"activations": table(head, rows)}


@figures("explored_h200")
def explored(data: Any) -> dict[str, str]:
    found = data["exploration"]
    rows = [
        [
            row["model"].replace("explored", "repvgg_a0"), f"{row['images_per_second']:,.0f}",
            f"{row['parameters'] / 1e6:.2f} M", "" if row["cost"] is None else percent(row["cost"], 1),
            f"{row['median_ms']:.3f}", str(row["chains"]), "measured" if row["kernels"]["lock"] else "predicted",
        ]
        for row in found["rows"]
    ]  # fmt: skip
    head = [f"fp16, fp32 accumulation, batch {found['rows'][0]['batch']}, {found['device'].removeprefix('NVIDIA ')}",
            "images a second", "parameters", "cost", "ms", "chains", "kernels"]  # fmt: skip
    return {"explored": table(head, rows)}
