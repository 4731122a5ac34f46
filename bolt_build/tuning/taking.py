"""Measuring a bundle's works on all lanes, and taking what comes of each into the records as it comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bolt_build.build.files import told, unlink, write_text
from bolt_build.errors import Diagnostic
from bolt_build.tuning.agenda import Agenda
from bolt_build.tuning.exchange.bundle import Bundle
from bolt_build.tuning.exchange.merging import merged
from bolt_build.tuning.exchange.results import Results, results_of, results_text
from bolt_build.tuning.importing import adopt
from bolt_build.tuning.lanes.measuring import Ended, measure_all
from bolt_build.tuning.lanes.work import Answer, Lane, Work
from bolt_build.tuning.store import TuningStore


@dataclass(frozen=True)
class Taken:
    """How many candidates and whole engines have new records, notes about what does not count, and how it ended."""

    candidates: int
    engines: int
    notes: tuple[Diagnostic, ...]
    ended: Ended


@dataclass
class Taking:
    """What is measured of `bundle` goes into `store`, and for people into the file at `path`."""

    plan: Agenda
    store: TuningStore
    bundle: Bundle
    path: Path
    _pieces: dict[Work, Results] = field(default_factory=dict)
    _notes: dict[Diagnostic, None] = field(default_factory=dict)
    _candidates: set[tuple[str, str, str]] = field(default_factory=set)
    _engines: set[tuple[str, str, str]] = field(default_factory=set)

    def measured(self, works: Sequence[Work], lanes: Sequence[Lane], say: Callable[[str], None]) -> Taken:
        """Measure the works, each GPU for as long as the recipe says. Raises BoltError."""
        with told(self.path):
            unlink(self.path)
        try:
            ended = measure_all(works, lanes, self.plan.recipe.tuning.budget, self._take, say)
        finally:
            if self._pieces:
                with told(self.path):
                    write_text(self.path, results_text(merged(list(self._pieces.values()))))
        return Taken(len(self._candidates), len(self._engines), tuple(self._notes), ended)

    def _of(self, results: Results) -> Bundle:
        """The bundle, without what did not compile of the problems that others measure."""
        others = {each.problem.digest for each in self.bundle.problems} - {row.problem for row in results.rows}
        return replace(self.bundle, not_compiled=tuple(r for r in self.bundle.not_compiled if r.problem not in others))

    def _take(self, work: Work, answer: Answer) -> None:
        if not answer.results:
            return
        results = results_of(answer.results, self.path)
        adopted = adopt(
            results, self.path, self._of(results), self.plan.problems, self.plan.target,
            foreign=self.plan.recipe.tuning.foreign,
        )  # fmt: skip
        # The team gets them with the rest: each gift asks its store first.
        self.store.merge(adopted.measurements, adopted.engines, give=not answer.part)
        self._pieces[work] = results
        if not answer.part:
            self._notes |= dict.fromkeys(adopted.notes)
        self._candidates |= {(f.digest, record.problem, record.candidate.digest) for f, record in adopted.measurements}
        self._engines |= {(f.digest, record.table, record.key) for f, record in adopted.engines}
