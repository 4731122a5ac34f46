"""Shows an `Exploration`: a table a batch, in the form of Bolt's tables 4 to 6, and below it what there is to say."""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.text import Text

from bolt_build.bench.exploration import Exploration, Explored
from bolt_build.report.tables import Column, table

_COLUMNS = (
    Column("model", name=True), Column("images/s", right=True), Column("parameters", right=True),
    Column("cost", right=True), Column("median ms", right=True, spare=2), Column("rounds", spare=4),
    Column("kernels", right=True, spare=3), Column("chains", right=True, spare=3), Column("verified", spare=1),
)  # fmt: skip


def render(exploration: Exploration, *, color: bool, width: int | None = None) -> str:
    """The whole of it as text; tables are made to fit `width` characters, None is no limit."""
    console = Console(
        file=StringIO(), force_terminal=color, color_system="standard" if color else None, highlight=False,
        soft_wrap=True, markup=False,
    )  # fmt: skip
    for batch, threads in dict.fromkeys((row.batch, row.threads) for row in exploration.rows):
        rows = [row for row in exploration.rows if (row.batch, row.threads) == (batch, threads)]
        console.print(_headline(exploration, rows, batch, threads))
        for line in table(_COLUMNS, [_row(row) for row in rows], width):
            console.print(line)
        console.print()
    for row in exploration.failed:
        console.print(Text.assemble((f"{row.model}: not explored: ", "yellow"), row.reason))
    for note in _notes(exploration):
        console.print(note)
    file = console.file
    assert isinstance(file, StringIO)
    return "\n".join(line.rstrip() for line in file.getvalue().rstrip().splitlines()) + "\n"


def _headline(exploration: Exploration, rows: list[Explored], batch: int, threads: int | None) -> Text:
    precisions = ", ".join(dict.fromkeys(row.precision for row in rows))
    used = "" if threads is None else f", {threads} thread{'' if threads == 1 else 's'}"
    if exploration.predicted is not None:
        how = f"predicted, nothing measured: {exploration.predicted}"
    else:
        rounds = max(len(row.round_medians_ms) for row in rows)
        how = f"on {exploration.device}; {rounds} round{'' if rounds == 1 else 's'} in turns"
    return Text.assemble((f"{exploration.target} in {precisions}, batch {batch}{used}", "bold"), f" {how}")


def _row(row: Explored) -> tuple[str | Text, ...]:
    mark = "" if row.measured else "~"
    low, high = (min(row.round_medians_ms), max(row.round_medians_ms)) if row.measured else (0.0, 0.0)
    base = row.model == row.base
    return (
        Text(row.model, "bold" if base else ""), f"{mark}{row.images_per_second:.1f}",
        f"{row.parameters / 1e6:.2f} M", _cost(row), f"{mark}{row.median_ms:.4f}",
        f"{low:.4f} to {high:.4f}" if row.measured else "-", str(row.steps), str(row.chains), _verified(row.verified),
    )  # fmt: skip


def _cost(row: Explored) -> str | Text:
    if row.cost is None:
        return "-"
    return Text(f"{row.cost * 100:.1f} %", "green" if row.cost <= 0 else "")


def _verified(verified: bool | None) -> str | Text:
    if verified is None:
        return "-"
    return Text("agrees", "green") if verified else Text("DIFFERS", "bold red")


def _notes(exploration: Exploration) -> list[str]:
    """What keeps times from being compared."""
    found = []
    for base in dict.fromkeys(row.base for row in exploration.rows):
        rows = {row.model: row.kernels for row in exploration.rows if row.base == base and row.kernels is not None}
        chosen = {model: source for model, source in rows.items() if not source.lock or source.predicted}
        if chosen and len(chosen) < len(rows):
            names = ", ".join(chosen)
            found.append(
                f"{base}: kernels of {names} are predicted, at least some; the others' were measured. "
                "For like with like tune these, or leave locks out with --no-lock"
            )
    return found
