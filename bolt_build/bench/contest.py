"""Runs a contest: batch by batch, all contestants in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np

from bolt_build.bench.comparison import COMPARISON_VERSION, Comparison, Failed, Measured, Performance, measured
from bolt_build.bench.contestant import Effort, PeerFailed, Setup
from bolt_build.bench.opponent import Opponent
from bolt_build.bench.peers import ENGINE, check_peers
from bolt_build.bench.process import NotReady, Ready
from bolt_build.bench.rounds import Round
from bolt_build.bench.turns import order
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import Array
from bolt_build.graph.zoo.samples import sample
from bolt_build.planner.engine_plan import BatchPlan, EnginePlan
from bolt_build.scratch import scratch_folder
from bolt_build.sizes import Dims, Sizes
from bolt_build.targets import target_named
from bolt_build.verify.index_ranges import index_ranges

_COARSEST = {"fp32": np.dtype(np.float32), "fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


@dataclass(frozen=True)
class Contest:
    """A built engine and who runs against it. `batches` are some of the engine's, and `only` has extents of dimensions
    that have several, where not all count; `dims` are those of the recipe's model that have one. `threads` CPU threads
    for every contestant, 0 for as many as there are."""

    plan: EnginePlan
    library: Path
    weights: Path
    model: Path
    dims: tuple[tuple[str, int], ...]
    seed: int
    peers: tuple[str, ...]
    batches: tuple[int, ...]
    threads: int = 0
    effort: Effort = field(default_factory=Effort)
    only: Dims = ()

    @property
    def chosen(self) -> tuple[BatchPlan, ...]:
        """The plans that are timed, in the order of the batches."""
        return tuple(
            plan
            for batch in self.batches
            for plan in self.plan.plans
            if plan.batch == batch and plan.sizes.has(self.only)
        )


@dataclass
class _Seat:
    """A contestant while its batch is on."""

    opponent: Opponent
    ready: Ready
    rounds: list[Round] = field(default_factory=list)


def compete(contest: Contest, say: Callable[[str], None]) -> Comparison:
    """Measures the engine and every peer; `say` is told what goes on, a sentence at a time.

    A peer that fails is a result with its reason. An interrupt ends it with what was measured until then, a first turn
    of the engine at least. Raises BoltError: with exit code 2 for an unknown peer, 4 where the engine itself does not
    run; KeyboardInterrupt where nothing was measured. No process is left behind, whatever ends it.
    """
    check_peers(contest.peers)
    results: list[Measured | Failed] = []
    ready: list[Ready] = []
    cut_off = False
    for plan in contest.chosen:
        heat = _Heat(contest, plan, say, _given_up(results))
        try:
            found, first = heat.run()
        except KeyboardInterrupt:
            if not results:
                raise
            cut_off = True
            break
        results += found
        ready.append(first)
        if cut_off := heat.cut_off:
            break
    target = target_named(contest.plan.target)
    return Comparison(
        COMPARISON_VERSION, contest.plan.name, contest.plan.target, contest.plan.precision, ready[0].device,
        contest.threads if target.runs_on_threads else None, contest.effort.rounds, ready[0].no_energy,
        tuple(results), cut_off,
    )  # fmt: skip


def inputs_of(plan: EnginePlan, batch: int, seed: int, dims: Dims = ()) -> list[Array]:
    """Seeded inputs of a batch (with these extents of dimensions that have several), in the order of the ports.
    Floating-point ones are f32, numbers that the engine's precision has exactly, so that rounding gives no contestant
    other ones; whole ones are indices that lie inside."""
    (batch_plan,) = (each for each in plan.plans if each.sizes == Sizes(batch, dims))
    coarsest, ranges = _COARSEST[plan.precision], index_ranges(batch_plan)
    found: list[Array] = []
    for index, port in enumerate(batch_plan.inputs):
        kind = port.operand.type
        if kind.dtype.is_float:
            found.append(sample(kind.shape, seed, batch, 0, index).astype(coarsest).astype(np.float32))
        else:
            drawn = np.random.RandomState([seed, batch, 0, index])
            found.append(drawn.randint(0, ranges.get(port.name, 2), kind.shape).astype(numpy_dtype(kind.dtype)))
    return found


def _given_up(results: Sequence[Measured | Failed]) -> dict[str, Failed]:
    """Contestants whose package is missing: it will be for the next batch too."""
    return {result.name: result for result in results if isinstance(result, Failed) and result.missing}


class _Heat:
    """All contestants on one batch. They get ready one after the other, alone on the machine; then they take turns."""

    def __init__(
        self, contest: Contest, plan: BatchPlan, say: Callable[[str], None], given_up: dict[str, Failed]
    ) -> None:
        self._contest, self._plan, self._say, self._given_up = contest, plan, say, given_up
        self._seats: dict[str, _Seat] = {}
        self._failed: dict[str, Failed] = {}
        self.cut_off = False

    def run(self) -> tuple[list[Measured | Failed], Ready]:
        """Results in the order of the peers, the engine first; and what the engine said when it was ready. After an
        interrupt they are of the turns until then, where the engine had one: otherwise KeyboardInterrupt is raised."""
        names = (ENGINE, *self._contest.peers)
        with scratch_folder() as files, ExitStack() as processes:
            inputs = files / "inputs.npz"
            np.savez(inputs, *inputs_of(self._contest.plan, self._plan.batch, self._contest.seed, self._plan.dims))
            try:
                for name in names:
                    self._seat(name, inputs, files, processes)
                for number in range(self._contest.effort.rounds):
                    self._round(number)
            except KeyboardInterrupt:
                if ENGINE not in self._seats or not self._seats[ENGINE].rounds:
                    raise
                self._leave_out_the_unmeasured(names)
            shown = {name: self._finish(name, seat) for name, seat in tuple(self._seats.items())}
        engine = shown[ENGINE]
        assert engine is not None
        results = [
            measured(self._plan.sizes, performance, engine) if (performance := shown.get(name)) else self._failed[name]
            for name in names
        ]
        return results, engine.ready

    def _leave_out_the_unmeasured(self, names: Sequence[str]) -> None:
        self.cut_off = True
        for name in names:
            if name not in self._failed and not (name in self._seats and self._seats[name].rounds):
                self._seats.pop(name, None)
                self._failed[name] = self._gone(name, NotReady("it was cut off before its first turn had ended"))

    def _seat(self, name: str, inputs: Path, files: Path, processes: ExitStack) -> None:
        if name in self._given_up:
            before = self._given_up[name]
            self._failed[name] = self._gone(name, before)
            return
        self._say(f"{self._plan.sizes}: {name} gets ready")
        own = files / name
        own.mkdir()
        opponent = processes.enter_context(Opponent(self._setup(name, inputs), own))
        try:
            ready = opponent.ready()
        except PeerFailed as failed:
            ready = NotReady(str(failed))
        if isinstance(ready, Ready):
            self._seats[name] = _Seat(opponent, ready)
        else:
            self._fail(opponent, ready)

    def _round(self, number: int) -> None:
        seats = tuple(self._seats.items())
        if not number:
            self._say(f"{self._plan.sizes}: {self._contest.effort.rounds} rounds of {', '.join(self._seats)}")
        for name, seat in order(seats, number):
            try:
                seat.rounds.append(seat.opponent.round())
            except PeerFailed as failed:
                del self._seats[name]
                self._fail(seat.opponent, NotReady(str(failed)))

    def _finish(self, name: str, seat: _Seat) -> Performance | None:
        try:
            return Performance(name, seat.ready, tuple(seat.rounds), seat.opponent.finish())
        except PeerFailed as failed:
            self._fail(seat.opponent, NotReady(str(failed)))
            return None

    def _fail(self, opponent: Opponent, why: NotReady) -> None:
        """Raises BoltError where it is the engine: there is nothing left to compare with."""
        log = opponent.log()
        if opponent.name == ENGINE:
            subject = str(self._contest.library)
            wrong = Diagnostic("engine-failed", f"{self._plan.sizes}: {why.reason}", subject=subject)
            raise BoltError([wrong], ExitCode.TASK_FAILED)
        self._failed[opponent.name] = self._gone(opponent.name, why, log)

    def _gone(self, name: str, why: NotReady | Failed, log: tuple[str, ...] = ()) -> Failed:
        log = why.log if isinstance(why, Failed) else log
        return Failed(name, self._plan.batch, why.reason, why.missing, why.hint, log, self._plan.dims)

    def _setup(self, name: str, inputs: Path) -> Setup:
        contest, plan = self._contest, self._plan
        return Setup(
            contestant=name, where=target_named(contest.plan.target).where, precision=contest.plan.precision,
            batch=plan.batch, threads=contest.threads, model=str(contest.model), dims=(*contest.dims, *plan.dims),
            library=str(contest.library), weights=str(contest.weights), inputs=str(inputs),
            input_names=tuple(port.name for port in plan.inputs), effort=contest.effort, chosen=plan.dims,
        )  # fmt: skip
