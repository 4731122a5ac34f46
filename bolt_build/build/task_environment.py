"""The environment in which tasks run, here and elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping

_STEERING = (
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "LD_RUN_PATH",
    "DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS",
)  # fmt: skip
"""What compilers read behind the command line's back: no key of a task holds it, so that no result may depend on it."""


def task_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of every task: the caller's, with what would make results differ pinned down or left out.

    Where the caller has no PATH at all, as below `env -i`, tools are found on the system's. Compilers look for their
    linker on the PATH that they are given, so they are given that one too.
    """
    kept = {name: value for name, value in environment.items() if name not in _STEERING}
    return {"PATH": os.defpath} | kept | {"LC_ALL": "C", "PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": "0"}
