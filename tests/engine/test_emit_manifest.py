"""The manifest: what is embedded, and what stands beside the artifacts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_engine import FACTS, build_engine, tiny_constants, tiny_plan

from bolt_build.digest import digest_file
from bolt_build.emit.elf import read_elf
from bolt_build.emit.manifest import BuildFacts, ResolvedTool, embedded_manifest
from bolt_build.emit.subjects import manifest_json
from bolt_build.families.base import Candidate
from bolt_build.planner.kernel_sources import KernelSource
from bolt_build.runtime.loader import Engine
from bolt_build.targets import HOST, target_named


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_engine(tmp_path_factory.mktemp("engine"), tiny_plan(batches=(1,)), tiny_constants())


def test_the_engine_carries_what_is_known_before_linking(library: Path) -> None:
    with Engine(library) as engine:
        assert engine.manifest == json.loads(embedded_manifest(tiny_plan(batches=(1,)), HOST, FACTS))


def test_the_file_adds_digests_of_artifacts_and_what_the_library_needs(library: Path) -> None:
    weights = library.with_name("tiny.weights")
    tools = (ResolvedTool("cxx", "12.2.0", "33" * 32), ResolvedTool("onednn", "3.2.0"))
    facts = BuildFacts("11" * 32, tools, version="9")
    plan = tiny_plan(batches=(1,))
    statement = json.loads(manifest_json(embedded_manifest(plan, HOST, facts), "22" * 32, library, [weights, library]))
    assert statement["subject"] == [
        {"name": "libtiny.so", "digest": {"sha256": digest_file(library)}},
        {"name": "tiny.weights", "digest": {"sha256": digest_file(weights)}},
    ]
    build = statement["predicate"]["buildDefinition"]
    assert build["resolvedDependencies"] == [
        {"name": "model", "digest": {"sha256": "22" * 32}},
        {"name": "cxx", "version": "12.2.0", "digest": {"sha256": "33" * 32}},
        {"name": "onednn", "version": "3.2.0"},
    ]
    requires = build["internalParameters"].pop("requires")
    assert {"libgomp.so.1", "libc.so.6"} <= set(requires["libraries"])
    assert set(requires["leastVersions"]) >= {"GLIBC", "GOMP"}
    embedded = json.loads(embedded_manifest(plan, HOST, facts))
    del embedded["predicate"]["buildDefinition"]["internalParameters"]["requires"]
    # Its weights can be swapped: of which model they are is not the engine's to say.
    del build["resolvedDependencies"][0]
    assert {**statement, "subject": []} == embedded


def test_a_cuda_engine_states_the_least_driver() -> None:
    facts = BuildFacts(tools=(ResolvedTool("nvcc", "13.0.88"),))
    statement = json.loads(embedded_manifest(tiny_plan(target="h200"), target_named("h200"), facts))
    requires = statement["predicate"]["buildDefinition"]["internalParameters"]["requires"]
    assert requires == {"arch": "sm_90", "where": "cuda", "driver": "CUDA 13.0"}


def test_a_gpu_engine_says_where_its_kernels_come_from() -> None:
    def said(kernels: KernelSource | None) -> object:
        statement = json.loads(
            embedded_manifest(tiny_plan(target="h200"), target_named("h200"), BuildFacts(kernels=kernels))
        )
        return statement["predicate"]["buildDefinition"]["internalParameters"].get("tuning")

    assert said(None) is None
    assert said(KernelSource("predictions")) == {"source": "predictions"}
    assert said(KernelSource("lock", "net.lock.yaml", "NVIDIA H200", True, 2)) == {
        "source": "lock", "lock": "net.lock.yaml", "gpu": "NVIDIA H200", "stale": True, "predicted": 2,
    }  # fmt: skip


def test_settings_of_a_kernel_stand_beside_its_parameters() -> None:
    plan = tiny_plan(batches=(1,))
    step = replace(plan.plans[0].steps[0], candidate=Candidate("x", (("m", 64),), (("slices", 2),)))
    plan = replace(plan, plans=(replace(plan.plans[0], steps=(step,)),))
    statement = json.loads(embedded_manifest(plan, HOST, FACTS))
    (batch,) = statement["predicate"]["buildDefinition"]["internalParameters"]["batches"]
    assert batch["kernels"] == [
        {"kernel": "x", "layer": step.name, "parameters": {"m": 64}, "settings": {"slices": 2}}
    ]  # fmt: skip


def test_equal_builds_have_equal_manifests(library: Path) -> None:
    def made() -> str:
        return manifest_json(embedded_manifest(tiny_plan(), HOST, FACTS), "22" * 32, library, [library])

    first = made()
    assert first == made()
    assert str(library.parent) not in first


def test_a_library_exports_its_one_symbol(library: Path) -> None:
    assert read_elf(library).exported == ("tiny_bolt_v1",)


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.so").write_bytes(b"not")
    with pytest.raises(ValueError, match=r"^x\.so is no 64-bit little-endian ELF file$"):
        read_elf(tmp_path / "x.so")
