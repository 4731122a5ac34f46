"""Every measurement that was made, in one SQLite file: nothing is measured twice, and choosing again needs no GPU.

Keyed by problem, candidate and fingerprint; those of whole engines by the engine's table, the kernels that it began
with, and fingerprint. A newer record of the same key replaces the older one. Several processes may use the file at
once. What cannot be read is never emptied: measurements are worth more than a build that goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from bolt_build.digest import canonical_json, decode
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.lockfile.fingerprint import Fingerprint, TuningTools
from bolt_build.tuning.records.engine_record import EngineMeasurement, EngineRecord
from bolt_build.tuning.records.export import exported_data, exported_records, newer_version
from bolt_build.tuning.records.kernel_record import RECORD_VERSION, Record

BUSY_SECONDS = 60.0
"""How long one process waits for another's transaction; each takes milliseconds."""

_TABLES = f"""
CREATE TABLE fingerprints (digest TEXT PRIMARY KEY, data TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE records (
    problem TEXT NOT NULL, candidate TEXT NOT NULL, fingerprint TEXT NOT NULL REFERENCES fingerprints (digest),
    status TEXT NOT NULL, data TEXT NOT NULL, PRIMARY KEY (problem, candidate, fingerprint)
) WITHOUT ROWID;
PRAGMA user_version = {RECORD_VERSION};
"""
_ENGINES = """
CREATE TABLE IF NOT EXISTS engines (
    engine TEXT NOT NULL, base TEXT NOT NULL, fingerprint TEXT NOT NULL REFERENCES fingerprints (digest),
    data TEXT NOT NULL, PRIMARY KEY (engine, base, fingerprint)
) WITHOUT ROWID;
"""
"""Beside what older programs know, which leave it alone: files of theirs get it with their first engine."""

_NEWER_RECORD = "DO UPDATE SET status = excluded.status, data = excluded.data WHERE data <> excluded.data"
_NEWER_ENGINE = "DO UPDATE SET data = excluded.data WHERE data <> excluded.data"

Measurement = tuple[Fingerprint, Record]


class Records:
    """A context manager over the file at `path`, which is made where there is none.

    Every method raises BoltError: "damaged-records" for a file that is no records file or not a whole one,
    "newer-version", and "records-trouble" for what the system refuses.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: sqlite3.Connection | None = None

    def __enter__(self) -> Records:
        with self._told():
            self._make()
            if self._path.stat().st_size == 0:
                raise self._damaged("it is empty")
            self._open = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
            try:
                self._check(self._open)
            except BaseException:
                self._open.close()
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def merge(self, fingerprint: Fingerprint, records: Iterable[Record]) -> int:
        """Keep records of one device and toolchain, all or none. Returns how many were not there before, or other."""
        return self._merge([(fingerprint, record) for record in records])

    def all(self, problems: Iterable[str]) -> tuple[Measurement, ...]:
        """The records of these problems (their digests), in the order of problem, candidate and fingerprint digests."""
        with self._told():
            wanted = sorted(set(problems))
            fingerprints = self._fingerprints()
            found = []
            query = "SELECT fingerprint, data FROM records WHERE problem = ? ORDER BY candidate, fingerprint"
            for problem in wanted:
                rows = self._connection.execute(query, (problem,))
                found += [(fingerprints[digest], self._record(data)) for digest, data in rows]
            return tuple(found)

    def merge_engines(self, found: Iterable[EngineMeasurement]) -> int:
        """Keep measurements of whole engines, all or none. Returns how many were not there before, or other."""
        return self._merge([], list(found))

    def engines(self, tables: Iterable[str] | None = None) -> tuple[EngineMeasurement, ...]:
        """The measurements of the engines of these tables (their digests; None: all), in the order of the digests of
        table, first kernels and fingerprint."""
        with self._told():
            known = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'engines'"
            if self._connection.execute(known).fetchone() is None:
                return ()
            fingerprints = self._fingerprints()
            query = "SELECT engine, fingerprint, data FROM engines ORDER BY engine, base, fingerprint"
            wanted = None if tables is None else set(tables)
            return tuple(
                (fingerprints[digest], self._engine(data))
                for engine, digest, data in self._connection.execute(query)
                if wanted is None or engine in wanted
            )

    def add(self, found: Iterable[Measurement], engines: Iterable[EngineMeasurement] = ()) -> int:
        """Keep what there is no record of yet, all or none; what there is stays. Returns how many were kept."""
        return self._merge(list(found), list(engines), "DO NOTHING", "DO NOTHING")

    def tell_apart(self, tools: TuningTools) -> None:
        """Note which headers each family has where records with these tools do not say it yet."""
        with self._told():
            silent = [
                (canonical_json(replace(known, tools=tools)), digest)
                for digest, known in self._fingerprints().items()
                if known.tools == tools and not known.tools.families
            ]
            if silent:
                with self._transaction() as connection:
                    connection.executemany("UPDATE fingerprints SET data = ? WHERE digest = ?", silent)

    def problems(self) -> tuple[str, ...]:
        """The digests of every problem that there is a record of, in order."""
        with self._told():
            rows = self._connection.execute("SELECT DISTINCT problem FROM records ORDER BY problem")
            return tuple(problem for (problem,) in rows)

    def export(self, problems: Iterable[str] | None = None) -> dict[str, Any]:
        """These problems' records (None: all), and those of engines of nothing but them, as JSON data with sorted
        contents: equal records give equal data."""
        wanted = None if problems is None else tuple(problems)
        found = self.all(self.problems() if wanted is None else wanted)
        engines = [
            (fingerprint, record) for fingerprint, record in self.engines()
            if wanted is None or {problem for problem, _ in record.base} <= set(wanted)
        ]  # fmt: skip
        return exported_data(found, engines)

    def load_export(self, data: Any, source: str = "the export") -> int:
        """Keep what `export` gave, all or none. Returns how many were not there before, or other.

        Raises BoltError ("bad-export", "newer-version") that calls the data `source`.
        """
        return self._merge(*exported_records(data, source))

    def _merge(
        self,
        found: list[Measurement],
        engines: Sequence[EngineMeasurement] = (),
        known_record: str = _NEWER_RECORD,
        known_engine: str = _NEWER_ENGINE,
    ) -> int:
        rows = [
            (record.problem, record.candidate.digest, fingerprint.digest, record.status.value, canonical_json(record))
            for fingerprint, record in found
        ]
        whole = [
            (record.table, record.key, fingerprint.digest, canonical_json(record)) for fingerprint, record in engines
        ]
        known = {fingerprint.digest: canonical_json(fingerprint) for fingerprint, _ in (*found, *engines)}
        with self._told(), self._transaction() as connection:
            if whole:
                connection.execute(_ENGINES)
            before = connection.total_changes
            connection.executemany("INSERT OR IGNORE INTO fingerprints VALUES (?, ?)", sorted(known.items()))
            added = connection.total_changes - before
            connection.executemany(f"INSERT INTO records VALUES (?, ?, ?, ?, ?) ON CONFLICT {known_record}", rows)
            connection.executemany(f"INSERT INTO engines VALUES (?, ?, ?, ?) ON CONFLICT {known_engine}", whole)
            return connection.total_changes - before - added

    @property
    def _connection(self) -> sqlite3.Connection:
        assert self._open is not None, "records are used inside 'with'"
        return self._open

    def _make(self) -> None:
        """Make the file under another name and link it to its own: an empty file there is a damaged one."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            return
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        temporary.unlink(missing_ok=True)
        try:
            with contextlib.closing(sqlite3.connect(temporary)) as connection:
                connection.executescript(_TABLES + _ENGINES)
            _place(temporary, self._path)
        finally:
            temporary.unlink(missing_ok=True)

    def _check(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > RECORD_VERSION:
            raise BoltError([newer_version(version, str(self._path))])
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if version != RECORD_VERSION or not {"fingerprints", "records"} <= tables:
            raise self._damaged("it is another program's database")
        (answer,) = connection.execute("PRAGMA quick_check (1)").fetchone()
        if answer != "ok":
            raise self._damaged(str(answer).strip().splitlines()[-1])

    def _fingerprints(self) -> dict[str, Fingerprint]:
        rows = self._connection.execute("SELECT digest, data FROM fingerprints")
        try:
            return {digest: decode(Fingerprint, json.loads(data)) for digest, data in rows}
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def _record(self, data: str) -> Record:
        try:
            return decode(Record, json.loads(data))
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def _engine(self, data: str) -> EngineRecord:
        try:
            return decode(EngineRecord, json.loads(data))
        except ValueError as error:
            raise self._damaged(str(error)) from error

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what SQLite and the system refuse into diagnostics."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise self._trouble(str(error)) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from error
        except OSError as error:
            raise self._trouble((error.strerror or str(error)).lower()) from error

    def _damaged(self, why: str) -> BoltError:
        message = f"{self._path} is no file of records, or not a whole one: {why}"
        hint = "move it away and tune again, or import what was exported of it"
        return BoltError([Diagnostic("damaged-records", message, hint=hint, subject=str(self._path))])

    def _trouble(self, why: str) -> BoltError:
        message = f"{self._path} cannot be used: {why}"
        hint = "name another place with --cache DIR"
        diagnostic = Diagnostic("records-trouble", message, hint=hint, subject=str(self._path))
        return BoltError([diagnostic], ExitCode.TASK_FAILED)


def _place(made: Path, path: Path) -> None:
    """Give a file its name, unless another process was faster."""
    try:
        os.link(made, path)
    except FileExistsError:
        return
    except OSError:  # a file system without links
        if not path.exists():
            made.rename(path)
