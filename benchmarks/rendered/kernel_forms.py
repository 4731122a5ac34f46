"""Forms of kernels beside the others for the same layers."""

from __future__ import annotations

from typing import Any

from . import figures, table


def _fastest(kernels: Any) -> dict[str, Any]:
    return min((each for each in kernels if each["us"] is not None), key=lambda each: float(each["us"]))


@figures("kernel_forms")
def kernel_forms(data: Any) -> dict[str, str]:
    """A table a group; gains of all layers where the faster of both is taken."""
    rows: dict[str, list[list[str]]] = {}
    for name, layer in data["layers"].items():
        form, others = _fastest(layer["form"]), _fastest(layer["others"])["us"]
        second = f" + {_fastest(layer['second'])['us']:.1f}" if layer["second"] else ""
        line = [name, f"{form['us']:.1f}", f"{others:.1f}{second}", f"{layer['gain']:.2f}", f"{form['predicted']:.1f}"]
        rows.setdefault(layer["group"], []).append(line)
    head = [f"us, fp16, fp32 accumulation, {data['gpu']}", "of the form", "fastest other", "gain", "predicted"]
    found = {f"forms.{group}": table(head, lines) for group, lines in rows.items()}
    kernels = [
        each
        for layer in data["layers"].values()
        for way in layer
        if isinstance(layer[way], list)
        for each in layer[way]
    ]
    return {**found, "forms.tried": str(len(kernels)), "forms.wrong": str(data["wrong"])}
