"""Which GPU a target's row is, by the name that the driver gives it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import KernelProblem, Operand, TensorFormat
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.targets import CUDA, HOST, Target, target_named


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
        ("NVIDIA B200", "b200"),
        ("NVIDIA GeForce RTX 5090", "rtx5090"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
    ],
)
def test_one_row_has_the_drivers_name(name: str, target: str) -> None:
    assert [row.name for row in CUDA if row.gpu is not None and row.gpu.is_device(name)] == [target]


@pytest.mark.parametrize(
    "name", ["NVIDIA A10G", "NVIDIA L40", "NVIDIA A1000", "NVIDIA GeForce RTX 5090D", "NVIDIA", ""]
)
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


@pytest.mark.parametrize("row", [row for row in CUDA if row.gpu is not None], ids=lambda row: row.name)
def test_a_row_has_kernels_of_its_own_architecture_alone(row: Target) -> None:
    """WGMMA is Hopper's; every other row, later ones too, takes `mma.sync`."""
    shapes = (8, 64, 28, 28), (128, 64, 3, 3)
    form = TensorFormat(DType.F16, Layout.CHANNELS_LAST)
    problem = KernelProblem(
        Conv((1, 1), (1, 1), (1, 1), (1, 1), 1),
        (Operand(shapes[0], form), Operand(shapes[1], TensorFormat(DType.F16, Layout.ROW), constant=True)),
        (Operand((8, 128, 28, 28), form),), (), DType.F32, row.name,
    )  # fmt: skip
    (family,) = (each for each in load(row) if each.name == "cutlass")
    candidates, _ = family.candidates(problem, row)
    assert row.gpu is not None
    hopper = [candidate for candidate in candidates if "warpgroups" in dict(candidate.parameters)]
    assert candidates
    assert bool(hopper) == row.gpu.warpgroup_mma == (row.arch == "sm_90")
    assert row.gpu.embeds_ptx == any("compute_" in flag.partition("code=")[2] for flag in row.gpu.gencode)
