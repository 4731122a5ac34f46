"""What steps that only move bytes reach of a GPU's memory bandwidth."""

from __future__ import annotations

from typing import Any

from . import figures, table


def _cases(data: Any) -> list[tuple[str, str, int, float, float]]:
    """Of each case at its largest batch the kind, the name, that batch, bytes and microseconds of all its steps. A star
    is behind the name where another kernel than the measured one is chosen now."""
    cases: dict[tuple[str, str], dict[int, list[Any]]] = {}
    for row in data["rows"]:
        cases.setdefault((row["kind"], row["case"].partition(".")[0]), {}).setdefault(row["batch"], []).append(row)
    rows = []
    for (kind, case), found in sorted(cases.items()):
        batch = max(found)
        taken, moved = (sum(step[what] for step in found[batch]) for what in ("us", "bytes"))
        star = " *" if any("other_kernel" in step for step in found[batch]) else ""
        rows.append((kind, f"{case.replace('_', ' ')}{star}", batch, moved, taken))
    return rows


def _table(data: Any, cases: list[tuple[str, str, int, float, float]]) -> str:
    rows = [
        [kind, case, str(batch), f"{moved / 1e6:.1f}", f"{taken:.1f}", f"{_share(data, moved, taken):.0%}"]
        for kind, case, batch, moved, taken in cases
    ]
    return table(["kind", "step", "batch", "MB", "us", f"of {data['peak'] / 1e12:.3g} TB/s"], rows)


def _share(data: Any, moved: float, taken: float) -> float:
    return float(1e6 * moved / taken / data["peak"])


_LARGE = 10e6
"""Bytes that memory is asked for and not a cache alone."""


@figures("bandwidth")
def bandwidth(data: Any) -> dict[str, str]:
    starred = sum(case.endswith("*") for _, case, *_ in _cases(data))
    return {**_named("bandwidth", data), "bandwidth.others": str(starred)}


@figures("bandwidth_h100")
def bandwidth_h100(data: Any) -> dict[str, str]:
    return _named("bandwidth_h100", data)


def _named(name: str, data: Any) -> dict[str, str]:
    """The table; and of steps that move much, how many reach 60% and which stay short."""
    cases = _cases(data)
    shares = {case: _share(data, moved, taken) for _, case, _, moved, taken in cases if moved > _LARGE}
    short = sorted((share, case) for case, share in shares.items() if share < 0.595)
    return {
        name: _table(data, cases),
        f"{name}.large": str(len(shares)),
        f"{name}.reached": str(len(shares) - len(short)),
        f"{name}.short": ", ".join(f"{case} {share:.1%}" for share, case in short) or "none",
        f"{name}.peak": f"{data['peak'] / 1e12:.2f} TB/s",
    }
