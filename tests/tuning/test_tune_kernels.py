"""Which units a tuning set needs, whose failure says what of a kernel, and what is left to measure then."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from planner_fakes import Fake
from tune_sets import FIRST, LARGE, SECOND, SMALL, SPLIT, trials

from bolt_build.build.compile_cuda import MACHINE_FAILED
from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.families.base import Candidate, KernelProblem, KernelUnit
from bolt_build.targets import Target, target_named
from bolt_build.tuning.compile.kernels import is_verdict, last_words, not_compiled, tuning_kernels, without
from bolt_build.tuning.records.kernel_record import Record, Status
from bolt_build.tuning.trials.tuning_set import ProblemTrials

H200 = target_named("h200")


class OneUnitATile(Fake):
    """A family whose kernels are called by their m."""

    def units(self, steps: Sequence[tuple[KernelProblem, Candidate]], target: Target) -> tuple[KernelUnit, ...]:
        return tuple(KernelUnit(f"k_{dict(c.parameters)['m']}.cu", "text", 900) for _, c in steps)


FAMILIES = {"cutlass": OneUnitATile("cutlass")}


def failed(log: str, text: str = "exit status 2") -> TaskEvent:
    return TaskEvent(EventKind.FAILED, "a100", "compile-k_64", "compile k_64.cu", text=text, log=log)


def test_problems_share_units_and_variants_need_no_more() -> None:
    kernels = tuning_kernels((FIRST, SECOND), FAMILIES, H200)
    assert [unit.name for unit in kernels.units] == ["k_128.cu", "k_64.cu"]
    first, second = FIRST.problem.digest, SECOND.problem.digest
    assert kernels.needs == (
        (first, SMALL, ("k_64.cu",)), (first, LARGE, ("k_128.cu",)), (first, SPLIT, ("k_64.cu",)),
        (second, LARGE, ("k_128.cu",)), (second, SMALL, ("k_64.cu",)),
    )  # fmt: skip


def test_every_candidate_of_a_unit_that_does_not_compile_gets_a_record_with_the_compilers_words() -> None:
    kernels = tuning_kernels((FIRST, SECOND), FAMILIES, H200)
    records = not_compiled(kernels, {"k_64.cu": "error: no such tile"})
    assert records == tuple(
        Record(problem.problem.digest, candidate, Status.NOT_COMPILED, "error: no such tile")
        for problem, candidate in ((FIRST, SMALL), (FIRST, SPLIT), (SECOND, SMALL))
    )
    assert [t.candidate for problem in without((FIRST, SECOND), records) for t in problem.trials] == [LARGE, LARGE]


def test_a_problem_without_any_trial_is_not_measured() -> None:
    gone = [Record(SECOND.problem.digest, c, Status.NOT_COMPILED) for c in (LARGE, SMALL)]
    assert without((FIRST, SECOND), gone) == (FIRST,)


def test_what_the_compiler_refuses_is_a_verdict_and_what_the_machine_refuses_is_not() -> None:
    assert is_verdict(failed("k_64.cu(1): error: static assertion failed"))
    assert not is_verdict(failed("nvcc error   : 'cicc' died due to signal 9 (Kill signal)"))
    assert not is_verdict(failed("/tmp/k.o: No space left on device"))
    assert not is_verdict(failed("nvcc fatal   : Could not open output file '/tmp/bolt-build-x/keep/k.cpp4.ii'"))
    assert not is_verdict(failed("sh: 1: cicc: Permission denied"))
    assert not is_verdict(failed("", f"exit status {MACHINE_FAILED}"))
    assert not is_verdict(failed("", "ended by signal 9 (out of memory?)"))
    assert not is_verdict(failed("", "/somewhere/src/k_64.cu is missing"))


def test_the_last_words_are_the_end_of_the_log_without_blank_lines() -> None:
    assert last_words(failed("\n".join(["line"] * 9) + "\n\n1 error detected\n")) == "line\n" * 5 + "1 error detected"
    assert last_words(failed("x" * 5000)) == "x" * 1000
    assert last_words(failed("  \n")) == "exit status 2"


@st.composite
def problems(draw: st.DrawFn) -> ProblemTrials:
    """First-stage trials, then variants of some of them."""
    count = draw(st.integers(1, 5))
    first = [(Candidate("cutlass", (("m", m),)), None) for m in range(count)]
    of = draw(st.lists(st.integers(0, count - 1), max_size=5))
    return trials(64, *first, *((Candidate("cutlass", (("m", m),), (("slices", at),)), m) for at, m in enumerate(of)))


@given(problems(), st.data())
def test_what_stays_keeps_its_order_and_its_leader(problem: ProblemTrials, data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.sampled_from([trial.candidate for trial in problem.trials])))
    kept = without((problem,), [Record(problem.problem.digest, c, Status.NOT_COMPILED) for c in gone])
    stay = kept[0].trials if kept else ()
    assert all(trial.candidate not in gone for trial in stay)
    order = [trial.candidate for trial in problem.trials]
    assert [trial.candidate for trial in stay] == [c for c in order if c in {trial.candidate for trial in stay}]
    for trial in stay:
        assert (trial.of is None) == (trial.candidate.settings == ())
        assert trial.of is None or stay[trial.of].candidate == trial.candidate.compiled
    lost = [t for t in problem.trials if t.candidate not in gone and t not in stay and t.of is None]
    assert lost == []
