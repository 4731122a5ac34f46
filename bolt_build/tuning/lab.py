"""Where a tuning measures: on the GPUs of this machine, or on those that the workers of a Dask scheduler own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from bolt_build.build.layout import TuningDirectory
from bolt_build.build.remote.dask import LOCAL, DaskScheduler, NoScheduler
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.lockfile.fingerprint import Device
from bolt_build.schema.recipe import Recipe, TargetSpec
from bolt_build.targets import Target, target_named
from bolt_build.toolchain.machine import found_gpus, why_not_here
from bolt_build.tuning.exchange.bundle import CANDIDATES, RUN
from bolt_build.tuning.lanes.gpu import Gpu
from bolt_build.tuning.lanes.work import Lane
from bolt_build.tuning.lanes.workers import GpuWorkers, declared, resource_of
from bolt_build.tuning.this_machine import FoundDevice, devices_of


class Lab(Protocol):
    """`devices` are its GPUs, one each; `most` the problems that are measured in one go."""

    @property
    def most(self) -> int: ...
    @property
    def devices(self) -> tuple[Device, ...]: ...

    def lanes(self) -> Sequence[Lane]:
        """What measures with the directory's `candidates.so`, as it is now."""


@dataclass(frozen=True)
class _Here:
    """A driver has CUDA to start first, which takes as long as a problem: it measures several."""

    most: ClassVar[int] = 16
    directory: TuningDirectory
    found: tuple[FoundDevice, ...]

    @property
    def devices(self) -> tuple[Device, ...]:
        return tuple(each.device for each in self.found)

    def lanes(self) -> Sequence[Lane]:
        path = self.directory.path
        return [Gpu(each, path / RUN, path / CANDIDATES, path) for each in self.found]


@dataclass(frozen=True)
class _Elsewhere:
    """A problem is a task, so that a worker that is lost costs no other one."""

    most: ClassVar[int] = 1
    directory: TuningDirectory
    workers: GpuWorkers
    found: tuple[FoundDevice, ...]

    @property
    def devices(self) -> tuple[Device, ...]:
        return tuple(each.device for each in self.found)

    def lanes(self) -> Sequence[Lane]:
        path = self.directory.path
        try:
            return self.workers.lanes(path / RUN, path / CANDIDATES)
        except NoScheduler as error:
            raise _no_gpu(f"the scheduler {error} does not answer any more") from error


@contextlib.contextmanager
def lab(
    scheduler: str | None, directory: TuningDirectory, target: Target, say: Callable[[str], None], *, foreign: bool
) -> Iterator[Lab]:
    """The GPUs that are the target's (`foreign`: all), of this machine where `scheduler` is None; until the block ends.
    The directory has the driver. Raises BoltError ("no-gpu"), exit code 7, where there is none."""
    if scheduler is None:
        yield _Here(directory, devices_of(directory.path / RUN, target, foreign=foreign))
        return
    ended = threading.Event()
    asked = DaskScheduler(scheduler, ended.is_set)
    workers = GpuWorkers(asked, target.name, foreign, say, ended.set)
    try:
        try:
            found = workers.found(directory.path / RUN)
        except NoScheduler as error:
            raise _no_gpu(f"the scheduler {error} does not answer") from error
        if not found:
            raise _no_gpu(f"no worker of {scheduler} that declares {resource_of(target.name)} has such a GPU")
        yield _Elsewhere(directory, workers, found)
    finally:
        ended.set()
        asked.close()


def lab_of(recipe: Recipe, spec: TargetSpec, scheduler: str | None, say: Callable[[str], None]) -> str | None:
    """The scheduler whose workers are to measure, None where that is done here: known before anything is compiled.

    Workers that are started here have no GPU of their own. Raises BoltError where there is no GPU of the target
    anywhere: times of another would be other ones.
    """
    here = _why_not_here(recipe, spec)
    there = None
    if scheduler is not None and scheduler != LOCAL:
        count, resource = declared(scheduler, spec.name), resource_of(spec.name)
        if count:
            who = "one worker" if count == 1 else f"{count} workers"
            say(f"measurements are for {who} of {scheduler} with {resource}")
            return scheduler
        there = f"no worker of {scheduler} declares {resource}"
        if count is None:
            there = f"the scheduler {scheduler} does not answer"
        if here is None:
            say(f"{there}: the GPUs of this machine measure")
    if here is None:
        return None
    raise BoltError([_nowhere(recipe, spec, scheduler, here, there)], ExitCode.TOOL_MISSING)


def _why_not_here(recipe: Recipe, spec: TargetSpec) -> str | None:
    target = target_named(spec.name)
    why = why_not_here(target)
    names = [gpu.name for gpu in found_gpus()]
    if why is None and not recipe.tuning.foreign and not any(target.is_device(name) for name in names):
        why = f"the GPU here is {names[0]}"
    return why


def _nowhere(recipe: Recipe, spec: TargetSpec, scheduler: str | None, here: str, there: str | None) -> Diagnostic:
    mark = recipe.mark(f"targets.{spec.name}")
    if there is None:
        message = f"candidates for {spec.name} cannot be measured here: {here}"
        hint = (
            "compile them here with --export BUNDLE.tar, run the bundle on a machine with the GPU and --import its "
            "results.jsonl; or choose from earlier measurements with --from-records"
        )
        return Diagnostic("no-gpu", message, mark, hint)
    message = f"candidates for {spec.name} cannot be measured: {there}, and {here}"
    hint = (
        "start a worker for each GPU, on the machine that has it: CUDA_VISIBLE_DEVICES=0 dask worker "
        f"{scheduler} --nthreads 1 --resources {resource_of(spec.name)}=1"
    )
    return Diagnostic("no-gpu-worker", message, mark, hint)


def _no_gpu(why: str) -> BoltError:
    hint = "what was measured stays: start the workers again, and tune again"
    return BoltError([Diagnostic("no-gpu", f"nothing can be measured: {why}", hint=hint)], ExitCode.TOOL_MISSING)
