"""Results of one bundle that came piece by piece, each with the GPU that it comes from, as if they were of one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from bolt_build.lockfile.fingerprint import Device
from bolt_build.tuning.exchange.engine_results import EngineRow, PlanRow, SwapRow
from bolt_build.tuning.exchange.results import Results, Row

_OfDevice = TypeVar("_OfDevice", Row, SwapRow, PlanRow, EngineRow)


def merged(pieces: Sequence[Results]) -> Results:
    """All pieces, at least one, in their order. A GPU that measured several of them stands once among the devices.

    It is complete where every piece is; `seconds` are those of all GPUs together.
    """
    found = _Merging()
    parts = [found.renumbered(piece) for piece in pieces]
    whole = all(piece.complete for piece in pieces)
    return replace(
        pieces[0], devices=tuple(device for device, _ in found.devices),
        uuids=tuple(uuid for _, uuid in found.devices) if all(piece.uuids for piece in pieces) else (),
        rows=tuple(row for part in parts for row in part.rows),
        unmeasured=tuple(each for part in parts for each in part.unmeasured),
        swaps=tuple(swap for part in parts for swap in part.swaps),
        plans=tuple(plan for part in parts for plan in part.plans),
        engines=tuple(engine for part in parts for engine in part.engines),
        unplayed=tuple(each for part in parts for each in part.unplayed),
        complete=whole, seconds=sum(piece.seconds or 0.0 for piece in pieces) if whole else None,
    )  # fmt: skip


@dataclass
class _Merging:
    """The GPUs so far."""

    devices: list[tuple[Device, str]] = field(default_factory=list)

    def renumbered(self, piece: Results) -> Results:
        names = piece.uuids or ("",) * len(piece.devices)
        places = [self._place(each) for each in zip(piece.devices, names, strict=True)]

        def moved(rows: Sequence[_OfDevice]) -> tuple[_OfDevice, ...]:
            return tuple(replace(row, device=places[row.device]) for row in rows)

        return replace(
            piece, rows=moved(piece.rows), swaps=moved(piece.swaps), plans=moved(piece.plans),
            engines=moved(piece.engines),
        )  # fmt: skip

    def _place(self, gpu: tuple[Device, str]) -> int:
        if gpu not in self.devices:
            self.devices.append(gpu)
        return self.devices.index(gpu)
