"""What tasks do in Python, each in its own process: `python action.py ACTION ARGUMENT...` in the target's directory.

An action is a module of `actions/`; its `run` takes the arguments.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    # The directory of a script would shadow modules of other packages by name; the package itself must be found.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bolt_build.errors import BoltError, Diagnostic


def main(arguments: list[str]) -> None:
    """Run one action. Problems that have a diagnostic are printed as such, to the task's log."""
    action = importlib.import_module(f"bolt_build.build.actions.{arguments[0]}")
    try:
        action.run(*arguments[1:])
    except BoltError as error:
        sys.exit("\n".join(map(_said, error.diagnostics)))


def _said(found: Diagnostic) -> str:
    """As a build prints it, on lines of their own."""
    return f"error[{found.code}]: {found.message}" + (f"\n  hint: {found.hint}" if found.hint else "")


if __name__ == "__main__":
    main(sys.argv[1:])
