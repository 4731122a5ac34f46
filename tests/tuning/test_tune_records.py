"""What is measured again and what is not, and which of several records of a problem may decide."""

from __future__ import annotations

from dataclasses import replace

from tune_sets import FIRST, LARGE, SECOND, SMALL, SPLIT, TOOLS

from bolt_build.families.base import Candidate
from bolt_build.lockfile.fingerprint import Device, Fingerprint
from bolt_build.targets import target_named
from bolt_build.tuning.records.counting import comparable, unmeasured
from bolt_build.tuning.records.kernel_record import Record, Statistics, Status
from bolt_build.tuning.trials.tuning_set import ProblemTrials

A100 = target_named("a100")
HERE = Fingerprint(Device("NVIDIA A100-SXM4-80GB", 108, 80 << 30, 400, "570.86.10"), TOOLS)
OTHER_TOOLS = replace(HERE, tools=replace(TOOLS, cuda="12.9"))
NEW_DRIVER = replace(HERE, device=replace(HERE.device, driver="580.1.9"))
H200 = replace(HERE, device=replace(HERE.device, name="NVIDIA H200"))


def timed(problem: ProblemTrials, candidate: Candidate, median: float) -> Record:
    statistics = Statistics(median, median, median, 0.0, 10, 20)
    return Record(problem.problem.digest, candidate, Status.OK, "", statistics, 0.1)


def failed(problem: ProblemTrials, candidate: Candidate, status: Status = Status.WRONG) -> Record:
    return Record(problem.problem.digest, candidate, status, "why")


def left(*records: Record, here: Fingerprint = HERE) -> list[str]:
    found = unmeasured((FIRST, SECOND), [(HERE, record) for record in records], [here])
    return [problem.occurs[0] for problem in found]


def test_what_has_all_its_records_is_not_measured_again() -> None:
    first = (timed(FIRST, SMALL, 5.0), timed(FIRST, LARGE, 6.0), timed(FIRST, SPLIT, 4.0))
    second = (timed(SECOND, SMALL, 5.0), failed(SECOND, LARGE))
    assert left(*first, *second) == []
    assert left(*first) == ["batch 1: conv128"]
    assert left(*first, second[0]) == ["batch 1: conv128"]


def test_a_failure_is_a_record_like_any_other() -> None:
    assert left(*(failed(SECOND, c, Status.NOT_COMPILED) for c in (SMALL, LARGE))) == ["batch 1: conv64"]


def test_variants_count_where_their_trial_leads() -> None:
    assert left(timed(FIRST, SMALL, 5.0), timed(FIRST, LARGE, 6.0)) == ["batch 1: conv64", "batch 1: conv128"]
    assert left(failed(FIRST, SMALL), timed(FIRST, LARGE, 6.0)) == ["batch 1: conv128"]


def test_records_of_another_device_or_toolchain_do_not_count() -> None:
    records = [timed(SECOND, SMALL, 5.0), timed(SECOND, LARGE, 5.0)]
    assert left(*records) == ["batch 1: conv64"]
    for other in (OTHER_TOOLS, NEW_DRIVER, H200):
        assert left(*records, here=other) == ["batch 1: conv64", "batch 1: conv128"]


def deciding(*pairs: tuple[Fingerprint, Record], foreign: bool = False, tools: bool = True) -> list[float]:
    found = comparable(pairs, A100, TOOLS if tools else None, foreign=foreign)
    return [record.statistics.median for _, record in found if record.statistics is not None]


def test_the_present_toolchain_decides_where_it_has_times() -> None:
    old, new = (OTHER_TOOLS, timed(SECOND, SMALL, 5.0)), (HERE, timed(SECOND, SMALL, 6.0))
    assert deciding(old, new) == [6.0]
    assert deciding(old) == [5.0]
    assert deciding(old, (HERE, failed(SECOND, SMALL))) == [5.0]
    assert deciding(old, new, tools=False) == [5.0, 6.0]


def test_each_problem_by_itself() -> None:
    assert deciding((OTHER_TOOLS, timed(FIRST, SMALL, 5.0)), (HERE, timed(SECOND, SMALL, 6.0))) == [5.0, 6.0]


def test_the_newest_driver_decides() -> None:
    pairs = ((HERE, timed(SECOND, SMALL, 5.0)), (NEW_DRIVER, timed(SECOND, SMALL, 6.0)))
    assert deciding(*pairs) == deciding(*reversed(pairs)) == [6.0]


def test_times_of_another_gpu_count_only_where_the_recipe_says_so() -> None:
    pair = (H200, timed(SECOND, SMALL, 5.0))
    assert deciding(pair) == []
    assert deciding(pair, foreign=True) == [5.0]


def test_a_target_without_names_of_devices_takes_any() -> None:
    assert A100.gpu is not None
    assert A100.is_device("NVIDIA A100-PCIE-40GB")
    assert not A100.is_device("NVIDIA A10")
    assert replace(A100, gpu=replace(A100.gpu, device_names=())).is_device("anything")
    assert not target_named("host").is_device("NVIDIA A100-PCIE-40GB")
