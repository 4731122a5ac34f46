"""bolt-build's command line in this process, and programs with a limit of time."""

from __future__ import annotations

import contextlib
import io
import re
import resource
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bolt_build.errors import Diagnostic
from fuzzing.case import Violation

MOST_TEXT = 100_000
"""Characters that a command may write about one input, whatever is wrong with it."""

_LOG = re.compile(r"The traceback is in (\S+):")


@dataclass(frozen=True)
class Finished:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


def bolt_build(*arguments: str, codes: Iterable[int] = (0, 3), most_text: int | None = MOST_TEXT) -> Finished:
    """`bolt-build ARGUMENTS` in this process.

    Raises Violation where it ends in none of `codes`, fails without a word, or writes too much or what steers a
    terminal.
    """
    from bolt_build.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as error:  # argparse's
            code = error.code if isinstance(error.code, int) else 1
    done = Finished(code, out.getvalue(), err.getvalue())
    if code not in codes:
        raise Violation(f"exit {code} of {' '.join(arguments)}: {_reason(done.err)}")
    if code != 0 and not (done.err or done.out).strip():
        raise Violation(f"exit {code} of {' '.join(arguments)} without a word")
    for text in (done.out, done.err):
        _check_text(text, most_text)
    return done


def shown(diagnostics: Sequence[Diagnostic]) -> str:
    """The code of the first of `diagnostics`, none where there are none. Raises Violation where what is said of them is
    too long, or steers a terminal."""
    from bolt_build.report.diagnostics import render

    _check_text(render(diagnostics, color=False), MOST_TEXT)
    return diagnostics[0].code if diagnostics else "none"


def _check_text(text: str, most: int | None) -> None:
    """Raises Violation where `text` is no text for a terminal: too long, or not printable."""
    if most is not None and len(text) > most:
        raise Violation(f"{len(text)} characters are written: {text[:300]}")
    steering = sorted({c for c in text if not c.isprintable() and c not in "\n\t"})
    if steering:
        names = ", ".join(f"U+{ord(c):04X}" for c in steering)
        raise Violation(f"characters are written that steer a terminal: {names}")


def program(argv: Sequence[str | Path], seconds: float = 50, given: bytes | None = None) -> Finished:
    """Runs a program, whose address space is not limited: sanitizers reserve terabytes.

    Raises Violation where it takes longer than `seconds`, or where a signal ends it."""
    try:
        done = subprocess.run(
            [str(word) for word in argv], input=given, capture_output=True, timeout=seconds, check=False,
            preexec_fn=_unlimited,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise Violation(f"{argv[0]} is not done after {seconds:.0f} s") from error
    finished = Finished(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
    if done.returncode < 0:
        raise Violation(f"signal {-done.returncode} ends {argv[0]}: {finished.err[-1000:]}")
    return finished


def _unlimited() -> None:
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def _reason(err: str) -> str:
    """What was written, and the end of the traceback that it names."""
    found = _LOG.search(err)
    if found is None:
        return err[-1000:]
    path = Path(found[1])
    text = path.read_text(encoding="utf-8", errors="replace")
    path.unlink()
    return f"{err.strip()}\n{text[-2500:]}"
