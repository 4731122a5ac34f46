"""What a team has measured, in its store: so that a fleet measures each problem once.

Each problem, and each table of an engine, has a log: `records/<p>/<problem>/0.json`, `1.json`, and so on, objects that
are created once and stay. Whoever measured something appends it. No store has to list what it holds, and two that
append at once get two numbers.

What was measured here comes before what others measured, and of others the first. So whoever takes the same log into
an empty cache chooses the same kernels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

from bolt_build.build.sharing.client import StoreClient
from bolt_build.build.sharing.store import Store, StoreTrouble
from bolt_build.digest import canonical_json, digest
from bolt_build.errors import BoltError
from bolt_build.lockfile.fingerprint import Fingerprint
from bolt_build.tuning.records.engine_record import EngineMeasurement, EngineRecord
from bolt_build.tuning.records.export import exported_data, exported_records
from bolt_build.tuning.records.kernel_record import Record

LARGEST_PAGE = 16 << 20
"""Bytes of one object: a problem has hundreds of candidates at most, of a kilobyte each."""

MOST_PAGES = 1000
"""Objects of one log that are read; a store that has no end is not read for ever."""

_ATTEMPTS = 100
"""How often somebody else may have been faster to append."""

_AT_ONCE = 8
"""Logs that are read at once: each is a few waits for a small answer."""

Measurement = tuple[Fingerprint, Record]


class Log(Enum):
    """What a log is of, and its folder."""

    PROBLEMS = "records"
    TABLES = "engines"


@dataclass
class _Read:
    """A log as far as it was read: what it says, and where the next page goes."""

    kernels: list[Measurement] = field(default_factory=list)
    engines: list[EngineMeasurement] = field(default_factory=list)
    pages: int = 0
    refused: list[str] = field(default_factory=list)


@dataclass
class SharedRecords:
    """A team's measurements. Trouble with the store is said, and ends nothing."""

    client: StoreClient
    say: Callable[[str], None]
    _read: dict[tuple[Log, str], _Read] = field(default_factory=dict)

    def unasked(self, kind: Log, names: Iterable[str]) -> tuple[str, ...]:
        """Those of `names` (digests) whose logs were not read yet, each once."""
        return tuple(name for name in dict.fromkeys(names) if (kind, name) not in self._read)

    def taken(
        self, problems: Sequence[str], tables: Sequence[str]
    ) -> tuple[list[Measurement], list[EngineMeasurement]]:
        """What the team has measured of problems and of engines with these tables, in the order of their logs."""
        logs = [*((Log.PROBLEMS, each) for each in problems), *((Log.TABLES, each) for each in tables)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for log, read in zip(logs, pool.map(self._whole, logs), strict=True):
                self._read[log] = read
        found = [self._read[log] for log in logs]
        for why in dict.fromkeys(why for each in found for why in each.refused):
            self.say(why)
        return [m for each in found for m in each.kernels], [e for each in found for e in each.engines]

    def give(self, kernels: Sequence[Measurement], engines: Sequence[EngineMeasurement]) -> None:
        """Append what the logs do not say, where this machine may."""
        by_log: dict[tuple[Log, str], tuple[list[Measurement], list[EngineMeasurement]]] = {}
        for kernel in kernels:
            by_log.setdefault((Log.PROBLEMS, kernel[1].problem), ([], []))[0].append(kernel)
        for engine in engines:
            by_log.setdefault((Log.TABLES, engine[1].table), ([], []))[1].append(engine)
        try:
            for log, found in by_log.items():
                self.client.give(partial(self._append, log=log, found=found))
        except StoreTrouble as trouble:
            self.say(f"{self.client.name} {trouble}: what is measured is not shared")

    def _whole(self, log: tuple[Log, str]) -> _Read:
        read = _Read()
        try:
            self.client.ask(partial(self._continue, log=log, read=read))
        except StoreTrouble as trouble:
            read.refused.append(f"{self.client.name} {trouble}: what others measured is not known")
        return read

    def _continue(self, store: Store, log: tuple[Log, str], read: _Read) -> None:
        """Read a log to its end. What is in a page that is not believed is left out, and said."""
        while read.pages < MOST_PAGES:
            name = _page(log, read.pages)
            text = store.read(name, LARGEST_PAGE)
            if text is None:
                return
            read.pages += 1
            try:
                kernels, engines = _believed(text, log)
            except (BoltError, ValueError) as error:
                read.refused.append(f"{name} in {self.client.name} is not taken: {error}")
                continue
            read.kernels += kernels
            read.engines += engines

    def _append(
        self, store: Store, log: tuple[Log, str], found: tuple[list[Measurement], list[EngineMeasurement]]
    ) -> None:
        read = self._read.setdefault(log, _Read())
        for _ in range(_ATTEMPTS):
            # Somebody else may have appended since.
            self._continue(store, log, read)
            known = {_line(*each) for each in read.kernels} | {_line(*each) for each in read.engines}
            kernels = [each for each in found[0] if _line(*each) not in known]
            engines = [each for each in found[1] if _line(*each) not in known]
            if not (kernels or engines) or read.pages >= MOST_PAGES:
                return
            if store.create(_page(log, read.pages), _text(exported_data(kernels, engines))):
                read.kernels, read.engines = [*read.kernels, *kernels], [*read.engines, *engines]
                read.pages += 1
                return


def _page(log: tuple[Log, str], number: int) -> str:
    kind, name = log
    return f"{kind.value}/{name[:2]}/{name}/{number}.json"


def _line(fingerprint: Fingerprint, record: Record | EngineRecord) -> str:
    return f"{fingerprint.digest} {canonical_json(record)}"


def _text(data: Mapping[str, Any]) -> bytes:
    return (json.dumps({"seal": digest(data), "data": data}, sort_keys=True) + "\n").encode()


def _believed(text: bytes, log: tuple[Log, str]) -> tuple[list[Measurement], list[EngineMeasurement]]:
    """What a page says, which must be of its log alone and as it was written. Raises ValueError, BoltError."""
    kind, name = log
    try:
        page = json.loads(text)
        sealed = page["seal"] == digest(page["data"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("it is damaged") from error
    if not sealed:
        raise ValueError("it was changed")
    kernels, engines = exported_records(page["data"], "it")
    of = {record.problem for _, record in kernels} if kind is Log.PROBLEMS else {record.table for _, record in engines}
    if of != {name} or (engines if kind is Log.PROBLEMS else kernels):
        raise ValueError("it is of something else")
    return kernels, engines
