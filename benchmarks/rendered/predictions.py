"""How far predicted times are from measured ones."""

from __future__ import annotations

from statistics import geometric_mean
from typing import Any

from . import figures, of_gpu, percent, table


@figures("predictions", "kernel_times")
def predictions(data: Any, times: Any) -> dict[str, str]:
    """A row a kind of kernels."""
    rows = []
    for kind, row in data["kinds"].items():
        if row["points"] < 5:
            continue
        ranked = [percent(row["first_is_best"]), f"{row['regret']:.3f}"] if "regret" in row else ["", ""]
        apart = row.get("held_out", {})
        held_out = [f"{apart['ratio']:.2f}" if apart else "", f"{apart['regret']:.3f}" if "regret" in apart else ""]
        spread = f"{row['low']:.2f} to {row['high']:.2f}"
        rows.append([kind, str(row["points"]), str(row["problems"]), f"{row['ratio']:.2f}", spread, *ranked, *held_out])
    head = [
        f"predicted over measured, {of_gpu(data)}", "kernels", "problems", "mean", "10% to 90%", "first is fastest",
        "regret", "held out: mean", "regret",
    ]  # fmt: skip
    whole = data["kinds"]["all"]
    gathered = sum(len(row["us"]) for source in times["sources"].values() for row in source.values())
    low, high = data["band"]
    return {
        "predictions": table(head, rows), "predictions.points": f"{whole['points']:,}",
        "predictions.gathered": f"{gathered:,}", "predictions.regret": percent(whole["regret"] - 1, 1),
        "predictions.band": f"{low} to {high}", "predictions.most": percent(data["most_regret"] - 1),
        "predictions.outside": "; ".join(f"`{kind}`: {why}" for kind, why in data["outside"].items()) or "none",
    }  # fmt: skip


@figures("uncertain_kernels")
def uncertain(data: Any) -> dict[str, str]:
    """A row a class of drawn problems. Predictions are those by which the kernels were chosen."""
    classes: dict[str, list[Any]] = {}
    for name, shape in data["shapes"].items():
        of = name.partition(f"-{data['seed']}-")[0].removeprefix("slide-")
        classes.setdefault(of, []).append(shape)
    rows = []
    for of, shapes in classes.items():
        ratios = sorted(each["predicted"] / each["us"] for shape in shapes for each in shape["kernels"])
        regret = geometric_mean([shape["regret"] for shape in shapes])
        spread = f"{ratios[len(ratios) // 10]:.2f} to {ratios[len(ratios) * 9 // 10]:.2f}"
        rows.append([of, str(len(shapes)), str(len(ratios)), f"{regret:.3f}", f"{geometric_mean(ratios):.2f}", spread])
    head = [
        f"predicted over measured, {of_gpu(data)}", "problems", "kernels", "regret of the first", "mean", "10% to 90%"
    ]  # fmt: skip
    return {
        "uncertain": table(head, rows), "uncertain.problems": str(len(data["shapes"])),
        "uncertain.kernels": str(sum(len(shape["kernels"]) for shape in data["shapes"].values())),
    }  # fmt: skip


@figures("unlocked")
def unlocked(data: Any) -> dict[str, str]:
    """A row a recipe and batch."""
    rows = [
        [name, f"{row['locked_us']:.1f}", f"{row['unlocked_us']:.1f}", f"{row['regret']:.2f}", percent(row["known"])]
        for name, row in data["rows"].items()
    ]
    head = [f"us, recipe and batch, {of_gpu(data)}", "with its lock", "without", "over", "measured of it"]
    return {
        "unlocked": table(head, rows), "unlocked.mean": f"{data['mean']:.2f}",
        "unlocked.most": f"{max(row['regret'] for row in data['rows'].values()):.2f}",
    }  # fmt: skip
