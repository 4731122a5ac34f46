"""`bolt-build`: finds the verb, hands it its arguments, and turns what goes wrong into words and an exit code."""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

import bolt_build
from bolt_build.errors import BoltError, ExitCode
from bolt_build.report.diagnostics import render

VERBS = (
    "build", "check", "plan", "graph", "explain", "explore", "tune", "verify", "emulate", "run", "bench", "clean",
    "doctor",
)  # fmt: skip
"""Each is a module of this package; only the one that is asked for is imported."""

_BROKEN_PIPE = 141
"""What a shell reports of a program that SIGPIPE ended."""


class Verb(Protocol):
    """What a verb's module offers."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: this process's). Returns the exit code; raises nothing but SystemExit
    from argparse."""
    words = list(sys.argv[1:] if argv is None else argv)
    color = _wants_color()
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except BoltError as error:
        sys.stderr.write(render(error.diagnostics, color=color))
        return int(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("\nbolt-build: interrupted\n")
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader went away. Python flushes stdout once more at exit: let it flush into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _BROKEN_PIPE
    except Exception as error:
        sys.stderr.write(_bug(error, words))
        return int(ExitCode.INTERNAL)


def verb_named(name: str) -> Verb:
    """The module of a verb of `VERBS`."""
    return cast("Verb", importlib.import_module(f"bolt_build.cli.{name}"))


def _dispatch(words: list[str]) -> int:
    if not words:
        sys.stderr.write(_overview())
        return int(ExitCode.USAGE)
    first = words[0]
    if first in ("-h", "--help"):
        sys.stdout.write(_overview())
        return int(ExitCode.OK)
    if first == "--version":
        sys.stdout.write(f"bolt-build {bolt_build.__version__}\n")
        return int(ExitCode.OK)
    if first not in VERBS:
        if _is_no_recipe(first):
            sys.stderr.write(_unknown_verb(first))
            return int(ExitCode.USAGE)
        words = ["build", *words]
    verb = verb_named(words[0])
    parser = argparse.ArgumentParser(prog=f"bolt-build {verb.NAME}", description=verb.HELP, allow_abbrev=False)
    verb.add_arguments(parser)
    return verb.run(parser.parse_args(words[1:]))


def _is_no_recipe(word: str) -> bool:
    """True for a bare word that is no file: a verb that does not exist."""
    return not word.startswith("-") and word.isidentifier() and not Path(word).exists()


def _unknown_verb(word: str) -> str:
    near = difflib.get_close_matches(word, VERBS, 1, 0.6)
    hint = f"did you mean '{near[0]}'?" if near else f"verbs: {', '.join(VERBS)}"
    return f"bolt-build: error: '{word}' is neither a verb nor a recipe; {hint}\n"


def _overview() -> str:
    lines = [
        "usage: bolt-build [VERB] RECIPE... [options]",
        "       bolt-build --help | --version",
        "",
        "Builds standalone C++ inference engines from declarative recipes. Without a verb: build.",
        "",
        "verbs (each has its own --help):",
    ]
    lines += [f"  {name:<8} {verb_named(name).HELP}" for name in VERBS]
    return "\n".join(lines) + "\n"


def _wants_color() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and "NO_COLOR" not in os.environ


def _bug(error: Exception, words: list[str]) -> str:
    """A paragraph about an exception that nothing expected; the traceback goes to a file."""
    what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    text = "".join(traceback.format_exception(error))
    about = f"bolt-build {bolt_build.__version__}, Python {sys.version}\narguments: {words!r}\n\n"
    try:
        handle, log = tempfile.mkstemp(prefix="bolt-build-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(about + text)
        where = f"The traceback is in {log}: please send it with the recipe that shows this."
    except OSError:
        where = f"The traceback could not be saved and follows.\n{about}{text}"
    return f"bolt-build: this is a bug in bolt-build, not in your recipe ({what}). {where}\n"
