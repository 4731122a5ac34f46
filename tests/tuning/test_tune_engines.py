"""The second stage of a tuning, with a driver that is a script: when engines are played, and what becomes of it."""

from __future__ import annotations

import json
import re
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from test_tune_measure import Workshop, project, workshop
from tune_projects import Project, by_prediction

from bolt_build.build.planning.preparing import Preparer
from bolt_build.errors import BoltError, ExitCode
from bolt_build.lockfile.reading import load_lock
from bolt_build.report.diagnostics import render
from bolt_build.report.tuning import summary_text, tuning_data
from bolt_build.tuning.exchange.bundle import read_bundle
from bolt_build.tuning.exchange.results import read_results, results_text
from bolt_build.tuning.outcome import TuneResult
from bolt_build.tuning.records.kernel_record import Status
from bolt_build.tuning.trials.engine_table import engine_tables

__all__ = ["project", "workshop"]  # fixtures


def conv_kernels(project: Project) -> list[str]:
    """The candidates of the convolution: its driver measures them 5, 6, ... us, and the second faster in the engine."""
    (conv,) = [p for p in project.plan().problems.problems if p.problem.op.kind == "conv"]
    return [str(trial.candidate) for trial in conv.trials]


def calls(project: Project) -> list[str]:
    """The driver's runs by their stage, of those for kernels the first of each tuning."""
    path = project.path / "generated" / "tiny" / "a100.tuning" / "calls"
    return [
        line.partition("--stage ")[2].split()[0]
        for line in path.read_text().splitlines()
        if not re.search(r"--problems [1-9]", line)
    ]


def records(project: Project) -> sqlite3.Connection:
    return sqlite3.connect(project.path / "cache" / "tuning" / "records.sqlite")


def codes(result: TuneResult) -> list[str]:
    return [each.code for each in result.diagnostics]


def test_the_lock_has_what_the_engine_was_faster_with_and_builds_take_it(project: Project, workshop: Workshop) -> None:
    result = project.tune()
    assert (result.exit_code, result.played_now, codes(result)) == (ExitCode.OK, 1, [])
    assert calls(project) == ["kernels", "engines"]
    assert len(workshop.asked) == 1
    part = load_lock(project.lock).target("a100")
    assert part is not None
    (engine,) = part.engines
    ((problem, kernel, alone),) = engine.swaps
    assert (str(kernel), alone) == (conv_kernels(project)[1], 6.0)
    assert (engine.before, engine.after, engine.gain, engine.tried) == (100.0, 90.0, 0.1, 1)
    planner = Preparer(project.recipe, project.build.directory(project.recipe), lambda text: None)
    planned = planner.plan_engine(project.recipe.targets[0])
    (step,) = [step for step in planned.plan.plans[0].steps if step.problem.digest == problem]
    assert step.candidate == kernel
    assert engine_tables(planned)[0].digest == engine.table
    assert engine.in_place_of is None
    assert all(used.measured for used in planned.used)


def test_the_records_alone_give_the_same_lock(project: Project, workshop: Workshop) -> None:
    project.tune()
    text = project.lock.read_bytes()
    project.lock.unlink()
    result = project.tune(from_records=True)
    assert (result.exit_code, result.played_now, len(result.engines)) == (ExitCode.OK, 0, 1)
    assert project.lock.read_bytes() == text


def test_an_engine_is_played_once(project: Project, workshop: Workshop) -> None:
    project.tune()
    again = project.tune()
    assert (again.played_now, again.lock_changed, calls(project)) == (0, False, ["kernels", "engines"])
    assert len(again.engines) == 1
    project.tune(remeasure=True)
    assert calls(project) == ["kernels", "engines"] * 2


@pytest.mark.parametrize(
    "change",
    [
        ("complete=True", "complete=False"),
        ('base=base, chosen=dict(base, **dict([(problem, second)])), **compared)',
         'base=base, chosen=base, **dict(compared, status="crashed", message="no", first=None, second=None))'),
    ],
    ids=["cut short", "failed"],
)  # fmt: skip
def test_an_engine_that_was_not_played_to_its_end_is_played_again(
    project: Project, workshop: Workshop, change: tuple[str, str]
) -> None:
    whole = workshop.engines
    workshop.engines = whole.replace(*change)
    assert workshop.engines != whole
    first = project.tune()
    cut_short = change[0] == "complete=True"
    assert (first.played_now, len(first.engines)) == (1, int(cut_short))
    assert codes(first) == ([] if cut_short else ["engine-failed"])
    if cut_short:
        assert summary_text(first).splitlines()[0] == (
            "whole engine of batch 1: 100.0 us with the kernels that are fastest alone, 90.0 us (-10.00%) with 1 of "
            "them replaced (1 swap tried; not all were tried: the time was over)"
        )
    workshop.engines = whole
    again = project.tune()
    assert (again.played_now, len(again.engines), codes(again)) == (1, 1, [])
    assert "the time was over" not in summary_text(again)
    assert project.tune().played_now == 0


def test_a_plan_alone_has_quartiles_of_its_gain_too(project: Project, workshop: Workshop) -> None:
    result = project.tune()
    (engine,) = result.engines
    assert engine.record.gain is not None
    other = replace(engine.lineup.table, steps=engine.lineup.table.steps[:1])
    for found, low, high in (
        (engine, 0.09, 0.11),
        (replace(engine, table=other, swaps=()), 0.09, 0.11),
        (replace(engine, swaps=()), None, None),
    ):
        (data,) = tuning_data(replace(result, engines=(found,)))["engines"]
        assert (data["low"], data["high"]) == (low, high)


@pytest.mark.large
def test_kernels_that_are_known_are_compiled_again_for_the_engine_alone(project: Project, workshop: Workshop) -> None:
    project.tune()
    with records(project) as connection:
        connection.execute("DELETE FROM engines")
    connection.close()
    result = project.tune()
    assert (result.measured_now, result.played_now, calls(project)) == (0, 1, ["kernels", "engines", "engines"])
    needed = {problem for engine in result.engines for problem in engine.lineup.problems}
    assert len(workshop.asked) == 2
    assert len(workshop.asked[1]) == len(needed) < len(workshop.asked[0])


def test_a_recipe_may_do_without(project: Project, workshop: Workshop) -> None:
    project.tune()
    project.write(("candidates: 3", "candidates: 3, engine: false"))
    result = project.tune(remeasure=True)
    assert (result.played_now, result.engines, result.lock_changed) == (0, (), True)
    assert calls(project)[2:] == ["kernels"]
    assert project.lock.read_text().splitlines()[2] == "lock: 3"
    assert "engines:" not in project.lock.read_text()


def test_a_player_that_fails_costs_nothing_of_what_was_measured(project: Project, workshop: Workshop) -> None:
    workshop.engines = 'sys.exit("no engine")'
    result = project.tune()
    assert (result.exit_code, result.engines, result.lock_changed) == (ExitCode.OK, (), True)
    assert codes(result) == ["incomplete-results", "measuring-failed"]
    assert render(result.diagnostics[1:], color=False) == (
        "warning[measuring-failed]: the driver ended with status 1: no engine\n"
    )
    assert len(load_lock(project.lock).targets[0].entries) == len(project.plan().problems.problems)


def test_what_a_player_found_before_it_failed_is_kept(project: Project, workshop: Workshop) -> None:
    workshop.engines += '    sys.exit("too late")\n'
    result = project.tune()
    assert (result.played_now, codes(result), len(result.engines)) == (1, ["measuring-failed"], 1)


def test_an_interrupted_player_leaves_no_lock_and_keeps_the_records(project: Project, workshop: Workshop) -> None:
    workshop.engines = "import os, signal; os.kill(os.getppid(), signal.SIGINT); sys.stdin.read(); sys.exit(130)"
    result = project.tune()
    assert (result.exit_code, result.lock, project.lock.exists()) == (ExitCode.INTERRUPTED, None, False)
    assert project.tune(from_records=True).exit_code is ExitCode.OK


def test_kernels_that_do_not_compile_for_the_engine_are_told_of(project: Project, workshop: Workshop) -> None:
    project.tune()
    with records(project) as connection:
        connection.execute("DELETE FROM engines")
    connection.close()
    workshop.refuses = True
    result = project.tune()
    assert (result.exit_code, result.engines) == (ExitCode.OK, ())
    assert render(result.diagnostics, color=False) == (
        "warning[engine-not-played]: the whole engine of batch 1 is not measured: what measures it does not compile\n"
    )


def test_an_engine_with_a_problem_that_nothing_is_known_of_is_not_played(project: Project, workshop: Workshop) -> None:
    project.tune()
    with records(project) as connection:
        (conv,) = [p for p in project.plan().problems.problems if p.problem.op.kind == "conv"]
        connection.execute("DELETE FROM records WHERE problem = ?", (conv.problem.digest,))
    connection.close()
    result = project.tune(from_records=True)
    assert result.engines == ()
    workshop.refuses = True
    result = project.tune()
    assert "engine-not-played" not in codes(result)


@pytest.mark.large
def test_winners_of_another_day_are_another_engine(project: Project, workshop: Workshop) -> None:
    """What an engine gained holds for the kernels that it began with."""
    project.tune()
    bundle = read_bundle(project.path / "generated" / "tiny" / "a100.tuning" / "bundle.json")
    result = project.tune(results=project.results(bundle, lambda p, t: 50.0 - p.trials.index(t)))
    assert (result.exit_code, result.engines) == (ExitCode.OK, ())
    assert "engines:" not in project.lock.read_text()


def played_results(project: Project, workshop: Workshop) -> Path:
    """What a bundle's `run` would have written: both stages in one file."""
    project.tune()
    folder = project.path / "generated" / "tiny" / "a100.tuning"
    kernels, engines = read_results(folder / "results.jsonl"), read_results(folder / "engines.jsonl")
    whole = replace(kernels, swaps=engines.swaps, engines=engines.engines)
    path = project.path / "results.jsonl"
    path.write_text(results_text(whole))
    (project.path / "cache" / "tuning" / "records.sqlite").unlink()
    project.lock.unlink()
    return path


def test_a_bundle_brings_both_stages(project: Project, workshop: Workshop) -> None:
    path = played_results(project, workshop)
    result = project.tune(results=path)
    assert (result.exit_code, result.played_now, codes(result)) == (ExitCode.OK, 1, [])
    (engine,) = load_lock(project.lock).targets[0].engines
    assert str(engine.swaps[0][1]) == conv_kernels(project)[1]
    text = project.lock.read_bytes()
    project.tune(from_records=True)
    assert project.lock.read_bytes() == text


def test_an_engine_that_the_measurements_do_not_give_is_told_of(project: Project, workshop: Workshop) -> None:
    path = played_results(project, workshop)
    path.write_text(path.read_text().replace(read_results(path).engines[0].engine, "ab" * 32))
    result = project.tune(results=path)
    assert (result.exit_code, result.engines) == (ExitCode.OK, ())
    assert render(result.diagnostics, color=False) == (
        "note[other-engine]: the engine of batch 1 that was played is not the one that the measurements give\n"
        "  hint: tune again where the GPU is, or export another bundle: it holds the engine as it is chosen now\n"
    )


def changed(path: Path, kind: str, **changes: object) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines() if not re.search(r"--problems [1-9]", line)]
    path.write_text("".join(json.dumps(line | changes if line["kind"] == kind else line) + "\n" for line in lines))


def test_results_that_name_what_the_bundle_does_not_hold_are_refused(project: Project, workshop: Workshop) -> None:
    path = played_results(project, workshop)
    changed(path, "swap", candidate="cafe" * 16)
    with pytest.raises(BoltError) as caught:
        project.tune(results=path)
    assert caught.value.diagnostics[0].message == (
        f"{path} has a result of the candidate cafecafecafe, which its bundle does not hold"
    )
    assert not project.lock.exists()


def test_results_whose_swaps_are_not_all_there_are_refused(project: Project, workshop: Workshop) -> None:
    path = played_results(project, workshop)
    changed(path, "engine", tried=2)
    with pytest.raises(BoltError) as caught:
        project.tune(results=path)
    assert caught.value.diagnostics[0].message == f"{path} states 2 swaps in the engine of batch 1, and holds 1"


def test_an_engine_that_crashed_is_told_of(project: Project, workshop: Workshop) -> None:
    path = played_results(project, workshop)
    base = dict(read_results(path).engines[0].base)
    changed(path, "engine", status="crashed", message="the engine: no", first=None, second=None, chosen=base)
    result = project.tune(results=path)
    assert (result.exit_code, result.engines) == (ExitCode.OK, ())
    assert render(result.diagnostics[:1], color=False) == (
        f"warning[engine-failed]: {path}: the whole engine of batch 1: crashed: the engine: no\n"
    )


def test_results_of_before_have_no_engine(project: Project) -> None:
    result = project.imported(by_prediction)
    assert (result.exit_code, result.engines, codes(result)) == (ExitCode.OK, (), [])


def test_what_is_told(project: Project, workshop: Workshop) -> None:
    result = project.tune()
    first, second = conv_kernels(project)[:2]
    lines = summary_text(result).splitlines()
    assert lines[0] == (
        "whole engine of batch 1: 100.0 us with the kernels that are fastest alone, 90.0 us (-10.00%) with 1 of them "
        "replaced (1 swap tried)"
    )
    assert lines[1] == f"  relu: {second} (6.00 us alone) for {first} (5.00 us alone)"
    assert "played " in lines[-1]
    (data,) = tuning_data(result)["engines"]
    assert (data["before"], data["after"], data["gain"]) == (100.0, 90.0, 0.1)
    assert [(each["candidate"], each["kept"], each["status"]) for each in data["tried"]] == [
        (second, True, Status.OK.value)
    ]
