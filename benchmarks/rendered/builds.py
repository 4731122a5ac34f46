"""How long builds take, and the whole test command."""

from __future__ import annotations

from typing import Any

from . import duration, figures, table


@figures("build_times", "build_times_locked", "build_times_all_targets", "build_times_emulated")
def builds(first: Any, locked: Any, every: Any, emulated: Any) -> dict[str, str]:
    comment, samples = first["change: comment"], first["change: verify.samples"]
    nothing = "nothing runs" if not comment["tasks"] else f"{len(comment['tasks'])} tasks"
    rows = [
        ["the first command above: clone, install, build, verify", duration(first["first_build"]["total"]["wall_s"])],
        ["again at once: nothing to do", duration(first["null_build"]["median_wall_s"])],
        ["a comment changed: " + nothing, duration(comment["build"]["wall_s"])],
        ["`verify.samples` changed: verification alone", duration(samples["build"]["wall_s"])],
        ["the H200's engines for batch 1, 32 and 128 with the kernels of the lock",
         duration(locked["first_build"]["total"]["wall_s"])],
        ["every target of the recipe, host and H200", duration(every["first_build"]["total"]["wall_s"])],
        ["ResNet-50 at batch 1 on the emulated GPU, built and verified",
         duration(emulated["first_build"]["total"]["wall_s"])],
    ]  # fmt: skip
    head = [f"on 2 cores of an {first['device'].removesuffix(', 2 cores')}, nothing cached", "wall"]
    return {
        "builds": table(head, rows),
        "builds.short": table(head, rows[:5]),
        "builds.emulated": duration(emulated["first_build"]["total"]["wall_s"]),
    }


@figures("first_engine")
def first_engine(data: Any) -> dict[str, str]:
    rows = [
        [f"`{each['command']}`", duration(each["wall_s"]), duration(each["cpu_s"])]
        for each in data["commands"].values()
    ]
    rows.append(["all three", duration(data["total"]["wall_s"]), duration(data["total"]["cpu_s"])])
    load = data["load_average_at_end"][0]
    return {
        "first_engine": table([f"on {data['device']}", "wall", "CPU"], rows),
        "first_engine.load": f"{load:.1f} processes",
        "first_engine.all": duration(data["total"]["wall_s"]),
    }


@figures("null_builds")
def null_builds(data: Any) -> dict[str, str]:
    return {
        "null.wall": duration(data["first_recipe"]["median_wall_s"]),
        "null.all": f"{data['recipes']} recipes at once {duration(data['all_recipes']['median_wall_s'])}",
        "null.cpu": duration(data["first_recipe"]["median_cpu_s"]),
        "null.scons": duration(data["importing_scons"]["median_cpu_s"]),
    }


@figures("ci_run")
def test_command(data: Any) -> dict[str, str]:
    return {"ci.wall": f"{data['wall_s'] / 60:.0f} minutes", "ci.passed": str(data["passed"])}


@figures("interruptions")
def interruptions(data: Any) -> dict[str, str]:
    return {
        "interruptions": f"{data['interruptions']} moments",
        "interruptions.wrong": f"{data['wrong']} ended wrong",
        "interruptions.repeated": f"{data['compilations_repeated']} of {data['compilations_finished_before']}",
    }


@figures("quick_loop")
def quick_loop(data: Any) -> dict[str, str]:
    return {"quick.cpu": duration(data["cpu_s"]), "quick.passed": f"{data['passed']:,}"}
