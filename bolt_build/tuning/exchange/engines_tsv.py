"""engines.tsv: the engine tables of a tuning, and what is known of the candidates of their problems, as the driver
reads them. `tables.h` of the driver describes its lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bolt_build.families.base import Candidate
from bolt_build.planner.engine_plan import Location
from bolt_build.tuning.trials.engine_table import EngineLineup
from bolt_build.tuning.trials.tuning_set import ProblemTrials

ENGINES_VERSION = 1
_LETTERS = {"arena": "a", "input": "i", "output": "o", "weight": "w"}

Medians = Mapping[tuple[str, Candidate], float]
"""Microseconds by problem digest and candidate."""


def engines_text(lineups: Sequence[EngineLineup], problems: Iterable[ProblemTrials], medians: Medians) -> str:
    """The text of the file. `problems` hold every problem of the plans and are those of the candidates.so that it is
    to be used with; candidates without a median take part where the driver measures them first.

    Raises KeyError for a problem of the plans that is not among `problems`.
    """
    by_digest = {each.problem.digest: each for each in problems}
    lines = [f"bolt-engines\t{ENGINES_VERSION}"]
    for digest in dict.fromkeys(problem for lineup in lineups for problem in lineup.problems):
        lines.append(f"problem\t{digest}")
        known = by_digest[digest]
        for trial in known.trials:
            candidate, changes = trial.candidate, known.changes(trial)
            median = medians.get((digest, candidate))
            time = "-" if median is None else f"{median:.9g}"
            lines.append(f"trial\t{candidate.digest}\t{candidate.family}\t{changes}\t{time}")
    for lineup in lineups:
        for table in lineup.tables:
            first = table == lineup.table
            lines.append(f"engine\t{table.digest}\t{table.batch}" if first else f"plan\t{table.digest}")
            for step in table.steps:
                places = "\t".join(",".join(map(_place, side)) for side in (step.inputs, step.outputs))
                lines.append(f"step\t{_plain(step.name)}\t{step.problem}\t{places}")
    return "\n".join(lines) + "\n"


def _place(location: Location) -> str:
    offset = f"+{location.offset}" if location.offset else ""
    return f"{_LETTERS[location.kind]}{location.at}{offset}"


def _plain(name: str) -> str:
    """Without what would end a field or a line."""
    return "".join(character if character.isprintable() else " " for character in name)
