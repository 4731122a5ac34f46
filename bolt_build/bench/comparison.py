"""What a contest finds: one result a contestant and batch."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bolt_build.bench.device import DeviceState
from bolt_build.bench.process import Ready
from bolt_build.bench.rounds import Round
from bolt_build.digest import UNSAID
from bolt_build.errors import ExitCode
from bolt_build.graph.ir import Array
from bolt_build.sizes import Dims, Sizes
from bolt_build.verify.compare import cosine, difference

COMPARISON_VERSION = 1
LEAST_COSINE, MOST_RMS = 0.99, 0.1
"""Beyond these a contestant computes something else: 16-bit arithmetic alone stays well within."""


@dataclass(frozen=True)
class Agreement:
    """An output beside the engine's: cosine of the two as vectors, the largest difference, and the root mean square of
    the difference in standard deviations of the engine's. `not_finite` counts NaN and infinity."""

    output: str
    cosine: float
    max_abs: float
    rms: float
    not_finite: int

    @property
    def ok(self) -> bool:
        return self.cosine >= LEAST_COSINE and self.rms <= MOST_RMS and not self.not_finite


@dataclass(frozen=True)
class Measured:
    """A contestant that ran. Times are milliseconds a run of the whole batch, of all rounds together; beside them
    stands the median of each round, with the device's state when it began. `p99_ms` is None for fewer than 100 runs.

    `images_per_second` is that of the median; `sustained_images_per_second` that of runs back to back, and
    `joules_per_image` the energy per inference of one image that the whole device used meanwhile. `memory_bytes` is
    what the contestant holds, its device context not counted. `engine_speedup` is this median over the engine's, or how
    many times as fast the engine is. `wrong` says what its outputs lack to be compared with the engine's.
    """

    name: str
    batch: int
    library: str
    precision: str
    form: str
    runs: int
    median_ms: float
    p99_ms: float | None
    min_ms: float
    round_medians_ms: tuple[float, ...]
    states: tuple[DeviceState, ...]
    images_per_second: float
    sustained_images_per_second: float | None
    joules_per_image: float | None
    memory_bytes: int
    setup_seconds: float
    compile_seconds: float | None
    engine_speedup: float
    agreement: tuple[Agreement, ...]
    wrong: str | None
    dims: Dims = field(default=(), metadata=UNSAID)

    @property
    def agrees(self) -> bool:
        return self.wrong is None and all(output.ok for output in self.agreement)


@dataclass(frozen=True)
class Failed:
    """A contestant that did not run, or not to the end. `missing` says that a package is not installed, and `hint` how
    to mend that; `log` holds the last lines that it printed."""

    name: str
    batch: int
    reason: str
    missing: bool
    hint: str
    log: tuple[str, ...]
    dims: Dims = field(default=(), metadata=UNSAID)


@dataclass(frozen=True)
class Comparison:
    """A whole contest. `threads`: CPU threads of every contestant, None where runs take none (0: as many as there are).
    `no_energy` says why there is no figure of energy. `cut_off`: it was interrupted, and has what was measured until
    then."""

    version: int
    name: str
    target: str
    precision: str
    device: str
    threads: int | None
    rounds: int
    no_energy: str | None
    results: tuple[Measured | Failed, ...]
    cut_off: bool = field(default=False, metadata=UNSAID)

    @property
    def exit_code(self) -> ExitCode:
        """130 where it was cut off, else 7 where a package is missing, else 4 where a contestant failed, else 5
        where one computes something else."""
        if self.cut_off:
            return ExitCode.INTERRUPTED
        failed = [result for result in self.results if isinstance(result, Failed)]
        if failed:
            return ExitCode.TOOL_MISSING if any(result.missing for result in failed) else ExitCode.TASK_FAILED
        departs = any(isinstance(result, Measured) and not result.agrees for result in self.results)
        return ExitCode.VERIFY_FAILED if departs else ExitCode.OK


def worst_exit_code(comparisons: Iterable[Comparison]) -> ExitCode:
    """That of several contests together."""
    codes = {comparison.exit_code for comparison in comparisons}
    ranked = (ExitCode.INTERRUPTED, ExitCode.TOOL_MISSING, ExitCode.TASK_FAILED, ExitCode.VERIFY_FAILED)
    return next((code for code in ranked if code in codes), ExitCode.OK)


@dataclass(frozen=True)
class Performance:
    """All that one contestant has shown for a batch."""

    name: str
    ready: Ready
    rounds: tuple[Round, ...]
    outputs: Mapping[str, Array]

    @property
    def median_ms(self) -> float:
        return statistics.median(time for turn in self.rounds for time in turn.times_ms)


def measured(sizes: Sizes, shown: Performance, engine: Performance) -> Measured:
    """The result of one contestant, its outputs compared with the engine's."""
    times = sorted(time for turn in shown.rounds for time in turn.times_ms)
    sustained = [turn.sustained for turn in shown.rounds if turn.sustained is not None]
    runs, seconds = sum(s.runs for s in sustained), sum(s.seconds for s in sustained)
    energies = [s.joules for s in sustained if s.joules is not None]
    told = bool(energies) and len(energies) == len(sustained)
    agreement, wrong = _compared(shown.outputs, engine.outputs)
    ready, batch = shown.ready, sizes.batch
    return Measured(
        name=shown.name, batch=batch, library=ready.library, precision=ready.precision, form=ready.form,
        runs=len(times), median_ms=shown.median_ms, p99_ms=_p99(times), min_ms=times[0],
        round_medians_ms=tuple(statistics.median(turn.times_ms) for turn in shown.rounds),
        states=tuple(turn.state for turn in shown.rounds),
        images_per_second=1e3 * batch / shown.median_ms,
        sustained_images_per_second=batch * runs / seconds if sustained else None,
        joules_per_image=sum(energies) / (runs * batch) if told else None,
        memory_bytes=ready.memory_bytes, setup_seconds=ready.setup_seconds, compile_seconds=ready.compile_seconds,
        engine_speedup=shown.median_ms / engine.median_ms, agreement=agreement, wrong=wrong,
        dims=sizes.dims,
    )  # fmt: skip


def _p99(ordered: Sequence[float]) -> float | None:
    """The least time that at least 99 in 100 runs did not exceed; None where there were not 100."""
    return ordered[int(np.ceil(0.99 * len(ordered))) - 1] if len(ordered) >= 100 else None


def _compared(outputs: Mapping[str, Array], engine: Mapping[str, Array]) -> tuple[tuple[Agreement, ...], str | None]:
    """Each output that both have, and what keeps others from being compared."""
    found, wrong = [], []
    for name, wanted in engine.items():
        if name not in outputs:
            wrong.append(f"it has no output '{name}'")
        elif outputs[name].shape != wanted.shape:
            shapes = f"{list(outputs[name].shape)}, the engine's {list(wanted.shape)}"
            wrong.append(f"its output '{name}' is {shapes}")
        else:
            array = outputs[name]
            apart = difference(array, wanted)
            found.append(Agreement(name, cosine(array, wanted), apart.max_abs, apart.rms, apart.not_finite))
    return tuple(found), "; ".join(wrong) or None
