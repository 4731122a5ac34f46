"""Kernels for kinds of layers, as trials printed their times."""

from __future__ import annotations

from typing import Any

from . import figures, table


@figures("printed_trials")
def printed_trials(data: Any) -> dict[str, str]:
    gpu = data["gpu"].removeprefix("NVIDIA ")
    found = {"trials.tried": str(data["tried"]), "trials.wrong": str(data["wrong"]), "trials.gpu": gpu}
    for group, new in (("norms", ("held", "batches")), ("masks", ("persistent",))):
        rows = []
        for layer, kernels in data["groups"][group].items():
            ours = min((each["us"] for each in kernels if each["kind"] in new), default=None)
            others = min((each["us"] for each in kernels if each["kind"] not in new), default=None)
            if ours is not None and others is not None:
                rows.append([layer, f"{ours:.1f}", f"{others:.1f}", f"{others / ours:.2f}"])
        head = [f"us, fp16, fp32 accumulation, {gpu}", "of this kind", "fastest other", "gain"]
        found[f"trials.{group}"] = table(head, rows)
    rows = [
        [layer, f"{best['us']:.1f}", f"{best['predicted']:.1f}"]
        for layer, kernels in data["groups"]["volumes"].items()
        for best in [min(kernels, key=lambda each: each["us"])]
    ]
    found["trials.volumes"] = table([f"us, fp16, fp32 accumulation, {gpu}", "fastest tried", "predicted"], rows)
    return found
