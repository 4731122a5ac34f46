"""Records as JSON data, which another machine takes: all that is wrong with it is said before anything is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bolt_build.digest import decode, encode
from bolt_build.errors import UPGRADE, BoltError, Diagnostic
from bolt_build.lockfile.fingerprint import Fingerprint
from bolt_build.tuning.records.engine_record import EngineMeasurement, EngineRecord
from bolt_build.tuning.records.kernel_record import RECORD_VERSION, Record

Measurement = tuple[Fingerprint, Record]


def exported_data(found: Sequence[Measurement], engines: Sequence[EngineMeasurement]) -> dict[str, Any]:
    """Records, in the order in which they are given: equal ones give equal data."""
    fingerprints = {fingerprint.digest: encode(fingerprint) for fingerprint, _ in (*found, *engines)}
    data = {
        "version": RECORD_VERSION,
        "fingerprints": dict(sorted(fingerprints.items())),
        "records": [{"fingerprint": fingerprint.digest, "record": encode(record)} for fingerprint, record in found],
    }
    if engines:
        data["engines"] = [{"fingerprint": f.digest, "record": encode(record)} for f, record in engines]
    return data


def exported_records(data: Any, source: str) -> tuple[list[Measurement], list[EngineMeasurement]]:
    """What `exported_data` gave. Raises BoltError ("bad-export", "newer-version") that calls the data `source`."""

    def bad(why: str) -> BoltError:
        return BoltError([Diagnostic("bad-export", f"{source} holds no exported records: {why}", subject=source)])

    if not isinstance(data, dict) or not isinstance(data.get("version"), int):
        raise bad("it has no version")
    if data["version"] > RECORD_VERSION:
        raise BoltError([newer_version(data["version"], source)])
    try:
        fingerprints = {digest: decode(Fingerprint, each) for digest, each in data["fingerprints"].items()}
        found = [(fingerprints[each["fingerprint"]], decode(Record, each["record"])) for each in data["records"]]
        whole = data.get("engines", [])
        engines = [(fingerprints[each["fingerprint"]], decode(EngineRecord, each["record"])) for each in whole]
    except KeyError as error:
        raise bad(f"{error} is missing") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise bad(str(error)) from error
    wrong = [digest for digest, fingerprint in fingerprints.items() if digest != fingerprint.digest]
    if wrong:
        raise bad(f"the fingerprint {wrong[0]} is another one's")
    return found, engines


def newer_version(version: int, subject: str) -> Diagnostic:
    """What is said of records of a later version than is known here."""
    message = f"{subject} has records of version {version}, newer than this bolt-build, which reads {RECORD_VERSION}"
    return Diagnostic("newer-version", message, hint=UPGRADE, subject=subject)
