"""Steps of the locks by kind, beside their bounds."""

from __future__ import annotations

from typing import Any

from . import figures, kind_words, percent, table


@figures("kinds")
def kinds(data: Any) -> dict[str, str]:
    """A row an engine; and a row a kind of all of them together, what takes longest first."""
    engines = [
        [name, f"{each['us']:.0f}", percent(each["bound_us"] / each["us"]),
         _slow(each) or "none",
         f"{each['measured']} of {each['steps']}"]
        for name, each in data["engines"].items()
    ]  # fmt: skip
    batch = data["batch"]
    head = [
        f"batch {batch}, fp16, fp32 accumulation, H200", "us, all steps alone", "of the bound",
        f"over {percent(data['part'])} of the time and under {percent(data['reached'])} of the bound", "steps measured",
    ]  # fmt: skip
    total = sum(row["us"] for row in data["kinds"])
    together = [
        [kind_words(row["kind"]), str(row["steps"]), percent(row["us"] / total, 1), percent(row["share"])]
        for row in data["kinds"]
        if row["us"] > 0.002 * total
    ]
    bounds = f"{data['bandwidth'] / 1e12:g} TB/s, {data['rate'] / 1e12:g} TFLOP/s, {1e6 * data['launch']:g} us"
    encoders = [each for each in data["engines"].values() if each["encoder"]]
    return {
        "kinds.engines": table(head, engines),
        "kinds": table(["kind of step", "steps", "of the time of all engines", "of the bound"], together),
        "kinds.bounds": bounds,
        "kinds.part": percent(data["part"]),
        "kinds.encoders": str(len(encoders)),
        "kinds.under_half": str(sum(len(each["under_half"]) for each in encoders)),
    }


def _slow(engine: Any) -> str:
    """Kinds that take long and stay far from their bound, with both parts."""
    rows = [row for row in engine["kinds"] if row["kind"] in engine["slow_kinds"]]
    return ", ".join(f"{kind_words(row['kind'])} {percent(row['part'])} at {percent(row['share'])}" for row in rows)
