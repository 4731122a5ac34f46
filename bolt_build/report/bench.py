"""Shows a `Comparison` to people: a table a batch, and below it what there is to say of it."""

from __future__ import annotations

from collections.abc import Iterable
from io import StringIO

from rich.console import Console
from rich.text import Text

from bolt_build.bench.comparison import Comparison, Failed, Measured
from bolt_build.bench.peers import ENGINE
from bolt_build.errors import Diagnostic
from bolt_build.report.tables import Column, byte_text, table
from bolt_build.sizes import sizes_of

_COLUMNS = (
    Column("contestant"), Column("inputs", spare=5), Column("median ms", right=True), Column("p99 ms", right=True),
    Column("images/s", right=True, spare=3), Column("back to back", right=True, spare=6),
    Column("memory", right=True, spare=4), Column("mJ/image", right=True, spare=4), Column("engine is", right=True),
    Column("cosine", right=True, spare=2), Column("max |error|", right=True, spare=2), Column("outputs"),
    Column("compiled", right=True, spare=5),
)  # fmt: skip


def render(comparison: Comparison, *, color: bool, width: int | None = None) -> str:
    """The whole comparison as text, with terminal colours or without; tables are made to fit `width` characters."""
    console = Console(
        file=StringIO(), force_terminal=color, color_system="standard" if color else None, highlight=False,
        soft_wrap=True, markup=False,
    )  # fmt: skip
    console.print(_headline(comparison))
    for sizes in dict.fromkeys(map(sizes_of, comparison.results)):
        console.print(f"\n{sizes}")
        found = [result for result in comparison.results if sizes_of(result) == sizes]
        shown = [result for result in found if isinstance(result, Measured)]
        for line in _table([_row(result) for result in shown], width):
            console.print(line)
        for result in found:
            if isinstance(result, Failed):
                console.print(Text.assemble((f"{result.name}: not measured: ", "yellow"), result.reason))
            elif result.wrong is not None:
                console.print(Text.assemble((f"{result.name}: ", "red"), result.wrong))
    if comparison.cut_off:
        console.print("\ncut off: these are the turns until then")
    if comparison.no_energy is not None:
        console.print(f"\n{comparison.no_energy}")
    file = console.file
    assert isinstance(file, StringIO)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def missing_packages(comparisons: Iterable[Comparison]) -> tuple[Diagnostic, ...]:
    """One diagnostic a peer and reason that its package cannot be used, whatever the number of batches."""
    results = (result for comparison in comparisons for result in comparison.results)
    missing = (result for result in results if isinstance(result, Failed) and result.missing)
    found = (Diagnostic("missing-tool", f"{result.name}: {result.reason}", hint=result.hint) for result in missing)
    return tuple(dict.fromkeys(found))


def _headline(comparison: Comparison) -> Text:
    threads = {None: "", 0: ", every CPU", 1: ", 1 thread"}.get(comparison.threads, f", {comparison.threads} threads")
    what = f"{comparison.name} for {comparison.target} in {comparison.precision}"
    return Text.assemble((what, "bold"), f" on {comparison.device}{threads}; {comparison.rounds} rounds in turns")


def _table(rows: list[tuple[str | Text, ...]], width: int | None) -> tuple[Text, ...]:
    """Without the columns that no row has a figure for."""
    kept = [index for index in range(len(_COLUMNS)) if any(str(row[index]) not in ("", "-") for row in rows)]
    return table([_COLUMNS[i] for i in kept], [[row[i] for i in kept] for row in rows], width)


def _row(result: Measured) -> tuple[str | Text, ...]:
    engine = result.name == ENGINE
    worst = min(result.agreement, key=lambda output: output.cosine, default=None)
    largest = max((output.max_abs for output in result.agreement), default=None)
    return (
        Text(result.name, "bold" if engine else ""), f"{result.precision}: {result.form}",
        f"{result.median_ms:.3f}", _figure(result.p99_ms, ".3f"), f"{result.images_per_second:.1f}",
        _figure(result.sustained_images_per_second, ".1f"), byte_text(max(0, result.memory_bytes)),
        _figure(None if result.joules_per_image is None else 1e3 * result.joules_per_image, ".2f"),
        "" if engine else _faster(result.engine_speedup),
        "" if engine or worst is None else f"{worst.cosine:.6f}",
        "" if engine or largest is None else f"{largest:.2e}",
        "" if engine else Text("agree", "green") if result.agrees else Text("DIFFER", "bold red"),
        "" if result.compile_seconds is None else f"{result.compile_seconds:.0f} s",
    )  # fmt: skip


def _faster(times: float) -> Text:
    """How many times as fast as this contestant the engine is."""
    return Text(f"{times:.2f}x as fast", "green" if times >= 1 else "red")


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
