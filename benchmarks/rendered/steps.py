"""What each step gains."""

from __future__ import annotations

from typing import Any

from . import figures, percent, table

_BATCHES = ("32", "1")
_SHOWN = ("stem", "slices", "resident", "pairs", "overlap", "recording", "none")


@figures("steps")
def steps(data: Any) -> dict[str, str]:
    found = {batch: {step["step"]: step for step in data["batches"][batch]["steps"]} for batch in _BATCHES}
    head = ["what ResNet-50 takes longer without"]
    head += [f"batch {batch}: {found[batch]['all']['engine_us']:.0f} us with all" for batch in _BATCHES]
    rows = [
        [found["32"][name]["without"], *(f"{found[batch][name]['gain_us']:.0f} us" for batch in _BATCHES)]
        for name in _SHOWN
    ]
    equal = max(abs(found[batch]["winners"]["gain_us"]) for batch in _BATCHES)
    layers = {batch: data["batches"][batch]["layers"] for batch in _BATCHES}
    return {
        "steps": table(head, rows),
        "steps.equal": f"{equal:.1f} us",
        "steps.alone": " and ".join(f"{layers[batch]['alone_us']:.0f}" for batch in _BATCHES),
        "steps.bound": " and ".join(f"{layers[batch]['bound_us']:.0f}" for batch in _BATCHES),
        "steps.launch": f"{found['1']['overlap']['gain_us'] / (found['1']['overlap']['launches'] - 1):.1f} us",
    }


@figures("versions")
def versions(data: Any) -> dict[str, str]:
    names = {"weights_early": "weights early", "weights_and_launch_early": "weights and the next launch early",
             "weights_stay_in_cache": "the same, and weights stay in the cache"}  # fmt: skip

    def saved(batch: Any, name: str) -> str:
        over = batch["versions"][name]["over_first"]
        low, high = 1 - over["high"], 1 - over["low"]
        return f"{percent(1 - over['median'], 1)} ({percent(low, 1)} to {percent(high, 1)})"

    head = ["part of ResNet-50's time that is saved, and its quartiles"]
    head += [f"batch {batch['batch']}" for batch in data["batches"]]
    return {
        "overlap": table(head, [[text, *(saved(b, name) for b in data["batches"])] for name, text in names.items()])
    }
