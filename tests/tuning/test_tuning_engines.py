"""Whole engines: the file that the driver plays from, and what follows from the records of what it found."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from engine_evidence import GRAPH, LINEUP, LINEUP_OF_TWO, OTHER, TABLE, cover_of, played, swapped
from hypothesis import given, settings
from hypothesis import strategies as st
from tune_sets import FIRST, LARGE, SECOND, SMALL, SPLIT, tuning_set
from tuning_evidence import ON_A100, ON_H200, TOOLS, ok, timed
from tuning_fakes import Measurement

from bolt_build.lockfile.fingerprint import Fingerprint
from bolt_build.planner.selection import EngineChoice, Winner
from bolt_build.report.explained.whole_engine import engine_lines, of_evidence
from bolt_build.tuning.choice.engines import EngineEvidence, engine_evidence
from bolt_build.tuning.choice.winners import evidence
from bolt_build.tuning.exchange.engines_tsv import engines_text
from bolt_build.tuning.playing import open_engines
from bolt_build.tuning.records.engine_record import EngineMeasurement, EngineRecord, Gain, TriedPlan
from bolt_build.tuning.records.kernel_record import Record, Status
from bolt_build.tuning.trials.engine_table import EngineLineup
from bolt_build.tuning.trials.tuning_set import ProblemTrials, Trial

FOUND = tuning_set(FIRST, SECOND)
# SPLIT is the fastest for the first problem, LARGE for the second.
RECORDS = timed(FOUND, {SMALL: 4.0, LARGE: 2.6, SPLIT: 2.5})
ONE, TWO = FIRST.problem.digest, SECOND.problem.digest
BASE = {ONE: SPLIT, TWO: LARGE}


def chosen(
    *found: EngineMeasurement,
    records: tuple[tuple[Fingerprint, Record], ...] = RECORDS,
    lineup: EngineLineup = LINEUP,
) -> tuple[EngineEvidence, ...]:
    return engine_evidence([lineup], evidence(FOUND, records), records, found)


def test_what_the_driver_reads() -> None:
    text = engines_text([LINEUP_OF_TWO], FOUND.problems, {(ONE, SMALL): 4.0, (TWO, LARGE): 2.53125})
    assert text == (
        "bolt-engines\t1\n"
        f"problem\t{ONE}\n"
        f"trial\t{SMALL.digest}\tcutlass\t0\t4\n"
        f"trial\t{LARGE.digest}\tcutlass\t0\t-\n"
        f"trial\t{SPLIT.digest}\tcutlass\t1\t-\n"
        f"problem\t{TWO}\n"
        f"trial\t{LARGE.digest}\tcutlass\t0\t2.53125\n"
        f"trial\t{SMALL.digest}\tcutlass\t0\t-\n"
        f"engine\t{TABLE.digest}\t1\n"
        f"step\tconv64\t{ONE}\ti0,w0,w1\ta64\n"
        f"step\tagain 64\t{ONE}\ta64,w2,w3\ti0\n"
        f"step\tconv128\t{TWO}\ta64,w4,w5\to0+128\n"
        f"plan\t{OTHER.digest}\n"
        f"step\tconv64\t{ONE}\ti0,w0,w1\ta64\n"
    )
    with pytest.raises(KeyError):
        engines_text([LINEUP], [FIRST], {})


def test_a_table_is_another_where_a_tensor_lies_elsewhere() -> None:
    steps = (TABLE.steps[0], *TABLE.steps[1:][::-1])
    assert len({TABLE.digest, replace(TABLE, steps=steps).digest, replace(TABLE, graph="0" * 64).digest}) == 3
    assert TABLE.problems == (ONE, TWO)


def test_kernels_that_were_kept_take_the_places_of_the_winners() -> None:
    record = played(BASE, {ONE: SMALL}, tried=[swapped(ONE, SMALL)])
    (found,) = chosen((ON_A100, record))
    assert (found.swaps, found.fingerprint, found.record) == (((ONE, SMALL, 4.0),), ON_A100, record)
    assert (found.before.median, found.after.median, found.gain) == (100.0, 90.0, pytest.approx(0.1))
    assert found.choice == EngineChoice(
        GRAPH, 1, (Winner(ONE, SMALL, pytest.approx(4e-6)),), pytest.approx(1e-4), pytest.approx(9e-5)
    )  # fmt: skip


def test_an_engine_that_nothing_made_faster_is_evidence_too() -> None:
    (found,) = chosen((ON_A100, played(BASE, {}, after=100.1)))
    assert (found.swaps, found.gain, found.after.median) == ((), 0.0, 100.0)


@pytest.mark.parametrize(
    "measured",
    [
        (ON_A100, played({**BASE, ONE: LARGE}, {ONE: SMALL})),
        (ON_H200, played(BASE, {ONE: SMALL})),
        (ON_A100, played(BASE, {ONE: SMALL}, table=replace(TABLE, batch=2))),
        (ON_A100, played(BASE, {}, status=Status.CRASHED)),
    ],
    ids=["other winners", "other GPU", "other engine", "failed"],
)
def test_a_record_of_something_else_says_nothing(measured: EngineMeasurement) -> None:
    assert chosen(measured) == ()


def test_a_swap_without_a_time_of_its_own_is_not_taken() -> None:
    without = tuple(pair for pair in RECORDS if pair[1].candidate != SMALL)
    assert chosen((ON_A100, played(BASE, {ONE: SMALL})), records=without) == ()


def test_an_engine_whose_problems_were_measured_on_different_things_has_no_evidence() -> None:
    records = (*(pair for pair in RECORDS if pair[1].problem == ONE), (ON_H200, ok(TWO, LARGE, 2.0)))
    assert chosen((ON_A100, played(BASE, {ONE: SMALL})), records=records) == ()
    newer = Fingerprint(ON_A100.device, replace(TOOLS, cuda="13.1"))
    assert chosen((newer, played(BASE, {ONE: SMALL}))) == ()


def test_a_plan_that_was_faster_takes_the_place_of_the_first() -> None:
    record = played(BASE, {ONE: SMALL}, plan=OTHER)
    (found,) = chosen((ON_A100, record), lineup=LINEUP_OF_TWO)
    assert (found.table, found.cover, found.other_plan) == (OTHER, cover_of(OTHER), True)
    assert found.swaps == ((ONE, SMALL, 4.0),)
    alone = chosen((ON_A100, played(BASE, {}, plan=OTHER)), lineup=LINEUP_OF_TWO)[0]
    assert (alone.swaps, alone.changed, alone.after.median) == ((), True, 90.0)
    # A plan that does not lead any more is no engine of now.
    assert chosen((ON_A100, record)) == ()


def test_of_several_records_the_one_that_tried_most_plans_counts() -> None:
    tried = TriedPlan(OTHER.digest, Status.OK, "", 100.0, 101.0, Gain(-0.01, -0.02, 0.0, 12), kept=False)
    few, many = played(BASE, {ONE: SMALL}), played(BASE, {TWO: SMALL}, plans=[tried])
    for order in ((few, many), (many, few)):
        (found,) = chosen(*((ON_A100, each) for each in order), lineup=LINEUP_OF_TWO)
        assert found.record == many


def test_of_several_records_one_that_failed_counts_last_and_one_that_was_cut_short_after_its_like() -> None:
    tried = TriedPlan(OTHER.digest, Status.OK, "", 100.0, 101.0, Gain(-0.01, -0.02, 0.0, 12), kept=False)
    good, failed = played(BASE, {ONE: SMALL}), played(BASE, {}, plans=[tried], status=Status.CRASHED)
    for order in ((good, failed), (failed, good)):
        (found,) = chosen(*((ON_A100, each) for each in order), lineup=LINEUP_OF_TWO)
        assert found.record == good
    short = replace(played(BASE, {TWO: SMALL}), complete=False)
    for order in ((good, short), (short, good)):
        (found,) = chosen(*((ON_A100, each) for each in order))
        assert found.record == good


@pytest.mark.parametrize(
    ("record", "is_open"),
    [
        (played(BASE, {ONE: SMALL}), False),
        (played(BASE, {}), False),
        (replace(played(BASE, {ONE: SMALL}), complete=False), True),
        (played(BASE, {}, status=Status.CRASHED), True),
        (None, True),
    ],
    ids=["swapped", "nothing faster", "cut short", "failed", "unknown"],
)
def test_an_engine_is_open_until_one_play_of_it_came_to_its_end(record: EngineRecord | None, is_open: bool) -> None:
    known = [] if record is None else [(ON_A100, record)]
    waiting = open_engines([LINEUP], evidence(FOUND, RECORDS), known, [ON_A100], again=False)
    assert waiting.lineups == ((LINEUP,) if is_open else ())
    assert waiting.notes == ()
    assert open_engines([LINEUP], evidence(FOUND, RECORDS), known, [ON_A100], again=True).lineups == (LINEUP,)


def test_the_lines_say_where_not_all_were_tried() -> None:
    winners = {ONE: (SPLIT, 2.5), TWO: (LARGE, 2.6)}
    record = played(BASE, {}, after=100.1)
    texts = [
        engine_lines(of_evidence(chosen((ON_A100, replace(record, complete=complete)))[0], winners))
        for complete in (True, False)
    ]
    head = "whole engine of batch 1: 100.0 us with the kernels that are fastest alone, none faster (0 swaps tried"
    assert texts == [[f"{head})"], [f"{head}; not all were tried: the time was over)"]]


def test_a_plan_of_which_something_was_not_measured_is_not_in_the_way() -> None:
    third = replace(OTHER, steps=(replace(OTHER.steps[0], problem="0" * 64),))
    lineup = EngineLineup((*LINEUP.plans, (third, cover_of(third))))
    (found,) = chosen((ON_A100, played(BASE, {ONE: SMALL})), lineup=lineup)
    assert found.table == TABLE


def test_the_order_of_records_does_not_matter() -> None:
    one, other = (ON_A100, played(BASE, {ONE: SMALL})), (ON_H200, played(BASE, {TWO: SMALL}))
    assert chosen(one, other) == chosen(other, one)
    assert len(chosen(one, other)) == 1


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_the_driver_begins_where_selection_ends(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """The driver's choice of each problem's winner is that of `select`, near-ties by settings and digests included."""
    times = st.sampled_from([10.0, 10.05, 10.1, 10.11, 10.2])
    tried = data.draw(st.lists(st.sampled_from([SMALL, LARGE, SPLIT]), min_size=1, max_size=3, unique=True))
    medians = {candidate: data.draw(times) for candidate in tried}
    only = ProblemTrials(FIRST.problem, FIRST.occurs, tuple(Trial(each, 1e-6) for each in tried), ())
    (wanted,) = evidence(tuning_set(only), timed(tuning_set(only), medians))
    steps = (replace(TABLE.steps[0], inputs=(), outputs=()),)
    text = engines_text(
        [EngineLineup(((replace(TABLE, steps=steps), cover_of(TABLE)),))],
        [only],
        {(ONE, each): time for each, time in medians.items()},
    )
    folder = tmp_path_factory.mktemp("engines")
    measurement = Measurement(folder, [[-1] * len(tried)], digests=[(ONE, [each.digest for each in tried])])
    (folder / "engines.tsv").write_text(text)
    done: subprocess.CompletedProcess[str] = measurement.run(
        "--stage", "engines", "--engines", str(Path(folder, "engines.tsv"))
    )  # fmt: skip
    measurement.remove_locks()
    assert done.returncode == 0, done.stderr
    (row,) = measurement.results.engines
    assert row.base == ((ONE, wanted.winner.candidate.digest),)
