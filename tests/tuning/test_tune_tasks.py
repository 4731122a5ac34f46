"""Tasks of a tuning as data: units are compiled as engines compile them, and only links stand behind what may fail."""

from __future__ import annotations

from pathlib import Path

from cuda_tasks import TOOLS, UNIT, graph, named
from planner_fakes import recipe

from bolt_build.build.files import FileStamp
from bolt_build.build.planning.context import BuildContext
from bolt_build.build.planning.model_file import ModelFile
from bolt_build.build.planning.plan_file import EngineSummary
from bolt_build.build.staleness.receipt import task_key
from bolt_build.families import load
from bolt_build.families.base import KernelUnit
from bolt_build.targets import target_named
from bolt_build.tuning.compile.glue import GlueSource
from bolt_build.tuning.compile.tasks import driver_graph, kernels_graph, linked_graph, places, task_of

UNITS = (KernelUnit("k_0123.cu", "kernel", 3700), KernelUnit("k_4567.cu", "kernel", 900))
GLUE = (
    GlueSource("t_89ab.cu", "calls", (), "calls of 1 problem, cutlass"),
    GlueSource("t_cdef.cu", "calls", (), "calls of 12 problems, portable"),
)
TABLE = GlueSource("candidates.cpp", "table")


def context(target: str = "h200") -> BuildContext:
    row = target_named(target)
    model = ModelFile((FileStamp("/m.onnx", "1" * 64, 1, 0, 0),))
    summary = EngineSummary("net", (), (), (1,), "", 0, 0, 0)
    return BuildContext(recipe(), row, load(row), TOOLS, summary, model, verified=False)


def test_a_unit_has_the_key_of_the_engines_that_need_it() -> None:
    """So that a build takes every winner's object from the cache."""
    inputs = {"src/k_0123.cu": "2" * 64}
    engine = task_key(named(graph("net", "h200", (UNIT,)), "compile-k_0123"), inputs)
    tuning = task_key(named(kernels_graph(context(), UNITS, GLUE), "compile-k_0123"), inputs)
    assert tuning == engine
    linked = task_key(named(linked_graph(context(), UNITS, GLUE, TABLE), "compile-k_0123"), inputs)
    assert linked == engine


def test_the_first_pass_has_nothing_behind_what_may_not_compile() -> None:
    tasks = kernels_graph(context(), UNITS, GLUE)
    may_fail = {named(tasks, task_of(source.name)).outputs[0] for source in (*UNITS, *GLUE)}
    assert not any(may_fail.intersection(task.inputs) for task in tasks.tasks)
    assert named(tasks, "compile-k_0123").memory_mb == 3700


def test_the_library_is_linked_from_all_kernels_their_callers_and_the_table() -> None:
    link = named(linked_graph(context(), UNITS, GLUE, TABLE), "link-candidates")
    names = ("k_0123", "k_4567", "t_89ab", "t_cdef", "candidates")
    assert link.inputs == tuple(f"build/objects/{name}.o" for name in names)
    assert link.outputs == ("candidates.so",)
    assert {"-shared", "-lcudart_static"} <= set(link.argv)


def test_the_driver_is_a_program_of_its_own() -> None:
    tasks = driver_graph(context())
    link = named(tasks, "link-run")
    assert link.outputs == ("run",)
    assert "-shared" not in link.argv
    assert set(link.inputs) == {task.outputs[0] for task in tasks.tasks if task.rule == "compile"}


def test_no_source_is_called_by_a_digest() -> None:
    labels = [task.label for task in kernels_graph(context(), (), GLUE).tasks]
    assert labels[:2] == ["compile calls of 1 problem, cutlass", "compile calls of 12 problems, portable"]


def test_callers_see_the_abi_and_kernels_do_not() -> None:
    tasks = kernels_graph(context(), UNITS, GLUE)
    assert "-I${tuning}/include" in named(tasks, "compile-t_89ab").argv
    assert "-I${tuning}/include" not in named(tasks, "compile-k_0123").argv
    assert (Path(dict(places())["tuning"]) / "include" / "bolt_tuning" / "candidates.h").is_file()


def test_names_of_tasks_are_unique() -> None:
    tasks = linked_graph(context(), UNITS, GLUE, TABLE).tasks
    assert len({task.name for task in tasks}) == len(tasks)
    outputs = [output for task in tasks for output in task.outputs]
    assert len(set(outputs)) == len(outputs)
