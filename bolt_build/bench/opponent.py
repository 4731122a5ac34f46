"""A contestant's process as the contest sees it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

import bolt_build
from bolt_build.bench.contestant import PeerFailed, Setup
from bolt_build.bench.process import NotReady, Ready
from bolt_build.bench.rounds import Round
from bolt_build.digest import decode, encode
from bolt_build.graph.ir import Array

_LOG_LINES = 20


@dataclass(frozen=True)
class Start:
    """How a contestant's process is started: the words before its command (`chrt --fifo 10`), and its environment in
    place of this process's."""

    before: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] | None = None


class Opponent:
    """Started with its setup in `directory`, a folder of its own. Leaving the block ends it and all that it started.

    Methods raise PeerFailed where it ends, or says that it cannot go on.
    """

    def __init__(self, setup: Setup, directory: Path, start: Start | None = None) -> None:
        start = start or Start()
        self.name = setup.contestant
        self._owes = False
        self._log = directory / "log"
        self._outputs = directory / "outputs.npz"
        question = directory / "setup.json"
        question.write_text(json.dumps(encode(setup)), encoding="utf-8")
        own = dict(os.environ if start.environment is None else start.environment)
        found = [str(Path(bolt_build.__file__).resolve().parents[1]), own.get("PYTHONPATH", "")]
        environment = {**own, "PYTHONPATH": os.pathsep.join(path for path in found if path)}
        with self._log.open("wb") as log:
            # A session of its own: Ctrl-C reaches this process alone, which then ends the others.
            self._process = subprocess.Popen(
                [*start.before, sys.executable, "-m", "bolt_build.bench.process", str(question)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True,
                encoding="utf-8",
            )  # fmt: skip

    def ready(self) -> Ready | NotReady:
        """What it says once it has run for the first time."""
        found: Any = self._answer()
        return decode(NotReady, found) if found["is"] == "NotReady" else decode(Ready, found)

    def round(self) -> Round:
        return decode(Round, self._ask("round"))

    def finish(self) -> dict[str, Array]:
        """The outputs of its last run, by name. A turn that it was interrupted in is waited for."""
        if self._owes:
            self._answer()
        names = self._ask(f"finish {self._outputs}")
        with np.load(self._outputs) as arrays:
            return {name: arrays[f"arr_{index}"] for index, name in enumerate(names)}

    def log(self) -> tuple[str, ...]:
        """The last lines that it and its libraries have printed."""
        text = self._log.read_text(encoding="utf-8", errors="replace")
        return tuple(line for line in text.splitlines() if line.strip())[-_LOG_LINES:]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):  # it may have ended, and all of its group
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # a command that nobody reads any more
                pipe.close()

    def _ask(self, command: str) -> Any:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerFailed(self._end()) from None
        self._owes = True
        found = self._answer()
        if isinstance(found, dict) and found["is"] == "NotReady":
            raise PeerFailed(decode(NotReady, found).reason)
        return found

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self._owes = False
        if not line.endswith("\n"):
            raise PeerFailed(self._end())
        return json.loads(line)

    def _end(self) -> str:
        """How it ended, in words."""
        status = self._process.wait()
        if status < 0:
            return f"its process was ended by {signal.Signals(-status).name}"
        last = self.log()[-1:]
        return f"its process ended with status {status}" + "".join(f": {line.strip()[:300]}" for line in last)
