"""Which GPU a target's row is, by the name that the driver gives it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bolt_build.targets import CUDA, HOST, target_named


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
    ],
)
def test_one_row_has_the_drivers_name(name: str, target: str) -> None:
    assert [row.name for row in CUDA if row.gpu is not None and row.gpu.is_device(name)] == [target]


@pytest.mark.parametrize("name", ["NVIDIA A10G", "NVIDIA L40", "NVIDIA A1000", "NVIDIA", ""])
def test_no_row_has_the_name_of_another_gpu(name: str) -> None:
    assert not any(row.gpu is not None and row.gpu.is_device(name) for row in CUDA)


def test_kernels_are_tuned_where_there_are_several() -> None:
    assert all(row.tuned for row in CUDA)
    assert not HOST.tuned


def test_a_row_that_names_no_devices_takes_any_gpu_and_a_cpu_none() -> None:
    row = target_named("a100")
    assert row.gpu is not None
    assert replace(row, gpu=replace(row.gpu, device_names=())).is_device("anything")
    assert not target_named("host").is_device("anything")
