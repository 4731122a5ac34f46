"""Workers say of each case how it violates, whatever it does to the process, and go on with the next."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import fuzz
import pytest
from fuzzing.case import Case, Limits, Violation, random_of
from fuzzing.commands import bolt_build, program
from fuzzing.supervisor import Order, Worker, run

KIND = "fuzzing.misbehaving"
LIMITS = Limits(cpu=0.5, wall=120.0, memory=250_000_000)
IMPATIENT = Limits(cpu=120.0, wall=3.0, memory=250_000_000)
VIOLATIONS = {
    "good": None,
    "says so": "this must not be",
    "raises": "KeyError: 'lost'",
    "ends the process": "the process ended with -9",
    "waits": "is not done after 3 s, and was ended",
    "computes": "takes over 0 s of CPU time, and was ended",
    "takes memory": "takes 3",
}


def test_every_way_to_violate_is_found(tmp_path: Path) -> None:
    module = fuzz.kind(KIND)
    numbers = {module.case(random_of(KIND, 0, number)).about: number for number in range(40)}
    assert set(numbers) == set(VIOLATIONS)
    answers = {}
    for about, number in numbers.items():
        limits = IMPATIENT if about == "waits" else LIMITS
        with closing(Worker(tmp_path / str(number), limits)) as worker:
            (answers[about],) = worker.run(Order(KIND, 0, number, 1))
    for about, expected in VIOLATIONS.items():
        found = answers[about]
        assert (found.violation is None) if expected is None else (expected in (found.violation or "")), found
        assert found.kept is None or Path(found.kept).is_dir()


@pytest.mark.large
def test_all_cases_are_counted_though_workers_end(tmp_path: Path) -> None:
    count, said = 6, list[str]()
    tally = run([(KIND, count)], 1, 2, tmp_path, IMPATIENT, said.append)[KIND]
    about = [fuzz.kind(KIND).case(random_of(KIND, 1, number)).about for number in range(count)]
    assert tally.cases == sum(tally.outcomes.values()) == count
    assert sorted(answer.number for answer in tally.violations) == [n for n, what in enumerate(about) if what != "good"]
    assert tally.outcomes["violation"] == len(tally.violations) == len(said) - 1


def test_a_command_that_fails_otherwise_than_it_may_violates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Case("", (("recipe.yaml", b"bolt: 1\n"),)).write(tmp_path)
    assert bolt_build("check", "recipe.yaml").code == 3
    with pytest.raises(Violation, match=r"^exit 3 of check recipe.yaml: recipe.yaml:1:1: error\[missing-key\]"):
        bolt_build("check", "recipe.yaml", codes=(0,))
    with pytest.raises(Violation, match=r"^\d+ characters are written: recipe.yaml"):
        bolt_build("check", "recipe.yaml", most_text=10)


def test_a_programs_signal_and_its_waiting_violate() -> None:
    with pytest.raises(Violation, match=r"^signal 11 ends sh: $"):
        program(["sh", "-c", "kill -11 $$"])
    with pytest.raises(Violation, match=r"^sleep is not done after 0 s$"):
        program(["sleep", "9"], seconds=0.1)
