"""Sends jobs to the workers of a Dask scheduler, and asks again where one is lost.

A worker that dies, or a scheduler that restarts, costs a retry. Where no scheduler answers any more, tasks run here.
Measured results do not pass through here: only compilations, which give the same bytes wherever they run.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from bolt_build.build.remote.job import Answer, Job
from bolt_build.errors import BoltError, Diagnostic, ExitCode

INSTALL = "python -m pip install distributed"
LOCAL = "local"
"""In place of an address: workers on this machine, one for each task at once, for as long as the build takes."""

ATTEMPTS = 6
"""How often a job is sent that gets lost on the way."""

_FIRST_SECONDS = 5.0
"""How long a scheduler may take to answer first."""

_RESTART_SECONDS = 60.0
"""How long one that has answered may take to come back."""

_WORKERLESS_SECONDS = 30.0
"""How long a scheduler may be without any worker: those of one that restarts come a little later."""

_POLL_SECONDS = 0.25
_RETRY_SECONDS = 0.5
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Stopped(Exception):
    """The build was interrupted while a job was away."""


@dataclass
class DaskExecutor:
    """A scheduler, by its address. Thread-safe. `stopping` says that the build ends, `workerless` for how many seconds
    a scheduler may be without any worker."""

    address: str
    stopping: Callable[[], bool]
    workerless: float = _WORKERLESS_SECONDS
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _client: Any = None
    _known: bool = False
    _gone: bool = False
    _told: set[str] = field(default_factory=set)

    def run(self, job: Job, note: Callable[[str], None]) -> Answer | None:
        """What became of a job; None where it must run here. Raises Stopped."""
        refused: set[str] = set()
        for attempt in range(ATTEMPTS):
            client = self._connected()
            if client is None:
                self._once(note, f"the scheduler {self.address} does not answer: what it does not do is done here")
                return None
            try:
                answer, worker = self._asked(client, job, refused)
            except _Lost:
                self._pause(_RETRY_SECONDS * 2**attempt)
                continue
            if answer is None:
                self._once(note, f"no worker of {self.address} can compile it: it is done here")
                return None
            if answer.refused:
                self._once(note, f"the worker {worker} {answer.refused}: it gets none of these")
                refused.add(worker)
                continue
            if answer.status < 0:
                continue  # something ended the compiler there: its own fault would be a status
            return answer
        self._once(note, f"the scheduler {self.address} has lost {job.name} {ATTEMPTS} times: it is done here")
        return None

    def close(self) -> None:
        with self._lock:
            client, self._client, self._gone = self._client, None, True
        if client is not None:
            with contextlib.suppress(Exception):
                client.close(timeout=1)

    def _asked(self, client: Any, job: Job, refused: set[str]) -> tuple[Answer | None, str]:
        """The answer of a worker that has not refused, and its address; None where there is none. Raises _Lost."""
        workers = None
        try:
            if refused:
                workers = [each for each in client.scheduler_info(n_workers=-1)["workers"] if each not in refused]
                if not workers:
                    return None, ""
            future = client.submit(_run_there, job, pure=False, retries=1, workers=workers)
            end = time.monotonic() + self.workerless
            while True:
                try:
                    found: tuple[Answer, str] = future.result(timeout=_POLL_SECONDS)
                    return found
                except TimeoutError:
                    if self.stopping():
                        future.cancel()
                        raise Stopped from None
                    if client.status != "running":
                        raise _Lost from None
                    alive = client.scheduler_info(n_workers=-1)["workers"]
                    if any(workers is None or each in workers for each in alive):
                        end = time.monotonic() + self.workerless
                    elif alive:  # not those that it was sent to: a lost one waits for them for ever
                        future.cancel()
                        raise _Lost from None
                    elif time.monotonic() > end:
                        future.cancel()
                        return None, ""
        except (Stopped, _Lost):
            raise
        except Exception as error:
            # Whatever the library raises of a lost worker, scheduler or connection, or a worker of a full disk.
            raise _Lost from error

    def _connected(self) -> Any:
        """The client, a new one where the scheduler came back; None where there is no scheduler. Raises Stopped."""
        library = _library()
        with self._lock:
            if self._client is not None and self._client.status == "running":
                return self._client
            logging.getLogger("distributed").setLevel(logging.CRITICAL)
            end = time.monotonic() + (_RESTART_SECONDS if self._known else _FIRST_SECONDS)
            while not self._gone and time.monotonic() < end:
                if self.stopping():
                    raise Stopped
                with contextlib.suppress(Exception):
                    if self._client is not None:
                        self._client.close(timeout=1)
                    self._client = None
                    self._client = library.Client(self.address, timeout=_FIRST_SECONDS, set_as_default=False)
                    self._known = True
                    return self._client
                self._pause(_RETRY_SECONDS)
            self._gone = True
            return None

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.stopping():
            time.sleep(0.05)

    def _once(self, note: Callable[[str], None], text: str) -> None:
        with self._lock:
            first = text not in self._told
            self._told.add(text)
        if first:
            note(text)


class _Lost(Exception):
    """A job, or the connection, was lost: nobody knows what became of it."""


def _run_there(job: Job) -> tuple[Answer, str]:
    # Only workers look for tools, which takes as long to import as all else here.
    from bolt_build.build.remote.worker import run_job

    return run_job(job), str(_library().get_worker().address)


def check_scheduler(address: str) -> None:
    """Raises BoltError ("missing-library"), and "open-scheduler" for an address outside this machine without TLS:
    whoever reaches a scheduler runs what he likes on its workers, and puts what he likes into engines."""
    try:
        _library()
    except ImportError as error:
        message = "the executor dask needs distributed, which is not installed"
        raise BoltError([Diagnostic("missing-library", message, hint=INSTALL)], ExitCode.TOOL_MISSING) from error
    parts = urlsplit(address if "://" in address else f"tcp://{address}")
    if address == LOCAL or parts.scheme == "tls" or parts.hostname in _LOOPBACK:
        return
    message = f"the scheduler {address} is reached without TLS: whoever is on the way can put code into engines"
    hint = (
        "start it with --protocol tls, and name it as tls://HOST:PORT; certificates are those of Dask's configuration"
    )
    raise BoltError([Diagnostic("open-scheduler", message, hint=hint)], ExitCode.USAGE)


@contextlib.contextmanager
def scheduler(address: str | None, workers: int) -> Iterator[str | None]:
    """The address of a scheduler: the one that is named, or that of workers which are started here and end with the
    block."""
    if address != LOCAL:
        yield address
        return
    library = _library()
    with library.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
    ) as cluster:  # fmt: skip
        yield str(cluster.scheduler_address)


def _library() -> Any:
    # It takes half a second to import, and only builds on other machines need it.
    return importlib.import_module("distributed")
