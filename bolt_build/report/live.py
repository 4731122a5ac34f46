"""What runs, at the end of a terminal, with its time, through rich."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bolt_build.report.shown import Shown, how_long


class TerminalLines:
    """Redraws itself eight times a second, so that times go on between events."""

    def __init__(self, *, stderr: bool = False) -> None:
        self._shown = Shown(())
        self.console = Console(highlight=False, soft_wrap=True, stderr=stderr)
        self._live = Live(console=self.console, refresh_per_second=8, transient=True, get_renderable=self._renderable)
        self._started = False

    def show(self, shown: Shown) -> None:
        """From now on show this."""
        self._shown = shown
        if shown.running and not self._started:
            self._live.start()
            self._started = True

    def stop(self) -> None:
        """Leave nothing on the terminal."""
        if self._started:
            self._live.stop()
            self._started = False

    def _renderable(self) -> Any:
        now, whole = time.monotonic(), self._shown.whole
        table = Table.grid(padding=(0, 1))
        if whole is not None:
            bar = ProgressBar(total=max(whole.total, 1), completed=whole.done, width=24)
            table.add_row(bar, Text(f"{whole.done}/{whole.total}", "bold"), how_long(now, whole.since, whole.expected))
        for each in self._shown.running:
            table.add_row("", Text(each.label), Text(how_long(now, each.since, each.expected), "dim"))
        return table
