"""`bolt-build`: finds the verb, hands it its arguments, and turns what goes wrong into words and an exit code."""

from __future__ import annotations

import errno
import importlib.util
import itertools
import json
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Sequence
from typing import TextIO

import bolt_build
from bolt_build.cli import streams
from bolt_build.cli.interrupts import broke_an_import
from bolt_build.cli.verb_parser import VerbParser
from bolt_build.cli.verbs import VERBS, nearest_verb, verb_named
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.report.diagnostics import as_json, render

_BROKEN_PIPE = 141
"""What a shell reports of a program that SIGPIPE ended."""

_MACHINE = (
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE,
    errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.ESTALE,
)  # fmt: skip
"""Refusals of the operating system that say something of the machine, and are no mistake of bolt-build's."""


_VERB = 2 + max(map(len, VERBS))
"""Columns of a verb in the overview."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: this process's). Returns the exit code; raises nothing but SystemExit
    from argparse."""
    words = list(sys.argv[1:] if argv is None else argv)
    streams.prepare()
    try:
        try:
            return _run(words)
        except BoltError as error:
            return _refused(error, words)
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        streams.abandon(sys.stdout)
        return _BROKEN_PIPE
    except Exception as error:
        streams.abandon(sys.stdout)
        if _after_interrupt(error) or (isinstance(error, ImportError) and broke_an_import()):
            return _interrupted()
        trouble = _trouble(error)
        if trouble is None:
            streams.complain(_bug(error, words))
            return int(ExitCode.INTERNAL)
        streams.complain(render(trouble.diagnostics, color=streams.wants_color(sys.stderr)))
        return int(trouble.exit_code)


def _run(words: list[str]) -> int:
    """Raises what a verb raises, and OSError where its output cannot be written to the end."""
    try:
        return _dispatch(words)
    finally:
        sys.stdout.flush()


def _interrupted() -> int:
    streams.complain("\nbolt-build: interrupted\n")
    return int(ExitCode.INTERRUPTED)


def _after_interrupt(error: BaseException) -> bool:
    """True of what went wrong while others cleaned up after Ctrl-C, as argparse does in a `finally`."""
    before = error.__context__
    return isinstance(before, KeyboardInterrupt) or (before is not None and _after_interrupt(before))


def _refused(error: BoltError, words: list[str]) -> int:
    """Says what is wrong, in the form that was asked for."""
    if _wants_json(words):
        said = {"event": "result", "exit_code": int(error.exit_code), "diagnostics": as_json(error.diagnostics)}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
    else:
        streams.complain(render(error.diagnostics, color=streams.wants_color(sys.stderr)))
    return int(error.exit_code)


def _wants_json(words: list[str]) -> bool:
    return "--format=json" in words or ("--format", "json") in itertools.pairwise(words)


def _trouble(error: Exception) -> BoltError | None:
    """What is wrong with the machine or the installation, where that is what `error` says."""
    missing = _missing_package(error)
    if missing is not None:
        return BoltError([missing], ExitCode.TOOL_MISSING)
    refusal = _refusal(error)
    return None if refusal is None else BoltError([refusal], ExitCode.TASK_FAILED)


def _missing_package(error: Exception) -> Diagnostic | None:
    """A package of somebody else's that is not there: `pip install --no-deps` leaves those out that are needed."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    package = error.name.partition(".")[0]
    if package == bolt_build.__name__ or importlib.util.find_spec(package) is not None:
        return None
    message = f"the Python package '{package}' is not installed, and bolt-build needs it"
    hint = f"install bolt-build again, with what it depends on; '{sys.executable} -m pip check' says what is missing"
    return Diagnostic("package-missing", message, hint=hint)


def _refusal(error: Exception) -> Diagnostic | None:
    """What the operating system refused, where that says something of the machine."""
    if isinstance(error, MemoryError):
        hint = "build on a machine with more of it, or a smaller batch"
        return Diagnostic("out-of-memory", "the memory of this machine does not suffice", hint=hint)
    if not isinstance(error, OSError):
        return None
    if _stands_nowhere():
        message = "the directory that the command was called in is gone"
        return Diagnostic("no-directory", message, hint="call it in one that is there")
    if error.errno not in _MACHINE:
        return None
    reason = os.strerror(error.errno)
    if error.filename is None:
        return Diagnostic("cannot-write", f"the output cannot be written: {reason}")
    return Diagnostic("file-trouble", reason, subject=str(error.filename))


def _stands_nowhere() -> bool:
    """True where somebody has removed the working directory."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _dispatch(words: list[str]) -> int:
    if not words:
        streams.complain(_overview(sys.stderr))
        return int(ExitCode.USAGE)
    first = words[0]
    if first == "help" and not os.path.exists(first):
        words = [*words[1:2], "--help"]
        first = words[0]
    if first in ("-h", "--help"):
        sys.stdout.write(_overview(sys.stdout))
        return int(ExitCode.OK)
    if first in ("-V", "--version"):
        sys.stdout.write(f"bolt-build {bolt_build.__version__}\n")
        return int(ExitCode.OK)
    if first not in VERBS:
        if _is_no_recipe(first):
            streams.complain(_unknown_verb(first))
            return int(ExitCode.USAGE)
        words = ["build", *words]
    verb, *rest = words
    return verb_named(verb).run(VerbParser(verb).arguments(rest))


def _is_no_recipe(word: str) -> bool:
    """True for a bare word that is no file: a verb that does not exist."""
    bare = not word.startswith("-") and word.replace("-", "_").isidentifier()
    return bare and not os.path.exists(word)


def _unknown_verb(word: str) -> str:
    near = nearest_verb(word)
    hint = f"did you mean '{near}'?" if near else f"verbs: {', '.join(VERBS)}"
    return f"bolt-build: error: '{word}' is neither a verb nor a recipe; {hint}\n"


def _overview(stream: TextIO) -> str:
    lines = [
        "usage: bolt-build [VERB] RECIPE... [options]",
        "       bolt-build --help | --version",
        "",
        "Builds standalone C++ inference engines from declarative recipes. Without a verb: build.",
        "",
        "verbs (each has its own --help):",
    ]
    for name, what in VERBS.items():
        lines += textwrap.wrap(
            what, width=_width(stream), initial_indent=f"  {name:<{_VERB}}", subsequent_indent=" " * (_VERB + 2)
        )
    return "\n".join(lines) + "\n"


def _width(stream: TextIO) -> int:
    """Columns of a terminal. What is no terminal has a line a verb."""
    if not stream.isatty():
        return 1000
    return max(shutil.get_terminal_size().columns, 40)


def _bug(error: Exception, words: list[str]) -> str:
    """A paragraph about an exception that nothing expected; the traceback goes to a file."""
    what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
    text = "".join(traceback.format_exception(error))
    about = f"bolt-build {bolt_build.__version__}, Python {sys.version}\narguments: {words!r}\n\n"
    try:
        # Read only now: where the package is broken, the less is read the better.
        log = importlib.import_module("bolt_build.cli.bug_reports").keep_report(about + text)
        where = f"The traceback is in {log}: please send it with the recipe that shows this."
    except (OSError, ImportError):
        where = f"The traceback could not be saved and follows.\n{about}{text}"
    return f"bolt-build: this is a bug in bolt-build, not in your recipe ({what}). {where}\n"
