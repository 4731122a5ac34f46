"""results.jsonl as the driver writes it: a header, a line a candidate, of whole engines a line for each swap that was
tried and one for what came of it, and a last line where it is complete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bolt_build.errors import BoltError, Diagnostic, Mark
from bolt_build.lockfile.fingerprint import Device
from bolt_build.schema.values import shorten
from bolt_build.tuning.exchange import result_fields as fields
from bolt_build.tuning.exchange.engine_results import (
    EngineRow,
    PlanRow,
    SwapRow,
    Unplayed,
    comparison_data,
    engine_row,
    plan_row,
    swap_row,
)
from bolt_build.tuning.exchange.result_fields import DamagedError
from bolt_build.tuning.records.kernel_record import Statistics, Status
from bolt_build.user_files import LFS_POINTER, LFS_PULL, MEBIBYTE, binary_kind, read_regular

RESULTS_VERSION = 2
_OF_ENGINES = ("swaps", "plans", "engines", "unplayed")
LARGEST_RESULTS = 64 * MEBIBYTE
"""Bytes of a results file: a candidate's line has some 300, and ResNet-50 with three batches a thousand candidates."""

_GIVE_RESULTS = "give the results.jsonl that the bundle's run wrote"

WITHOUT_ENGINES = 1
"""The version of results that know nothing of whole engines, which are read as well."""


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
    """One measurement. `uuids` name the `devices`, where that is known. `complete`: it came to its end, with what is
    `unmeasured` left out; `seconds` is what it took (None where it is not complete). Without `overlap` every launch
    waited for the one in front, as engines' do not."""

    version: int
    bundle: str
    target: str
    devices: tuple[Device, ...]
    rows: tuple[Row, ...]
    unmeasured: tuple[Unmeasured, ...] = ()
    complete: bool = False
    seconds: float | None = None
    swaps: tuple[SwapRow, ...] = ()
    engines: tuple[EngineRow, ...] = ()
    unplayed: tuple[Unplayed, ...] = ()
    plans: tuple[PlanRow, ...] = ()
    overlap: bool = True
    uuids: tuple[str, ...] = ()

    def device(self, row: Row) -> Device:
        return self.devices[row.device]

    def uuid(self, row: Row | EngineRow) -> str:
        """The name of the GPU that measured; "" where it is not known."""
        return self.uuids[row.device] if self.uuids else ""


def read_results(path: Path) -> Results:
    """The contents of a results file; a last line that is not whole is left out, as of a measurement that was ended.

    Raises BoltError: "results-unreadable" (no such file, no file, one of another kind, or of more than 64 MiB),
    "results-version" (of another version), or one "results-damaged" for each line that is none of a results file.
    """
    try:
        data = read_regular(path, LARGEST_RESULTS)
    except OSError as error:
        raise BoltError([_unreadable(path, error.strerror or str(error))]) from error
    if (kind := binary_kind(data)) is not None:
        raise BoltError([_unreadable(path, f"it is {kind}", LFS_PULL if kind == LFS_POINTER else _GIVE_RESULTS)])
    return results_of(data.decode("utf-8", errors="replace"), path)


def results_of(text: str, path: Path) -> Results:
    """The same of a text, which `path` is called the place of."""
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
    names = [{"uuid": uuid} for uuid in results.uuids] or [{}] * len(results.devices)
    devices = [name | vars(device) for name, device in zip(names, results.devices, strict=True)]
    header = {"version": results.version, "bundle": results.bundle, "target": results.target, "devices": devices}
    if not results.overlap:
        header["overlap"] = False
    lines: list[dict[str, Any]] = [{"kind": "header", **header}]
    for row in results.rows:
        statistics = None if row.statistics is None else vars(row.statistics)
        lines.append({"kind": "record", **vars(row), "status": row.status.value, "statistics": statistics})
    lines += [{"kind": "unmeasured", **vars(left)} for left in results.unmeasured]
    for swap in results.swaps:
        lines.append({"kind": "swap", **vars(swap), **comparison_data(swap)})
    for plan in results.plans:
        lines.append({"kind": "plan", **vars(plan), **comparison_data(plan)})
    for engine in results.engines:
        kernels = {"base": dict(engine.base), "chosen": dict(engine.chosen)}
        lines.append({"kind": "engine", **vars(engine), **comparison_data(engine), **kernels})
    lines += [{"kind": "unplayed", **vars(left)} for left in results.unplayed]
    if results.complete:
        counts = {"measured": len(results.rows), "unmeasured": len(results.unmeasured)}
        if results.version > WITHOUT_ENGINES:
            counts |= {name: len(getattr(results, name)) for name in _OF_ENGINES}
        lines.append({"kind": "end", **counts, "seconds": results.seconds})
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)


def _unreadable(path: Path, why: str, hint: str = _GIVE_RESULTS) -> Diagnostic:
    return Diagnostic("results-unreadable", f"'{path}' holds no results of a measurement: {why}", hint=hint)


@dataclass
class _Reader:
    """Gathers lines."""

    file: str
    header: Mapping[str, Any] | None = None
    devices: tuple[Device, ...] = ()
    uuids: tuple[str, ...] = ()
    rows: list[Row] = field(default_factory=list)
    unmeasured: list[Unmeasured] = field(default_factory=list)
    swaps: list[SwapRow] = field(default_factory=list)
    plans: list[PlanRow] = field(default_factory=list)
    engines: list[EngineRow] = field(default_factory=list)
    unplayed: list[Unplayed] = field(default_factory=list)
    end: Mapping[str, Any] | None = None
    damaged: list[Diagnostic] = field(default_factory=list)

    def read(self, number: int, line: str) -> None:
        """Raises BoltError where the header is of another version: what follows it means something else then."""
        try:
            self._take(number, fields.json_object(line))
        except DamagedError as error:
            mark = Mark(self.file, number, 1, max(1, len(line)))
            self.damaged.append(Diagnostic("results-damaged", str(error), mark, hint="measure again, or copy it again"))

    def _take(self, number: int, data: Mapping[str, Any]) -> None:
        kind = data.get("kind")
        if (kind == "header") != (number == 1):
            raise DamagedError("the first line, and no other, is the header")
        if self.end is not None:
            raise DamagedError("nothing follows the line that ends the results")
        if kind == "header":
            self._take_header(data)
        elif kind == "record":
            self.rows.append(_row(data, len(self.devices)))
        elif kind == "unmeasured":
            self.unmeasured.append(
                Unmeasured(fields.text(data, "problem"), fields.text(data, "candidate"), fields.text(data, "message"))
            )
        elif kind in ("swap", "plan", "engine", "unplayed") and self._version > WITHOUT_ENGINES:
            self._take_engine(kind, data)
        elif kind == "end":
            self._take_end(data)
        else:
            raise DamagedError(f"unknown kind of line {shorten(json.dumps(kind))}")

    def _take_header(self, data: Mapping[str, Any]) -> None:
        version = fields.whole(data, "version")
        if version not in (WITHOUT_ENGINES, RESULTS_VERSION):
            message = f"the results have format version {version}, this bolt-build reads version {RESULTS_VERSION}"
            hint = "measure with a bundle of this bolt-build, or use the bolt-build that made theirs"
            raise BoltError([Diagnostic("results-version", message, Mark(self.file, 1, 1), hint=hint)])
        devices = fields.get(data, "devices", list)
        self.devices = tuple(_device(item) for item in devices)
        uuids = tuple(item["uuid"] for item in devices if "uuid" in item)
        self.uuids = uuids if len(uuids) == len(devices) and all(isinstance(each, str) for each in uuids) else ()
        overlap = data.get("overlap", True)
        if not isinstance(overlap, bool):
            raise DamagedError('"overlap" is neither true nor false')
        self.header = {
            "version": version, "bundle": fields.text(data, "bundle"), "target": fields.text(data, "target"),
            "overlap": overlap,
        }  # fmt: skip

    @property
    def _version(self) -> int:
        return 0 if self.header is None else int(self.header["version"])

    def _take_engine(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "swap":
            self.swaps.append(swap_row(data, len(self.devices)))
        elif kind == "plan":
            self.plans.append(plan_row(data, len(self.devices)))
        elif kind == "engine":
            self.engines.append(engine_row(data, len(self.devices)))
        else:
            self.unplayed.append(
                Unplayed(fields.text(data, "engine"), fields.whole(data, "batch"), fields.text(data, "message"))
            )

    def _take_end(self, data: Mapping[str, Any]) -> None:
        counts = fields.whole(data, "measured"), fields.whole(data, "unmeasured")
        if counts != (len(self.rows), len(self.unmeasured)):
            found = f"{len(self.rows)} and {len(self.unmeasured)}"
            raise DamagedError(
                f"lines are missing: {counts[0]} records and {counts[1]} unmeasured are stated, not {found}"
            )
        for name in _OF_ENGINES if self._version > WITHOUT_ENGINES else ():
            stated, there = fields.whole(data, name), len(getattr(self, name))
            if stated != there:
                raise DamagedError(f"lines are missing: {stated} {name} are stated, not {there}")
        self.end = {"seconds": fields.number(data, "seconds")}

    def results(self) -> Results:
        assert self.header is not None
        seconds = None if self.end is None else self.end["seconds"]
        return Results(
            **self.header, devices=self.devices, rows=tuple(self.rows), unmeasured=tuple(self.unmeasured),
            complete=self.end is not None, seconds=seconds, swaps=tuple(self.swaps), engines=tuple(self.engines),
            unplayed=tuple(self.unplayed), plans=tuple(self.plans), uuids=self.uuids,
        )  # fmt: skip


def _device(data: Any) -> Device:
    if not isinstance(data, dict):
        raise DamagedError('"devices" holds what is no device')
    return Device(
        fields.text(data, "name"),
        fields.whole(data, "sms"),
        fields.whole(data, "memory"),
        fields.whole(data, "power"),
        fields.text(data, "driver"),
    )


def _row(data: Mapping[str, Any], devices: int) -> Row:
    status, device = fields.status_of(data), fields.device_of(data, devices)
    found = data.get("statistics")
    if (found is not None) != (status is Status.OK):
        raise DamagedError("a candidate has statistics where, and only where, its status is ok")
    return Row(
        fields.text(data, "problem"), fields.text(data, "candidate"), device, status, fields.text(data, "message"),
        None if found is None else fields.statistics(fields.get(data, "statistics", dict)),
        None if data.get("error") is None else fields.number(data, "error"),
    )  # fmt: skip
