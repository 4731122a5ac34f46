"""The driver's second stage without a GPU: which swaps are tried, which are kept, and what a player's faults cost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_fakes import Act, Measurement, alive, wait_until

from bolt_build.tuning.exchange.engine_results import EngineRow, SwapRow
from bolt_build.tuning.records.kernel_record import Status

Medians = Sequence[Sequence[float | None]]
"""Of each problem, microseconds of each candidate as engines.tsv has them."""
Play = Callable[..., Measurement]


def table(
    medians: Medians,
    steps: Sequence[int],
    families: Sequence[str] = (),
    settings: Sequence[int] = (),
    plans: Sequence[Sequence[int]] = (),
) -> str:
    """engines.tsv with one engine of batch 32, a step for each of `steps`, which are problems; `plans` are others."""
    lines = ["bolt-engines\t1"]
    for problem in dict.fromkeys((*steps, *(problem for plan in plans for problem in plan))):
        lines.append(f"problem\tp{problem}")
        for trial, median in enumerate(medians[problem]):
            family = families[trial] if families else "cutlass"
            count = settings[trial] if settings else 0
            lines.append(f"trial\tc{problem}.{trial}\t{family}\t{count}\t{'-' if median is None else median}")
    lines.append("engine\tE\t32")
    lines += [f"step\tconv{at}\tp{problem}\t\t" for at, problem in enumerate(steps)]
    for number, plan in enumerate(plans, 1):
        lines.append(f"plan\tE{number}")
        lines += [f"step\tconv{at}\tp{problem}\t\t" for at, problem in enumerate(plan)]
    return "\n".join(lines) + "\n"


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    made: list[Measurement] = []

    def one(
        medians: Medians,
        acts: dict[str, Act],
        steps: Sequence[int] = (),
        *,
        words: Sequence[str] = (),
        **how: Sequence[object],
    ) -> Measurement:
        measurement = Measurement(tmp_path / str(len(made)), [[-1] * len(each) for each in medians], {}, {"0": acts})
        made.append(measurement)
        text = table(medians, steps or range(len(medians)), **how)  # type: ignore[arg-type]
        (measurement.folder / "engines.tsv").write_text(text)
        engines = ("--stage", "engines", "--engines", str(measurement.folder / "engines.tsv"))
        done = measurement.run(*engines, *words)
        assert done.returncode == 0, done.stderr
        measurement.said = done.stderr.splitlines()
        return measurement

    yield one
    for measurement in made:
        measurement.remove_locks()


def engine(measurement: Measurement) -> EngineRow:
    (row,) = measurement.results.engines
    assert measurement.results.complete
    return row


def chosen(measurement: Measurement) -> list[str]:
    return [candidate for _, candidate in engine(measurement).chosen]


def swap(measurement: Measurement, candidate: str) -> SwapRow:
    (row,) = [row for row in measurement.results.swaps if row.candidate == candidate]
    return row


def compared(measurement: Measurement) -> list[str]:
    """What was asked of the player; the first plan goes without saying."""
    lines = [line.removeprefix("compare 0 ") for line in measurement.log if line.startswith("compare")]
    return [" ".join(choice.removeprefix("0:") for choice in line.split()) for line in lines]


def test_what_is_faster_in_the_engine_takes_the_place_of_what_is_fastest_alone(play: Play) -> None:
    found = play([[10.0, 10.2], [20.0, 20.4]], {"0.1": 90.0, "1.1": 101.0})
    row = engine(found)
    assert (row.engine, row.batch, row.status, row.complete, row.tried) == ("E", 32, Status.OK, True, 2)
    assert row.base == (("p0", "c0.0"), ("p1", "c1.0"))
    assert row.chosen == (("p0", "c0.1"), ("p1", "c1.0"))
    assert row.first is not None
    assert row.second is not None
    assert (row.first.median, row.second.median) == (200.0, 190.0)
    assert row.gain is not None
    assert (row.gain.median, row.gain.low, row.gain.high, row.gain.pairs) == (0.05, 0.049, 0.051, 12)
    kept, not_kept = swap(found, "c0.1"), swap(found, "c1.1")
    assert (kept.kept, not_kept.kept) == (True, False)
    assert (not_kept.first, not_kept.second) != (None, None)
    assert found.said == [
        f"measuring 1 engine on 1 GPU (NVIDIA Test), results in {found.folder}/results.jsonl",
        "playing 1 engine with the fastest candidates, and with others in their place",
        "GPU 0      kept, -5.00%: kernel 1: conv 0",
        (
            "GPU 0  engine of batch 32: 200.00 us with the fastest alone, 190.00 us (-5.00%) with 1 of them replaced; "
            "2 tried"
        ),
        found.said[-1],
    ]
    assert found.said[-1].startswith("1 engine with 2 swaps in ")


def test_the_noise_is_measured_first_and_the_whole_last(play: Play) -> None:
    found = play([[10.0, 10.2], [20.0, 20.4]], {"0.1": 90.0, "1.1": 101.0})
    # The second problem takes longer; what looks good is measured once more; the choice is held against the first.
    assert compared(found) == ["0,0 0,0", "0,0 0,1", "0,0 1,0", "0,0 1,0", "0,0 1,0"]


def test_problems_are_tried_in_the_order_of_their_time_in_the_engine(play: Play) -> None:
    found = play([[10.0, 10.1], [20.0, 20.1]], {}, [0, 1, 0, 0])
    assert compared(found) == ["0,0 0,0", "0,0 1,0", "0,0 0,1"]


def test_all_steps_of_a_problem_are_swapped_together_and_later_swaps_stand_on_earlier_ones(play: Play) -> None:
    found = play([[10.0, 10.1], [5.0, 5.1]], {"0.1": 80.0, "1.1": 90.0})
    assert compared(found) == ["0,0 0,0", "0,0 1,0", "0,0 1,0", "1,0 1,1", "1,0 1,1", "0,0 1,1"]
    assert chosen(found) == ["c0.1", "c1.1"]


@pytest.mark.parametrize(("noise", "kept"), [(0.001, True), (0.012, False)])
def test_a_swap_must_save_more_than_the_noise(play: Play, noise: float, kept: bool) -> None:
    found = play([[10.0, 10.1]], {"0.1": 99.0, "noise": noise})
    assert chosen(found) == ["c0.1" if kept else "c0.0"]
    # Twice the standard error of the median of 12 pairs whose quartiles lie so far apart.
    assert engine(found).threshold == pytest.approx(2 * 0.93 * 2 * noise / 12**0.5, rel=1e-6)


def test_small_gains_are_kept_where_they_add_up(play: Play) -> None:
    # Each swap saves a tenth of a percent of the whole and more.
    few = play([[10.0, 10.1], [5.0]], {"0.1": 99.7, "noise": 0.0001})
    assert (chosen(few)[0], swap(few, "c0.1").kept) == ("c0.0", True)
    assert engine(few).message == "all that was kept gains nothing together that can be told from noise"
    many = play([[10.0, 10.1], [5.0, 5.1]], {"0.1": 99.6, "1.1": 99.6, "noise": 0.0001})
    assert chosen(many) == ["c0.1", "c1.1"]
    assert engine(many).threshold == 0.001
    less = play([[10.0, 10.1], [5.0]], {"0.1": 99.9, "noise": 0.0001})
    assert not swap(less, "c0.1").kept


def test_swaps_that_gain_nothing_together_are_taken_back(play: Play) -> None:
    found = play([[10.0, 10.1], [5.0, 5.1]], {"0.1": 90.0, "1.1": 90.0, "together": 199.9})
    row = engine(found)
    assert row.chosen == row.base
    assert [swap.kept for swap in found.results.swaps] == [True, True]
    assert row.message == "all that was kept gains nothing together that can be told from noise"


def test_what_is_near_the_best_alone_is_tried_and_a_few_others(play: Play) -> None:
    # Within 5 %, or among the first three and within 25 %.
    medians = [[10.0, 10.4, 10.5, 10.49, 10.6, 12.0, 13.0]]
    found = play(medians, {})
    assert compared(found)[1:] == ["0 1", "0 3", "0 2"]
    few = play([[10.0, 12.4, 12.6, None]], {})
    assert compared(few)[1:] == ["0 1"]


def test_a_kernel_of_another_family_is_not_tried(play: Play) -> None:
    # The plan around the step is made for the formats of the winner's family.
    found = play([[10.0, 10.1, 10.2]], {}, families=["cutlass", "portable", "cutlass"])
    assert compared(found)[1:] == ["0 2"]


def test_the_engine_begins_with_what_selection_from_records_takes(play: Play) -> None:
    # Within 1 % the one with the fewest settings, then the one with the least digest.
    assert engine(play([[10.05, 10.0, 10.2]], {}, settings=[0, 1, 0])).base == (("p0", "c0.0"),)
    assert engine(play([[10.05, 10.0, 10.2]], {})).base == (("p0", "c0.0"),)
    assert engine(play([[10.2, 10.0, 10.05]], {}, settings=[0, 1, 1])).base == (("p0", "c0.1"),)


def test_near_misses_are_tried_again_when_others_were_kept(play: Play) -> None:
    found = play([[10.0, 10.1], [5.0, 5.1]], {"0.1": 99.95, "1.1": 90.0, "noise": 0.001})
    assert compared(found) == ["0,0 0,0", "0,0 1,0", "0,0 0,1", "0,0 0,1", "0,1 1,1", "0,0 0,1"]


def test_an_engine_with_a_problem_that_nothing_is_known_of_is_not_played(play: Play) -> None:
    found = play([[10.0, 10.1], [None]], {})
    (left,) = found.results.unplayed
    assert (left.engine, left.batch, left.message) == ("E", 32, "no candidate of conv 1 has a time")
    assert (found.results.engines, found.results.complete) == ((), True)
    assert "GPU 0  the engine of batch 32 is not played: no candidate of conv 1 has a time" in found.said


def test_another_plan_is_taken_where_it_is_faster_and_swaps_are_tried_in_it(play: Play) -> None:
    # The second plan takes 20 us less and has a problem of its own, whose second kernel saves 20 more.
    medians = [[10.0, 10.1], [5.0, 5.1], [7.0, 7.1]]
    found = play(medians, {"plan.1": -20.0, "2.1": 80.0, "0.1": 101.0}, [0, 1], plans=[[0, 2]])
    row = engine(found)
    assert (row.engine, row.plan, row.plans, row.tried) == ("E", "E1", 1, 2)
    assert compared(found) == [
        "0,0,0 0,0,0", "0,0,0 1:0,0,0", "0,0,0 1:0,0,0",
        "1:0,0,0 1:1,0,0", "1:0,0,0 1:0,0,1", "1:0,0,0 1:0,0,1", "0,0,0 1:0,0,1",
    ]  # fmt: skip
    assert dict(row.base) == {"p0": "c0.0", "p1": "c1.0", "p2": "c2.0"}
    assert dict(row.chosen) == {"p0": "c0.0", "p1": "c1.0", "p2": "c2.1"}
    (plan,) = found.results.plans
    assert (plan.engine, plan.plan, plan.kept, plan.status) == ("E", "E1", True, Status.OK)
    assert "GPU 0      kept, -6.67%: plan 2" in found.said
    assert found.said[-2].endswith("with 1 of them replaced in plan 2; 2 tried, 1 other plan")


def test_a_plan_that_is_no_faster_is_left(play: Play) -> None:
    found = play([[10.0, 10.1], [5.0]], {"plan.1": 20.0}, [0], plans=[[1]])
    assert (engine(found).plan, engine(found).plans) == ("E", 1)
    assert [plan.kept for plan in found.results.plans] == [False]


def test_a_plan_with_a_problem_that_nothing_is_known_of_is_not_tried(play: Play) -> None:
    found = play([[10.0, 10.1], [None]], {"plan.1": -90.0}, [0], plans=[[0, 1]])
    assert (engine(found).plan, engine(found).plans, dict(engine(found).base)) == ("E", 0, {"p0": "c0.0"})
    assert compared(found) == ["0,-1 0,-1", "0,-1 1,-1"]


def test_a_plan_that_crashes_costs_itself_alone(play: Play) -> None:
    found = play([[10.0, 10.1]], {"plan.1": "segfault", "plan.2": -10.0, "0.1": 110.0}, [0], plans=[[0], [0, 0]])
    assert [(plan.plan, plan.status, plan.kept) for plan in found.results.plans] == [
        ("E1", Status.CRASHED, False), ("E2", Status.OK, True),
    ]  # fmt: skip
    assert engine(found).plan == "E2"


FAILURES = [
    ("segfault", Status.CRASHED, "its process was ended by signal 11 (Segmentation fault)", True),
    ("exit", Status.CRASHED, "its process ended with exit status 9", True),
    ("hang", Status.TIMED_OUT, "took longer than 0.5 s", True),
    ("garbage", Status.CRASHED, "its process said what is no result: 'Hello from a kernel'", True),
    ("lost", Status.CRASHED, "conv: lost", True),
    ("refused", Status.REFUSED, "conv: refused", False),
]


@pytest.mark.parametrize(("act", "status", "message", "restarts"), FAILURES, ids=[f[0] for f in FAILURES])
def test_a_failure_costs_its_swap_alone(play: Play, act: str, status: Status, message: str, restarts: bool) -> None:
    found = play([[10.0, 10.1, 10.2]], {"0.1": act, "0.2": 90.0}, words=("--limit", "0.5"))
    row = swap(found, "c0.1")
    assert (row.status, row.message, row.kept, row.gain) == (status, message, False, None)
    assert chosen(found) == ["c0.2"]
    assert len([line for line in found.log if line.startswith("play")]) == (2 if restarts else 1)
    wait_until(lambda: not any(alive(process) for process in found.sleepers))


@pytest.mark.parametrize(
    ("act", "status", "message"),
    [
        ("exit", Status.CRASHED, "preparing the engine failed: its process ended with exit status 9"),
        ("no-memory", Status.OUT_OF_MEMORY, "preparing the engine failed: no memory is left"),
        ("hang", Status.TIMED_OUT, "preparing the engine failed: took longer than 0.5 s"),
    ],
)
def test_an_engine_that_cannot_be_prepared_is_a_status(play: Play, act: str, status: Status, message: str) -> None:
    found = play([[10.0, 10.1]], {"prepare": act}, words=("--preparing-limit", "0.5"))
    row = engine(found)
    assert (row.status, row.message, row.first, row.tried) == (status, message, None, 0)
    assert row.chosen == row.base


def test_time_that_is_over_ends_the_search_and_not_the_last_word(play: Play) -> None:
    slow = {"0.1": 90.0, "0.2": 80.0, "pause": 0.3}
    found = play([[10.0, 10.1, 10.2]], slow, words=("--engine-budget", "0.7"))
    row = engine(found)
    # Noise, a swap and its confirmation take it all; what was kept is held against the first even so.
    assert (row.complete, row.chosen) == (False, (("p0", "c0.1"),))
    assert compared(found) == ["0 0", "0 1", "0 1", "0 1"]


def test_a_long_engine_has_more_time_for_what_is_tried(play: Play) -> None:
    """8000 times what it takes: of 1000 us that is 8 s."""
    slow = {"0.0": 1000.0, "0.1": 900.0, "0.2": 800.0, "pause": 0.2}
    found = play([[10.0, 10.1, 10.2]], slow, words=("--engine-budget", "0.1"))
    assert engine(found).complete
    assert chosen(found) == ["c0.2"]


def test_both_stages_in_one_go_begin_with_what_was_measured_just_now(play: Play) -> None:
    found = play([[None, None]], {"0.0": 90.0}, words=("--stage", "engines"))
    assert [left.message for left in found.results.unplayed] == ["no candidate of conv 0 has a time"]
    found.acts["0"] = {"0": 21.0, "1": 20.0}
    found.write_acts()
    done = found.run("--engines", str(found.folder / "engines.tsv"))
    assert done.returncode == 0
    assert [row.candidate for row in found.results.rows] == ["c0.0", "c0.1"]
    row = engine(found)
    assert (row.base, row.chosen) == ((("p0", "c0.1"),), (("p0", "c0.0"),))
    assert done.stderr.splitlines()[-1].startswith("2 candidates of 1 problem, 1 engine with 1 swap in ")


def test_a_player_that_crashes_loses_nothing_of_the_first_stage(play: Play) -> None:
    found = play([[10.0, 10.1]], {"prepare": "segfault"})
    done = found.run("--engines", str(found.folder / "engines.tsv"))
    assert done.returncode == 0
    assert [row.status for row in found.results.rows] == [Status.OK, Status.OK]
    assert engine(found).status is Status.CRASHED


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "0: it is empty"),
        ("bolt-engines\t2\n", "1: engines of version 2, this program plays version 1"),
        ("hello\n", "1: these are no engines"),
        ("bolt-engines\t1\nproblem\tp7\n", "2: candidates.so has no problem p7"),
        ("bolt-engines\t1\ntrial\tc0.0\tcutlass\t0\t-\n", "2: a candidate stands in front of every problem"),
        (
            "bolt-engines\t1\nproblem\tp0\ntrial\tc9\tcutlass\t0\t-\n",
            "3: candidates.so has no candidate c9 of this problem",
        ),
        ("bolt-engines\t1\nproblem\tp0\ntrial\tc0.0\tcutlass\t0\tinf\n", "3: 'inf' is no time"),
        ("bolt-engines\t1\nproblem\tp0\ntrial\tc0.0\tcutlass\t-1\t-\n", "3: '-1' is no number"),
        ("bolt-engines\t1\nstep\tconv\tp0\t\t\n", "2: a step stands in front of every engine"),
        ("bolt-engines\t1\nengine\tE\t1\nstep\tconv\tp0\ta0\t\n", "3: a step has not as many tensors as its problem"),
        ("bolt-engines\t1\nengine\tE\t1\nstep\tconv\tp0\tx0\t\n", "3: 'x0' is no place of a tensor"),
        (
            f"bolt-engines\t1\nengine\tE\t1\nstep\tconv\tp0\ta{2**64 - 1}\t\n",
            f"3: '{2**64 - 1}' is larger than any number here",
        ),
        (f"bolt-engines\t1\nengine\tE\t{2**32}\n", f"2: '{2**32}' is larger than any number here"),
        ("bolt-engines\t1\nengine\tE\t1\nstep\tconv\tp0\t\0\t\n", "3: '?' is no place of a tensor"),
        ("bolt-engines\t1\n" + "\t" * 2_000_000 + "\n", "2: the line has 2000000 bytes"),
        ("bolt-engines\t1\nengine\tE\t1\n", "2: a plan has no step"),
        ("bolt-engines\t1\nengine\tE\n", "2: this line is none of engines"),
        ("bolt-engines\t1\nplan\tE\n", "2: a plan stands in front of every engine"),
        ("bolt-engines\t1\nengine\tE\t1\nplan\tE1\n", "3: a plan has no step"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_is_refused_before_anything_is_measured(tmp_path: Path, text: str, why: str) -> None:
    measurement = Measurement(tmp_path / "m", [[-1]])
    path = measurement.folder / "engines.tsv"
    path.write_text(text)
    done = measurement.run("--engines", str(path))
    assert done.returncode == 3
    assert done.stderr == f"run: {path}:{why}; take it and candidates.so from one bundle\n"
    assert not (measurement.folder / "results.jsonl").exists()


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    measurement = Measurement(tmp_path / "m", [[-1]])
    path = measurement.folder / "engines.tsv"
    os.mkfifo(path)
    done = measurement.run("--engines", str(path))
    assert (done.returncode, done.stderr) == (3, f"run: engines cannot be read from '{path}': not a regular file\n")
    (measurement.folder / "candidates.so").unlink()
    os.mkfifo(measurement.folder / "candidates.so")
    done = measurement.run()
    said = f"run: '{measurement.folder}/candidates.so' is no library of candidates: not a regular file\n"
    assert (done.returncode, done.stderr) == (3, said)


def test_engines_alone_need_a_file(tmp_path: Path) -> None:
    measurement = Measurement(tmp_path / "m", [[-1]])
    done = measurement.run("--stage", "engines")
    assert (done.returncode, done.stderr) == (
        2, "run: --stage engines needs --engines FILE: there is no engines.tsv beside this program\n"
    )  # fmt: skip
    done = measurement.run("--stage", "all")
    assert (done.returncode, done.stderr) == (2, "run: --stage takes kernels or engines, not 'all'\n")


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_where_times_add_up_the_best_of_those_tried_is_found(play: Play, data: st.DataObject) -> None:
    """With times that are sums over problems, and well apart, greedy search ends at the best kernel of each problem."""
    counts = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    times = [data.draw(st.permutations([100.0 + 20 * at for at in range(count)])) for count in counts]
    acts: dict[str, Act] = {f"{p}.{t}": time for p, row in enumerate(times) for t, time in enumerate(row)}
    found = play([[10.0 + 0.15 * trial for trial in range(count)] for count in counts], acts)
    best = [min(range(len(row)), key=row.__getitem__) for row in times]
    assert chosen(found) == [f"c{problem}.{trial}" for problem, trial in enumerate(best)]
    row = engine(found)
    assert row.second is not None
    assert row.second.median == (sum(map(min, times)) if row.chosen != row.base else sum(row[0] for row in times))
