"""Winners from records: a pure function that noise does not move back and forth."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tune_sets import FIRST, LARGE, SECOND, SMALL, SPLIT, tuning_set
from tuning_evidence import ON_A100, ON_H200, failed, ok, timed

from bolt_build.families.base import Candidate
from bolt_build.lockfile.fingerprint import Fingerprint
from bolt_build.tuning.choice.winners import NEAR, evidence, select, unmeasured
from bolt_build.tuning.records.kernel_record import Record, Status

BOTH = tuning_set(FIRST, SECOND)
ONE = tuning_set(FIRST)
PROBLEM = FIRST.problem.digest


def winner(*records: tuple[Fingerprint, Record]) -> Candidate | None:
    """The winner of the first problem."""
    found = select(ONE, records).winners
    return found[0].candidate if found else None


def test_the_fastest_of_each_problem_wins_and_its_time_is_in_seconds() -> None:
    found = select(BOTH, timed(BOTH, {SMALL: 4.0, LARGE: 2.5}))
    assert found.source == "records"
    assert found.covers == ()
    assert [(each.candidate, each.seconds) for each in found.winners] == [(LARGE, pytest.approx(2.5e-6))] * 2
    assert [each.problem for each in found.winners] == sorted(each.problem.digest for each in (FIRST, SECOND))


def test_only_what_is_ok_can_win() -> None:
    lost = [(ON_A100, failed(PROBLEM, SMALL, status)) for status in Status if status is not Status.OK]
    assert [winner(each) for each in lost] == [None] * len(lost)
    assert winner(lost[0], (ON_A100, ok(PROBLEM, LARGE, 90.0))) == LARGE


def test_a_problem_without_a_time_has_no_winner_and_is_named() -> None:
    found = select(
        BOTH, [(ON_A100, ok(SECOND.problem.digest, SMALL, 3.0)), (ON_A100, failed(PROBLEM, SMALL, Status.WRONG))]
    )
    assert [each.problem for each in found.winners] == [SECOND.problem.digest]
    assert unmeasured(BOTH, found) == (FIRST,)


def test_of_near_ties_the_one_without_settings_wins() -> None:
    best, near, slower = 3.0, 3.0 * NEAR, 3.0 * NEAR + 0.001
    assert winner((ON_A100, ok(PROBLEM, SPLIT, best)), (ON_A100, ok(PROBLEM, SMALL, near))) == SMALL
    assert winner((ON_A100, ok(PROBLEM, SPLIT, best)), (ON_A100, ok(PROBLEM, SMALL, slower))) == SPLIT


def test_of_near_ties_with_as_many_settings_the_least_digest_wins() -> None:
    least = min(SMALL, LARGE, key=lambda candidate: candidate.digest)
    for small, large in ((3.0, 3.02), (3.02, 3.0), (3.0, 3.0)):
        assert winner((ON_A100, ok(PROBLEM, SMALL, small)), (ON_A100, ok(PROBLEM, LARGE, large))) == least


def test_a_candidate_that_is_no_trial_of_the_set_does_not_count() -> None:
    """Records of an exhaustive search leave the pruned choice what it is."""
    stranger = Candidate("cutlass", (("m", 256),))
    assert winner((ON_A100, ok(PROBLEM, stranger, 1.0)), (ON_A100, ok(PROBLEM, SMALL, 3.0))) == SMALL


def test_times_of_different_devices_are_not_compared() -> None:
    """The H200 is faster throughout, but the A100 tried more: its fastest wins."""
    on_h200 = (ON_H200, ok(PROBLEM, LARGE, 1.0))
    on_a100 = [(ON_A100, ok(PROBLEM, SMALL, 3.0)), (ON_A100, ok(PROBLEM, LARGE, 4.0))]
    assert winner(on_h200, *on_a100) == SMALL
    assert winner(on_h200, *on_a100[:1]) == (LARGE if ON_H200.digest < ON_A100.digest else SMALL)


def test_a_device_on_which_all_failed_leaves_the_choice_to_another() -> None:
    lost = [(ON_H200, failed(PROBLEM, each, Status.CRASHED)) for each in (SMALL, LARGE, SPLIT)]
    assert winner(*lost, (ON_A100, ok(PROBLEM, LARGE, 4.0))) == LARGE


def test_evidence_has_the_runner_up_and_how_many_were_measured_and_tried() -> None:
    records = [
        (ON_A100, ok(PROBLEM, SMALL, 4.0)), (ON_A100, ok(PROBLEM, SPLIT, 3.0)),
        (ON_A100, failed(PROBLEM, LARGE, Status.NOT_COMPILED, "no")),
    ]  # fmt: skip
    (found,) = evidence(ONE, records)
    assert (found.problem, found.fingerprint, found.winner) == (PROBLEM, ON_A100, records[1][1])
    assert (found.runner_up, found.measured, found.tried, found.median) == (records[0][1], 2, 3, 3.0)
    (alone,) = evidence(ONE, records[:1])
    assert alone.runner_up is None


def test_a_runner_up_may_be_faster_than_a_winner_that_is_as_good_as_it() -> None:
    (found,) = evidence(ONE, [(ON_A100, ok(PROBLEM, SPLIT, 3.0)), (ON_A100, ok(PROBLEM, SMALL, 3.01))])
    assert (found.winner.candidate, found.runner_up.candidate if found.runner_up else None) == (SMALL, SPLIT)


RECORDS = st.lists(
    st.tuples(
        st.sampled_from([ON_A100, ON_H200]),
        st.builds(
            ok, st.sampled_from([FIRST.problem.digest, SECOND.problem.digest]), st.sampled_from([SMALL, LARGE, SPLIT]),
            st.sampled_from([2.0, 2.01, 2.03, 5.0]),
        ),
    ),
    max_size=10,
)  # fmt: skip


@given(records=RECORDS, order=st.randoms(use_true_random=False))
def test_the_order_of_records_changes_nothing(records: list[tuple[Fingerprint, Record]], order: object) -> None:
    shuffled = list(records)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert select(BOTH, shuffled) == select(BOTH, records)
    assert evidence(BOTH, shuffled) == evidence(BOTH, records)


@given(records=RECORDS)
def test_a_winner_is_a_trial_within_a_percent_of_the_best_on_its_device(
    records: list[tuple[Fingerprint, Record]],
) -> None:
    once = {(fingerprint, record.problem, record.candidate): (fingerprint, record) for fingerprint, record in records}
    trials = {each.problem.digest: {trial.candidate for trial in each.trials} for each in BOTH.problems}
    for found in evidence(BOTH, once.values()):
        there = [
            record.statistics.median
            for fingerprint, record in once.values()
            if (fingerprint, record.problem) == (found.fingerprint, found.problem) and record.statistics is not None
            and record.candidate in trials[found.problem]
        ]  # fmt: skip
        assert found.winner.candidate in trials[found.problem]
        assert found.median <= min(there) * NEAR
        assert found.measured == len(there)
