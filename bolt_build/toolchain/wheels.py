"""How to get what bolt-build's extras name, by the packages themselves: an index need not have bolt-build.

They are those of `pyproject.toml`, as `tests/repository/test_dependencies.py` checks.
"""

from __future__ import annotations

import shlex

EXTRAS = {
    "host": ("onednn-cpu-gomp==2023.2.0", "onednn-devel-cpu-gomp==2023.2.0"),
    "cuda": (
        "nvidia-cuda-nvcc==13.0.88",
        "nvidia-cuda-crt==13.0.88",
        "nvidia-nvvm==13.0.88",
        "nvidia-cuda-runtime==13.0.88",
        "nvidia-cuda-cccl==13.0.85",
    ),
    "verify": ("onnxruntime>=1.18",),
}


def installing(extra: str) -> str:
    """A line for a shell that installs what an extra brings."""
    return f"python -m pip install {shlex.join(EXTRAS[extra])}"
