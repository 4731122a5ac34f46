"""A build of planned tasks in a process of its own, to be interrupted: `python build_child.py DIRECTORY JOBS`.

Prints a line an event. Exits with 130 where it was interrupted, 1 where a task failed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bolt_build.build.claim import directory_claim
from bolt_build.build.events import TaskEvent
from bolt_build.build.running.session import SessionOptions, SessionPart, run_session


def say(text: str) -> None:
    print(text, flush=True)


def show(event: TaskEvent) -> None:
    say(f"{event.kind.value} {event.task}")


def main() -> int:
    directory = Path(sys.argv[1])
    options = SessionOptions(int(sys.argv[2]), False, str(directory.parent / "cache"), 1 << 30)
    with directory_claim(directory, wait=True, say=say) as lock:
        result = run_session([SessionPart(directory, ("host",), lock)], options, show)
    say(f"end {result.trouble}")
    return 130 if result.interrupted else 1 if result.failed or result.trouble else 0


if __name__ == "__main__":
    sys.exit(main())
