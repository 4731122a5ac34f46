"""The process `bolt-build`, which is `python -m bolt_build`: what Ctrl-C gets from its first imports to its end."""

import contextlib
import gc
import sys

from bolt_build.cli import interrupts

_COLLECTED = 20_000, 20, 20
"""Objects made between searches for garbage, and searches between larger ones. A plan is many objects that stay to its
end: at Python's own 700, looking through them took up to a fourth of the time."""


def run() -> int:
    """Run the command line of this process. Returns the exit code; raises nothing but SystemExit from argparse."""
    gc.set_threshold(*_COLLECTED)
    try:
        interrupts.install()
        # Loading the command line takes long enough to be interrupted.
        from bolt_build.cli.main import main

        return main()
    except KeyboardInterrupt:
        with contextlib.suppress(OSError, AttributeError):  # standard error may be full, or closed
            sys.stderr.write("\nbolt-build: interrupted\n")
        return 130
    finally:
        interrupts.finish()


if __name__ == "__main__":
    sys.exit(run())
