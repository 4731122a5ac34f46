"""Asks workers of a Dask scheduler, and asks again where one is lost.

A worker that dies, or a scheduler that restarts, costs a retry. Where no scheduler answers any more, whoever asked is
told so.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

from bolt_build.errors import BoltError, Diagnostic, ExitCode

INSTALL = "python -m pip install distributed"
_LEAST = (2025, 4)
"""From this version on a client is told of five workers unless it asks for all, which it could not ask for before."""

LOCAL = "local"
"""In place of an address: workers on this machine, one for each task at once, for as long as the build takes."""

ATTEMPTS = 6
"""How often something is sent that gets lost on the way."""

_FIRST_SECONDS = 5.0
"""How long a scheduler may take to answer first."""

_RESTART_SECONDS = 60.0
"""How long one that has answered may take to come back."""

_WORKERLESS_SECONDS = 30.0
"""How long a scheduler may be without any worker: those of one that restarts come a little later."""

_POLL_SECONDS = 0.25
_LOOK_SECONDS = 1.0
"""How old may be what is known of the workers while something is waited for: each look asks the scheduler."""

_RETRY_SECONDS = 0.5
_LOOPBACK = ("localhost", "127.0.0.1", "::1")

_Asked = TypeVar("_Asked")
_Given = TypeVar("_Given")


class Stopped(Exception):
    """Whoever asked does not want to know any more."""


class Lost(Exception):
    """What was sent was lost as often as it may be: nobody knows what became of it. Its text is why, the last time."""


class NoScheduler(Exception):
    """The scheduler does not answer any more."""


class NoWorker(Exception):
    """No worker is left that can be asked."""


@dataclass
class DaskScheduler:
    """A scheduler, by its address. Thread-safe. `stopping` says that nobody waits for answers any more, `workerless`
    for how many seconds a scheduler may be without any worker."""

    address: str
    stopping: Callable[[], bool]
    workerless: float = _WORKERLESS_SECONDS
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _client: Any = None
    _known: bool = False
    _gone: bool = False
    _looking: threading.Lock = field(default_factory=threading.Lock)
    _seen: dict[str, Any] = field(default_factory=dict)
    _looked: float = 0.0

    def ask(
        self,
        question: Callable[[_Asked], _Given],
        about: _Asked,
        *,
        refused: Collection[str] = (),
        resource: str | None = None,
        worker: str | None = None,
    ) -> tuple[_Given, str]:
        """What `question(about)` gives on a worker, and the worker's address.

        Only workers that declare `resource` are asked, each as often at once as it has of it; none of `refused`; or
        `worker` alone, and once. Raises Stopped, NoScheduler, NoWorker, Lost.
        """
        why = ""
        for attempt in range(ATTEMPTS if worker is None else 1):
            client = self._connected()
            if client is None:
                raise NoScheduler(self.address)
            try:
                return self._asked(client, question, about, refused, resource, worker)
            except _Lost as lost:
                why = str(lost)
                self._pause(_RETRY_SECONDS * 2**attempt)
        raise Lost(why)

    def workers(self, resource: str | None = None) -> tuple[str, ...]:
        """Addresses of the workers there are now, those that declare `resource`. Raises Stopped, NoScheduler."""
        client = self._connected()
        if client is None:
            raise NoScheduler(self.address)
        return tuple(self._alive(client, resource))

    def close(self) -> None:
        with self._lock:
            client, self._client, self._gone = self._client, None, True
        if client is not None:
            with contextlib.suppress(Exception):
                client.close(timeout=1)

    def _asked(
        self,
        client: Any,
        question: Callable[[_Asked], _Given],
        about: _Asked,
        refused: Collection[str],
        resource: str | None,
        worker: str | None,
    ) -> tuple[_Given, str]:
        """Raises Stopped, NoWorker, _Lost."""
        workers = None if worker is None else [worker]
        try:
            if refused and worker is None:
                workers = [each for each in self._alive(client, resource) if each not in refused]
                if not workers:
                    raise NoWorker(self.address)
            needs = None if resource is None else {resource: 1}
            future = client.submit(_answered, question, about, pure=False, retries=1, workers=workers, resources=needs)
            end = time.monotonic() + self.workerless
            while True:
                try:
                    found: tuple[_Given, str] = future.result(timeout=_POLL_SECONDS)
                    return found
                except TimeoutError:
                    if self.stopping():
                        future.cancel()
                        raise Stopped from None
                    if client.status != "running":
                        raise _Lost("the connection ended") from None
                    alive = self._alive(client, resource, _LOOK_SECONDS)
                    if any(workers is None or each in workers for each in alive):
                        end = time.monotonic() + self.workerless
                    elif alive:  # not those that it was sent to: a lost one waits for them for ever
                        future.cancel()
                        raise _Lost("its worker ended") from None
                    elif time.monotonic() > end:
                        future.cancel()
                        raise NoWorker(self.address) from None
        except (Stopped, NoWorker, _Lost):
            raise
        except Exception as error:
            # Whatever the library raises of a lost worker, scheduler or connection, or a worker of a full disk.
            raise _Lost(f"{type(error).__name__}: {error}") from error

    def _alive(self, client: Any, resource: str | None, age: float = 0.0) -> Sequence[str]:
        """The workers that declare `resource`, as they were at most `age` seconds ago."""
        with self._looking:
            if time.monotonic() - self._looked >= age:
                self._seen = client.scheduler_info(n_workers=-1)["workers"]
                self._looked = time.monotonic()
            known = self._seen
        return [each for each, of in known.items() if resource is None or of.get("resources", {}).get(resource, 0) >= 1]

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


class _Lost(Exception):
    """A question, or the connection, was lost: nobody knows what became of it."""


def _answered(question: Callable[[_Asked], _Given], about: _Asked) -> tuple[_Given, str]:
    return question(about), str(_library().get_worker().address)


def worker_folder() -> str:
    """Where the worker that this runs on may keep files. Dask removes what one that was killed has left."""
    return str(_library().get_worker().local_directory)


def check_scheduler(address: str) -> None:
    """Raises BoltError ("missing-library", "old-library"), and "open-scheduler" for an address outside this machine
    without TLS: whoever reaches a scheduler runs what he likes on its workers, and puts what he likes into engines."""
    try:
        version = str(_library().__version__)
    except ImportError as error:
        message = "the executor dask needs distributed, which is not installed"
        raise BoltError([Diagnostic("missing-library", message, hint=INSTALL)], ExitCode.TOOL_MISSING) from error
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < _LEAST:
        message = (
            f"the executor dask needs distributed {'.'.join(map(str, _LEAST))} or newer, and {version} is installed"
        )
        raise BoltError(
            [Diagnostic("old-library", message, hint=f"{INSTALL} --upgrade")], ExitCode.TOOL_MISSING
        )  # fmt: skip
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
