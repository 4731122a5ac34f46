"""Forms of products that transform their A operand as it is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log
from typing import Any

from . import figures, of_gpu, table

FORMS = ("usual", "pairs", "three", "deep")


def fastest(kernels: Any) -> float | None:
    """The least time, None where no kernel was timed."""
    return min((float(each["us"]) for each in kernels if each["us"] is not None), default=None)


def mean(values: Sequence[float]) -> str:
    """Geometric."""
    return f"{exp(sum(map(log, values)) / len(values)):.2f}"


@figures("prologue_forms")
def prologue_forms(data: Any) -> dict[str, str]:
    """A row a shape; and how many times as long a form takes as the usual one, where both are there."""
    rows = []
    over: dict[str, list[float]] = {form: [] for form in (*FORMS[1:], "product")}
    gains = []
    for shape, found in data["shapes"].items():
        times = {form: fastest(found[form]) for form in (*FORMS, "product")}
        usual = times["usual"]
        assert usual is not None  # every shape has one
        for form, ratios in over.items():
            us = times[form]
            if us is not None:
                ratios.append(usual / us if form == "product" else us / usual)
        gains.append(usual / min(us for form, us in times.items() if us is not None and form != "product"))
        rows.append([shape, *("-" if us is None else f"{us:.1f}" for us in times.values())])
    head = [f"us, fp16, fp32 accumulation, batch {data['batch']}, {of_gpu(data)}", *FORMS, "product alone"]
    kernels = [each for found in data["shapes"].values() for form in (*FORMS, "product") for each in found[form]]
    return {
        "prologues": table(head, rows), "prologues.tried": str(len(kernels)), "prologues.wrong": str(data["wrong"]),
        "prologues.best": mean(gains),
        **{f"prologues.{form}": mean(ratios) for form, ratios in over.items()},
        **{
            f"prologues.{form}.faster": f"{sum(ratio < 1 for ratio in over[form])} of {len(over[form])}"
            for form in FORMS[1:]
        },
    }  # fmt: skip
