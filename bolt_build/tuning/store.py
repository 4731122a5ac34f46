"""What tunings keep on a machine: every measurement, and what the bundles that were made here hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.files import told, write_text
from bolt_build.lockfile.fingerprint import Fingerprint
from bolt_build.tuning.exchange.bundle import Bundle, bundle_text
from bolt_build.tuning.records.counting import Measurement
from bolt_build.tuning.records.database import Records
from bolt_build.tuning.records.engine_record import EngineMeasurement
from bolt_build.tuning.records.kernel_record import Record
from bolt_build.tuning.shared_records import Log, SharedRecords


@dataclass(frozen=True)
class TuningStore:
    """A folder of the local cache, and what a team shares. Every method raises BoltError for what cannot be read or
    written in the folder."""

    folder: Path
    shared: SharedRecords | None = None

    def learn(self, problems: Iterable[str] = (), tables: Iterable[str] = ()) -> None:
        """Take what the team has measured of problems and of engines with these tables (their digests), where nothing
        was measured here; and give it what it lacks."""
        if self.shared is None:
            return
        wanted, engines = self.shared.unasked(Log.PROBLEMS, problems), self.shared.unasked(Log.TABLES, tables)
        if not wanted and not engines:
            return
        with self.records() as records:
            records.add(*self.shared.taken(wanted, engines))
            found, played = records.all(wanted), records.engines(engines) if engines else ()
        self.shared.give(found, played)

    def records(self) -> Records:
        return Records(self.folder / "records.sqlite")

    def merge(
        self, measurements: Sequence[Measurement], engines: Iterable[EngineMeasurement] = (), *, give: bool = True
    ) -> None:
        """Keep measurements of candidates and of whole engines, and `give` them to the team."""
        by_fingerprint: dict[Fingerprint, list[Record]] = {}
        for fingerprint, record in measurements:
            by_fingerprint.setdefault(fingerprint, []).append(record)
        with self.records() as records:
            for fingerprint, found in by_fingerprint.items():
                records.merge(fingerprint, found)
            found_engines = tuple(engines)
            records.merge_engines(found_engines)
        if self.shared is not None and give:
            self.shared.give(measurements, found_engines)

    def remember(self, bundle: Bundle) -> None:
        """Keep what a bundle holds: results name it by its id alone."""
        (path,) = self.bundles(bundle.id)
        with told(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, bundle_text(bundle))

    def bundles(self, id: str) -> tuple[Path, ...]:
        """Where the bundle of that id may be."""
        return (self.folder / "bundles" / f"{id}.json",)
