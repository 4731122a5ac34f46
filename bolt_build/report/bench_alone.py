"""Shows what engines alone take: a row a batch, number of threads and load."""

from __future__ import annotations

from collections.abc import Sequence

from bolt_build.bench.runner import Measurement
from bolt_build.report.tables import Column, byte_text, table
from bolt_build.sizes import sizes_of

_COLUMNS = (
    Column("engine", name=True), Column("target"), Column("batch", right=True), Column("threads", right=True),
    Column("callers", right=True), Column("requests/s", right=True), Column("p50 ms", right=True),
    Column("p90 ms", right=True, spare=2), Column("p99 ms", right=True), Column("least ms", right=True, spare=4),
    Column("images/s", right=True), Column("copy in ms", right=True, spare=3),
    Column("copy out ms", right=True, spare=3), Column("memory", right=True, spare=3),
    Column("mJ/image", right=True, spare=3), Column("runs", right=True, spare=5),
)  # fmt: skip


def render_alone(found: Sequence[Measurement], no_energy: Sequence[str], width: int | None = None) -> str:
    """A table without the columns that say nothing, made to fit `width` characters; below it why there is no energy."""
    rows = [_row(each) for each in found]
    kept = [index for index in range(len(_COLUMNS)) if any(row[index] not in ("", "-") for row in rows)]
    lines = [line.plain for line in table([_COLUMNS[i] for i in kept], [[row[i] for i in kept] for row in rows], width)]
    if any(each.rate is not None for each in found):
        lines.append("times with a rate begin when a request comes in, and include waiting for a free caller")
    return "".join(f"{line}\n" for line in [*lines, *dict.fromkeys(no_energy)])


def _row(m: Measurement) -> tuple[str, ...]:
    return (
        m.name, m.target, sizes_of(m).words, "-" if m.threads is None else str(m.threads),
        "-" if m.callers == 1 else str(m.callers), _requests(m), f"{m.median_ms:.3f}", _ms(m.p90_ms), _ms(m.p99_ms),
        f"{m.min_ms:.3f}", f"{m.images_per_second:.1f}", _ms(m.copy_in_ms), _ms(m.copy_out_ms),
        byte_text(m.engine_bytes),
        "-" if m.joules_per_image is None else f"{1e3 * m.joules_per_image:.2f}", str(m.runs),
    )  # fmt: skip


def _requests(m: Measurement) -> str:
    """How many came through, of how many that came in."""
    return "-" if m.rate is None else f"{m.requests_per_second:.1f} of {m.rate:g}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
