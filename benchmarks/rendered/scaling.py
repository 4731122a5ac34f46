"""How tuning and builds scale, and what kills of their parts cost."""

from __future__ import annotations

from typing import Any

from . import duration, figures, percent, table

_ONE_AND_TWO = ("", "one", "two", "what does not scale")
_SIMULATED = ("compilers at once", "GPUs", "a tuning takes", "what it waits for longest")
_NOT_YET = "not run yet on a machine with two GPUs"


@figures("simulated_scaling")
def simulated(data: Any) -> dict[str, str]:
    build = data["build"]
    truth = build["as_recorded"]
    rows = [
        [str(row["workers"]), duration(row["seconds"]), f"{row['longest_stage']}: {row['limit']}"]
        for row in build["simulated"]
    ]
    return {
        "simulated.build": table(["compilers at once", "a build takes", "what it waits for"], rows),
        "simulated.build.least": duration(build["critical_path"]["seconds"]),
        "simulated.build.truth": f"{duration(truth['simulated'])} on {truth['workers']} cores, where the build took "
        f"{duration(truth['seconds'])}",
        "simulated.tuning": _tuning(data["tuning"])
        if "tuning" in data
        else table(_SIMULATED, [[_NOT_YET, "-", "-", "-"]]),
    }


def _tuning(data: Any) -> str:
    truth = data["as_recorded"]
    rows = [
        [str(row["workers"]), str(row["gpus"]), duration(row["seconds"]), f"{row['longest_stage']}: {row['limit']}"]
        for row in data["simulated"]
        if row["workers"] in (1, 16, 64)
    ]
    said = (
        f"The simulation gives {duration(truth['simulated'])} for {truth['workers']} compilers and "
        f"{truth['gpus']} GPUs; "
        f"in truth the tuning took {duration(truth['seconds'])}. No number of either takes less than {_least(data)}."
    )
    return said + "\n\n" + table(_SIMULATED, rows)


def _least(data: Any) -> str:
    """The critical path, what takes longest of it first."""
    parts = {name: seconds for name, seconds in data["critical_path"].items() if name != "seconds"}
    ordered = sorted(parts.items(), key=lambda part: -part[1])[:4]
    words = ", ".join(f"{name} {duration(seconds)}" for name, seconds in ordered)
    return f"{duration(data['critical_path']['seconds'])} ({words})"


@figures("scaling", without={"scaling": table(_ONE_AND_TWO, [[_NOT_YET, "-", "-", "-"]])})
def scaling(data: Any) -> dict[str, str]:
    one, two = data["one_gpu"], data["two_gpus"]
    slow, fast = data["one_worker"], data["two_workers"]
    longest = max(one["measuring"]["longest"], two["measuring"]["longest"])
    rows = [
        ["candidates measured", duration(one["seconds"]["measure"]), duration(two["seconds"]["measure"]),
         f"the longest problem takes {duration(longest)}; each GPU's last one ends by itself"],
        ["the whole engine played", duration(one["seconds"]["engine"]), duration(two["seconds"]["engine"]),
         "one engine is one task"],
        [f"compiled by workers of {slow['threads']} cores ({slow['candidates']} candidates a problem)",
         duration(slow["seconds"]["compile"]), duration(fast["seconds"]["compile"]),
         f"the longest source takes {duration(fast['compiling']['longest'])}"],
        ["planned and chosen", duration(one["seconds"]["plan"] + one["seconds"]["select"]),
         duration(two["seconds"]["plan"] + two["seconds"]["select"]), "one process"],
    ]  # fmt: skip
    both = data["winners_of_both"]
    said = (
        f"From nothing, with all {data['memory']['cores']} cores and two GPUs, it takes "
        f"{duration(two['wall_seconds'])}. Of {both['problems']} problems {both['same']} have the same kernel with one "
        f"GPU and with two; of the others none is slower by more than {percent(both['largest_loss'])}."
    )
    return {"scaling": table(_ONE_AND_TWO, rows) + "\n\n" + said}


@figures("shared_kills")
def kills(data: Any) -> dict[str, str]:
    rows = [
        [name, str(found["kills"]), str(found["during_a_build"]), str(len(found["wrong"]))]
        for name, found in data["subjects"].items()
    ]
    return {"shared_kills": table(["what is built", "kills", "during a build", "wrong afterwards"], rows)}
