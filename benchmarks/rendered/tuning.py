"""Tuning: how long it takes, and what its choices are worth."""

from __future__ import annotations

from typing import Any

from . import duration, figures, percent, table


@figures("gpu_tuning_cold", "gpu_tuning", "build_times_bundle")
def times(cold: Any, earlier: Any, bundle: Any) -> dict[str, str]:
    tune, units = cold["tune"], cold["tune"]["compile"]["units"]
    cold_start = (
        f"from nothing: {units} kernels compiled, {tune['measured_now']} measurements, and the whole engine played "
        f"for {tune['seconds']['engine']:.0f} s"
    )
    rows = [
        [cold_start, duration(tune["wall_seconds"])],
        ["the engine afterwards, built and verified", duration(cold["build"]["wall_seconds"])],
        ["again, everything compiled: every candidate measured anew (an earlier version)",
         duration(earlier["again_with_warm_cache"]["wall_seconds"])],
        ["Wide ResNet-50-2 afterwards (an earlier version)",
         duration(earlier["wide_resnet50_2_afterwards"]["wall_seconds"])],
        [f"a bundle exported, on {bundle['device']}", duration(bundle["export"]["wall_s"])],
    ]  # fmt: skip
    counts = earlier["two_tunings"]["counts"]
    return {
        "tuning": table([f"ResNet-50, batch {cold['batch']}, on 16 cores beside an H200", ""], rows),
        "tuning.cold_and_build": duration(cold["both_seconds"]),
        "tuning.twice": f"{counts['equal']} of {sum(counts.values())}",
        "tuning.failed": str(sum(count for status, count in tune["statuses"].items() if status != "ok")),
    }


@figures("pruning")
def pruning(data: Any) -> dict[str, str]:
    summary, legal = data["summary"], [layer["legal"] for layer in data["layers"].values()]
    first = {n: each["predicted"] - 1 for n, each in summary["first_by_prediction_over_exhaustive"].items()}
    return {
        "pruning.layers": str(summary["layers"]),
        "pruning.legal": f"{min(legal)} to {max(legal)}",
        "pruning.first2": percent(first["2"], 1),
        "pruning.first6": percent(first["6"], 1),
        "pruning.tuned": percent(summary["exhaustive_is_faster_by"], 2),
    }


@figures("kernel_reuse")
def reuse(data: Any) -> dict[str, str]:
    wide = data["then"]["wide_resnet50_2"]
    return {
        "reuse.kernels": str(data["kernels_of_first"]),
        "reuse.wide": f"{wide['candidates_reused']} of {wide['candidates']}",
    }
