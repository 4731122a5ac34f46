"""Kills the process groups that a build left behind.

Run as a script; reads `+group` and `-group` lines until the build is gone.
"""

import os
import signal
import sys


def main() -> None:
    """Follow the lines on standard input; at its end, kill every group that is still there."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            continue


if __name__ == "__main__":
    main()
