"""Kills the process groups that a build left behind, and removes the folder of their temporary files.

Run as a script with the folder; reads `+group` and `-group` lines until the build is gone. The lock of the folder is
held by a descriptor that it inherits.
"""

import os
import shutil
import signal
import sys
import time

_TRIES = 20


def main() -> None:
    """Follow the lines on standard input; at its end, kill every group that is still there, and remove the folder."""
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
    for _ in range(_TRIES):
        shutil.rmtree(sys.argv[1], ignore_errors=True)
        if not os.path.lexists(sys.argv[1]):
            break
        time.sleep(0.05)  # what was killed may have been writing still


if __name__ == "__main__":
    main()
