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
        f"{truth['gpus']} GPU{'s' if truth['gpus'] > 1 else ''}; "
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
    one, two = data["one_gpu"], data.get("two_gpus")
    longest = max(run["measuring"]["longest"] for run in (one, two) if run is not None)

    def pair(what: str, first: Any, second: Any, why: str, *parts: str) -> list[str]:
        return [what, *(_took(run, parts) for run in (first, second)), why]

    rows = [
        pair("GPUs: candidates measured", one, two,
             f"the longest problem takes {duration(longest)}; each GPU's last one ends by itself", "measure"),
        pair("GPUs: the whole engine played", one, two, "one engine is one task", "engine"),
        pair("GPUs: planned and chosen", one, two, "one process", "plan", "select"),
    ]  # fmt: skip
    slow, fast = data.get("one_worker"), data.get("two_workers")
    if slow is not None and fast is not None:
        each = "one candidate" if slow["candidates"] == 1 else f"{slow['candidates']} candidates"
        what = f"workers: compiled ({each} a problem; a worker has {_cores(slow)})"
        why = f"the longest source takes {duration(fast['compiling']['longest'])}"
        rows.append(pair(what, slow, fast, why, "compile"))
    cold = data[data["cold"]]
    gpus = len(cold["measuring"]["seconds"])
    said = (
        f"From nothing, with {data['memory']['cores']} cores and {gpus} GPU{'s' if gpus > 1 else ''}, it takes "
        f"{duration(cold['wall_seconds'])}: {duration(cold['seconds']['compile'])} of it compiles."
    )
    if both := data.get("winners_of_both"):
        said += (
            f" Of {both['problems']} problems {both['same']} have the same kernel with one GPU and with two; "
            f"of the others none is slower by more than {percent(both['largest_loss'])}."
        )
    return {"scaling": table(_ONE_AND_TWO, rows) + "\n\n" + said}


def _took(run: Any | None, parts: tuple[str, ...]) -> str:
    return "not run" if run is None else duration(sum(run["seconds"][part] for part in parts))


def _cores(run: Any) -> str:
    return f"{run['threads']} core{'s' if run['threads'] > 1 else ''} of {run['device'].rpartition(',')[0]}"


@figures("shared_kills")
def kills(data: Any) -> dict[str, str]:
    rows = [
        [name, str(found["kills"]), str(found["during_a_build"]), str(len(found["wrong"]))]
        for name, found in data["subjects"].items()
    ]
    return {"shared_kills": table(["what is built", "kills", "during a build", "wrong afterwards"], rows)}
