"""Kernels of half precision compute in bf16 with the tiles that they have in fp16, where the GPU can."""

from __future__ import annotations

import pytest
from emulated_labels import OFTEN, PLAIN_IN_BF16, WRITTEN_IN_BF16
from gpu_bf16 import in_bf16
from gpu_harness import Trial
from gpu_layers import small_trials

from bolt_build.dtypes import DType
from bolt_build.families import load
from bolt_build.families.base import Family, KernelProblem, StepExpressions
from bolt_build.families.cutlass.kinds.warps.warp import WarpTile
from bolt_build.families.cutlass.kinds.warps.warp_chain import WarpChainTile
from bolt_build.families.grouped.kinds.rows import RowsTile
from bolt_build.targets import Target, target_named

H200, A100, T4 = (target_named(name) for name in ("h200", "a100", "t4"))


def trial_named(label: str) -> Trial:
    return next(trial for name, trial in small_trials(OFTEN).items() if name.startswith(label))


def family_of(trial: Trial, target: Target) -> Family:
    return next(family for family in load(target) if family.name == trial.candidate.family)


def sources(problem: KernelProblem, trial: Trial) -> tuple[str, str]:
    """What a plan says of the step, and the unit of its kernel."""
    family, count = family_of(trial, H200), len(problem.inputs)
    inputs, outputs = tuple(f"x{i}" for i in range(count)), tuple(f"y{i}" for i in range(len(problem.outputs)))
    at = StepExpressions(inputs, outputs, inputs)
    code = family.emit(problem, trial.candidate, H200, at)
    (unit,) = family.units([(problem, trial.candidate)], H200)
    return f"{code.member_type}\n{code.member_arguments}\n{code.call}", unit.text


@pytest.mark.parametrize("label", WRITTEN_IN_BF16)
def test_a_kernel_in_bf16_is_the_one_in_fp16_with_another_type(label: str) -> None:
    trial = trial_named(label)
    halves, brains = trial.step.problem, in_bf16(trial).step.problem
    family = family_of(trial, H200)
    assert family.candidates(brains, H200)[0] == family.candidates(halves, H200)[0]
    assert family.predict(brains, trial.candidate, H200) == family.predict(halves, trial.candidate, H200)
    (plan, unit), (plan_in_bf16, unit_in_bf16) = sources(halves, trial), sources(brains, trial)
    assert "bf16" not in plan + unit
    assert "bolt::portable::bf16" in plan_in_bf16
    # The kernel that adds up slices knows the type, those that leave them do too: their factors are of it.
    assert ", bolt::portable::bf16>" in unit_in_bf16


@pytest.mark.parametrize("label", PLAIN_IN_BF16)
def test_gpus_without_bf16_refuse_it_with_a_reason(label: str) -> None:
    trial = trial_named(label)
    family = family_of(trial, T4)
    assert family.candidates(trial.step.problem, A100)[0]
    assert family.candidates(in_bf16(trial).step.problem, A100)[0]
    found, refusals = family.candidates(in_bf16(trial).step.problem, T4)
    assert (found, [each.reason for each in refusals]) == ((), ["tensor cores of target 't4' have no bf16"])


@pytest.mark.parametrize(
    ("label", "tile"),
    [
        ("slices-3x3s2-residual-cutlass-64x64x64x32x32x5x1x2-f16", WarpTile),
        ("dw-form-grouped-rowsx", RowsTile),
        ("pair-registers+56-", WarpChainTile),
    ],
)
def test_a_tile_that_computes_in_f16_alone_is_refused_for_bf16(
    label: str, tile: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = trial_named(label)
    family, brains = family_of(trial, H200), in_bf16(trial).step.problem
    assert family.refuse(brains, trial.candidate, H200) is None
    monkeypatch.setattr(tile, "halves", (DType.F16,))
    assert family.refuse(brains, trial.candidate, H200) == "computes in f16, not in bf16"
    assert family.refuse(trial.step.problem, trial.candidate, H200) is None


def test_what_is_stored_in_another_half_precision_than_is_read_is_refused() -> None:
    for label, reason in (
        ("dw-form-grouped-", "stores f16 where it reads that, not bf16"),
        ("at-form-attention-warpx", "stores f16 where it reads that, not bf16"),
        (
            "3x3s2-cutlass-",
            "reads bf16/channels_last only where it copies channels anyway: few, or no multiple of 8",
        ),
    ):
        trial = trial_named(label)
        problem, brains = trial.step.problem, in_bf16(trial).step.problem
        mixed = KernelProblem(
            problem.op, (brains.inputs[0], *problem.inputs[1:]), problem.outputs, problem.epilogue, DType.F32, "h200"
        )
        assert {each.reason for each in family_of(trial, H200).candidates(mixed, H200)[1]} == {reason}
