"""How many kernels ran on a GPU as tests run them, and how they were."""

from __future__ import annotations

from functools import partial
from typing import Any

from . import figures, of_gpu, table

_TYPES = {"fp16": ("f16",), "bf16": ("bf16",), "fp32": ("f32",), "integers": ("i8", "u8", "u16", "i32", "i64")}


@figures("gpu_kernels")
def gpu_kernels(data: Any) -> dict[str, str]:
    """A row a family, by the type of what its kernels store."""
    rows = []
    for family, found in data["families"].items():
        counts = [sum(found.get(each, 0) for each in kinds) for kinds in _TYPES.values()]
        rows.append([family, str(sum(found.values())), *(str(count) for count in counts)])
    sums = (str(sum(int(row[column]) for row in rows)) for column in range(1, len(_TYPES) + 2))
    head = [f"kernels on an {of_gpu(data)} by what they store", "all", *_TYPES]
    worst = data["worst"][0]
    return {
        "gpu_kernels": table(head, [*rows, ["all", *sums]]),
        "gpu_kernels.ran": f"{data['ran']:,} of {data['kernels']:,}",
        "gpu_kernels.wrong": str(len(data["wrong"])), "gpu_kernels.crashed": str(len(data["crashed"])),
        "gpu_kernels.worst": f"{worst['error']:.2f}", "gpu_kernels.worst_kernel": f"`{worst['kernel']}`",
    }  # fmt: skip


def _later(name: str, data: Any) -> dict[str, str]:
    return {
        f"{name}.ran": f"{data['ran']:,} of {data['kernels']:,}",
        f"{name}.wrong": str(len(data["wrong"])),
        f"{name}.worst": f"{data['worst'][0]['error']:.2f}",
    }


# Kernels that came later, in the order of runs.
for _name in ("odd", "words", "parts", "clusters", "stores", "spread", "moments"):
    figures(f"gpu_kernels_{_name}")(partial(_later, f"gpu_kernels_{_name}"))
