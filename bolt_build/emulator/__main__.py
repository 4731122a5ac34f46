"""`python -m bolt_build.emulator COMMAND...` runs a command with the emulated GPU: pytest -m gpu, a program of CUDA's.

EMULATED_SEED=1 has warps, copies and products take turns at random, another number otherwise so;
EMULATED_MULTIPROCESSORS says how many the device has.
"""

from __future__ import annotations

import os
import sys

from bolt_build.emulator import default_folder, environment

if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    os.execvpe(sys.argv[1], sys.argv[1:], {**os.environ, **environment(default_folder())})
