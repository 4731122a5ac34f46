"""Shows a `VerifyReport` to people: one line a batch, and on failure the layers around the first that departs."""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bolt_build.verify.report import BatchReport, LayerReport, OutputReport, VerifyReport

AROUND = 3
"""Layers shown before and behind the first that departs."""


def render(report: VerifyReport, *, color: bool, width: int = 120) -> str:
    """The whole report as text, with terminal colours or without."""
    console = Console(
        file=StringIO(), force_terminal=color, color_system="standard" if color else None, width=width, highlight=False
    )
    verdict = Text("agrees with", "bold green") if report.ok else Text("DEPARTS FROM", "bold red")
    console.print(
        Text.assemble(f"{report.name} for {report.target} in {report.precision} ", verdict, f" {report.against}")
    )
    console.print(_summary(report))
    for batch in report.batches:
        if batch.first_departure is not None:
            console.print(f"\nbatch {batch.batch}, sample {batch.layers_sample}: layers around the first that departs")
            console.print(_layers(batch, batch.first_departure))
    for problem in report.problems:
        style = "red" if problem.severity == "error" else "yellow"
        console.print(Text.assemble((f"{problem.severity}[{problem.code}]: ", style), problem.message), soft_wrap=True)
        if problem.hint:
            console.print(f"  help: {problem.hint}", soft_wrap=True)
    file = console.file
    assert isinstance(file, StringIO)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index in (0, 1) else "right", overflow="fold")
    return table


def _summary(report: VerifyReport) -> Table:
    table = _table(
        "batch", "output", "max |error|", "error", "tolerance", "cosine", "centred", "between inputs", "layers",
        "verdict",
    )  # fmt: skip
    for batch in report.batches:
        for output in batch.outputs:
            table.add_row(
                str(batch.batch), output.name, f"{output.max_abs:.2e}", f"{output.error:.2e}",
                f"{output.tolerance:.2e}", f"{output.cosine:.7f}", _cosine(output.cosine_centred, 7),
                _cosine(output.dependence, 3),
                _checked(batch), _verdict(batch, output),
            )  # fmt: skip
    return table


def _layers(batch: BatchReport, first: LayerReport) -> Table:
    table = _table("step", "layer", "shape", "error", "tolerance", "rms", "tolerance", "kernel", "")
    at = batch.layers.index(first)
    for layer in batch.layers[max(0, at - AROUND) : at + AROUND + 1]:
        mark = Text("first to depart", "bold red") if layer is first else Text("" if layer.ok else "departs", "red")
        shape = "x".join(map(str, layer.shape))
        table.add_row(
            str(layer.step), layer.name, shape, f"{layer.error:.2e}", f"{layer.tolerance:.2e}", f"{layer.rms:.2e}",
            f"{layer.rms_tolerance:.2e}", layer.kernel, mark,
        )  # fmt: skip
    return table


def _checked(batch: BatchReport) -> str:
    """How many layers were compared, and how many of them departed."""
    departed = sum(not layer.ok for layer in batch.layers)
    return f"{len(batch.layers)}, {departed} depart" if departed else str(len(batch.layers))


def _verdict(batch: BatchReport, output: OutputReport) -> Text:
    if not output.ok:
        return Text("output departs", "red")
    return Text("ok", "green") if batch.ok else Text("fails", "red")


def _cosine(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
