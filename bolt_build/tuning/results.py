"""results.jsonl as the driver writes it: a header, a line a candidate, and a last line where it is complete."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bolt_build.errors import BoltError, Diagnostic, Mark
from bolt_build.tuning.record import Device, Statistics, Status

RESULTS_VERSION = 1


@dataclass(frozen=True)
class Row:
    """What became of one candidate (its digest) of one problem (its digest). `device` counts in `Results.devices`.

    `error` is the largest departure from the reference as a part of what is allowed, None where nothing was compared.
    """

    problem: str
    candidate: str
    device: int
    status: Status
    message: str = ""
    statistics: Statistics | None = None
    error: float | None = None


@dataclass(frozen=True)
class Unmeasured:
    """A candidate whose turn did not come; `message` says why."""

    problem: str
    candidate: str
    message: str


@dataclass(frozen=True)
class Results:
    """One measurement. `complete`: it came to its end, with what is `unmeasured` left out; `seconds` is what it took
    (None where it is not complete)."""

    version: int
    bundle: str
    target: str
    devices: tuple[Device, ...]
    rows: tuple[Row, ...]
    unmeasured: tuple[Unmeasured, ...] = ()
    complete: bool = False
    seconds: float | None = None

    def device(self, row: Row) -> Device:
        return self.devices[row.device]


def read_results(path: Path) -> Results:
    """The contents of a results file; a last line that is not whole is left out, as of a measurement that was ended.

    Raises BoltError: "results-unreadable" (no such file, no text), "results-version" (of another version), or one
    "results-damaged" for each line that is none of a results file.
    """
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise BoltError([_unreadable(path, error.strerror or str(error))]) from error
    reader = _Reader(str(path))
    lines = text.split("\n")
    whole, torn = lines[:-1], lines[-1]
    for number, line in enumerate(whole, 1):
        reader.read(number, line)
    if reader.header is None and not reader.damaged:
        what = "its first line is not whole" if torn else "it is empty"
        reader.damaged.append(_unreadable(path, what))
    if reader.damaged:
        raise BoltError(reader.damaged)
    return reader.results()


def results_text(results: Results) -> str:
    """`results` as `read_results` reads them: of a complete measurement, or of one that was ended."""
    devices = [vars(device) for device in results.devices]
    header = {"version": results.version, "bundle": results.bundle, "target": results.target, "devices": devices}
    lines: list[dict[str, Any]] = [{"kind": "header", **header}]
    for row in results.rows:
        statistics = None if row.statistics is None else vars(row.statistics)
        lines.append({"kind": "record", **vars(row), "status": row.status.value, "statistics": statistics})
    lines += [{"kind": "unmeasured", **vars(left)} for left in results.unmeasured]
    if results.complete:
        counts = {"measured": len(results.rows), "unmeasured": len(results.unmeasured)}
        lines.append({"kind": "end", **counts, "seconds": results.seconds})
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)


def _unreadable(path: Path, why: str) -> Diagnostic:
    return Diagnostic(
        "results-unreadable",
        f"'{path}' holds no results of a measurement: {why}",
        hint="give the results.jsonl that the bundle's run wrote",
    )


class _DamagedError(Exception):
    """What is wrong with a line."""


@dataclass
class _Reader:
    """Gathers lines."""

    file: str
    header: Mapping[str, Any] | None = None
    devices: tuple[Device, ...] = ()
    rows: list[Row] = field(default_factory=list)
    unmeasured: list[Unmeasured] = field(default_factory=list)
    end: Mapping[str, Any] | None = None
    damaged: list[Diagnostic] = field(default_factory=list)

    def read(self, number: int, line: str) -> None:
        """Raises BoltError where the header is of another version: what follows it means something else then."""
        try:
            self._take(number, _object(line))
        except _DamagedError as error:
            mark = Mark(self.file, number, 1, max(1, len(line)))
            self.damaged.append(Diagnostic("results-damaged", str(error), mark, hint="measure again, or copy it again"))

    def _take(self, number: int, data: Mapping[str, Any]) -> None:
        kind = data.get("kind")
        if (kind == "header") != (number == 1):
            raise _DamagedError("the first line, and no other, is the header")
        if self.end is not None:
            raise _DamagedError("nothing follows the line that ends the results")
        if kind == "header":
            self._take_header(data)
        elif kind == "record":
            self.rows.append(_row(data, len(self.devices)))
        elif kind == "unmeasured":
            self.unmeasured.append(Unmeasured(_text(data, "problem"), _text(data, "candidate"), _text(data, "message")))
        elif kind == "end":
            self._take_end(data)
        else:
            raise _DamagedError(f"unknown kind of line {json.dumps(kind)}")

    def _take_header(self, data: Mapping[str, Any]) -> None:
        version = _whole(data, "version")
        if version != RESULTS_VERSION:
            message = f"the results have format version {version}, this bolt-build reads version {RESULTS_VERSION}"
            hint = "measure with a bundle of this bolt-build, or use the bolt-build that made theirs"
            raise BoltError([Diagnostic("results-version", message, Mark(self.file, 1, 1), hint=hint)])
        devices = _get(data, "devices", list)
        self.devices = tuple(_device(item) for item in devices)
        self.header = {"version": version, "bundle": _text(data, "bundle"), "target": _text(data, "target")}

    def _take_end(self, data: Mapping[str, Any]) -> None:
        counts = _whole(data, "measured"), _whole(data, "unmeasured")
        if counts != (len(self.rows), len(self.unmeasured)):
            found = f"{len(self.rows)} and {len(self.unmeasured)}"
            raise _DamagedError(
                f"lines are missing: {counts[0]} records and {counts[1]} unmeasured are stated, not {found}"
            )
        self.end = {"seconds": _number(data, "seconds")}

    def results(self) -> Results:
        assert self.header is not None
        seconds = None if self.end is None else self.end["seconds"]
        return Results(
            **self.header, devices=self.devices, rows=tuple(self.rows), unmeasured=tuple(self.unmeasured),
            complete=self.end is not None, seconds=seconds,
        )  # fmt: skip


def _object(line: str) -> Mapping[str, Any]:
    def refuse(word: str) -> float:
        raise _DamagedError(f"{word} is no number of JSON")

    try:
        data = json.loads(line, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise _DamagedError("the line is not JSON") from error
    if not isinstance(data, dict):
        raise _DamagedError("the line is no object of JSON")
    return data


def _get(data: Mapping[str, Any], key: str, kind: type | tuple[type, ...]) -> Any:
    value = data.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _DamagedError(f'"{key}" is missing or of another type')
    return value


def _text(data: Mapping[str, Any], key: str) -> str:
    return str(_get(data, key, str))


def _whole(data: Mapping[str, Any], key: str) -> int:
    value = int(_get(data, key, int))
    if value < 0:
        raise _DamagedError(f'"{key}" is negative')
    return value


def _number(data: Mapping[str, Any], key: str) -> float:
    value = float(_get(data, key, (int, float)))
    if not math.isfinite(value) or value < 0:
        raise _DamagedError(f'"{key}" is no positive number')
    return value


def _device(data: Any) -> Device:
    if not isinstance(data, dict):
        raise _DamagedError('"devices" holds what is no device')
    return Device(
        _text(data, "name"), _whole(data, "sms"), _whole(data, "memory"), _whole(data, "power"), _text(data, "driver")
    )


def _row(data: Mapping[str, Any], devices: int) -> Row:
    try:
        status = Status(_text(data, "status"))
    except ValueError as error:
        raise _DamagedError(f"unknown status {json.dumps(data['status'])}") from error
    device = _whole(data, "device")
    if device >= devices:
        raise _DamagedError(f"device {device} is not among the header's {devices}")
    found = data.get("statistics")
    if (found is not None) != (status is Status.OK):
        raise _DamagedError("a candidate has statistics where, and only where, its status is ok")
    return Row(
        _text(data, "problem"), _text(data, "candidate"), device, status, _text(data, "message"),
        None if found is None else _statistics(_get(data, "statistics", dict)),
        None if data.get("error") is None else _number(data, "error"),
    )  # fmt: skip


def _statistics(data: Mapping[str, Any]) -> Statistics:
    return Statistics(
        _number(data, "median"), _number(data, "least"), _number(data, "greatest"), _number(data, "spread"),
        _whole(data, "repeats"), _whole(data, "launches"),
    )  # fmt: skip
