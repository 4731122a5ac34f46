"""The engine's manifest: what it was built from, in the shape of an in-toto statement with SLSA provenance.

An engine embeds what is known before it is linked. `manifest.json` beside it (`subjects.py`) is the same statement with
the digests of the artifacts as its subjects, and with what the linked library needs. No times, no hosts, no absolute
paths: equal builds have equal manifests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import bolt_build
from bolt_build.emit.subjects import digest_of, statement_text
from bolt_build.planner.engine_plan import BatchPlan, EnginePlan, Port, SlowSteps, Step
from bolt_build.planner.kernel_sources import KernelSource
from bolt_build.sizes import Dims
from bolt_build.targets import Target

MANIFEST_VERSION = 1
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://slsa.dev/provenance/v1"


@dataclass(frozen=True)
class ResolvedTool:
    """A tool or library that took part, by version and digest (SHA-256 in hex, empty where it has none)."""

    name: str
    version: str
    digest: str = ""


@dataclass(frozen=True)
class BuildFacts:
    """What the plan does not know: the digest (SHA-256, hex) of the expanded recipe, the tools, and where the kernels
    come from (None for a target that is not tuned). Nothing here changes with the values of weights."""

    recipe: str = ""
    tools: tuple[ResolvedTool, ...] = ()
    version: str = bolt_build.__version__
    kernels: KernelSource | None = None


def embedded_manifest(plan: EnginePlan, target: Target, facts: BuildFacts) -> str:
    """The manifest that the engine carries: JSON with sorted keys, without subjects."""
    return statement_text(_statement(plan, target, facts))


def _statement(plan: EnginePlan, target: Target, facts: BuildFacts) -> dict[str, Any]:
    dependencies = [{"name": tool.name, "version": tool.version, **digest_of(tool.digest)} for tool in facts.tools]
    return {
        "_type": _STATEMENT,
        "subject": [],
        "predicateType": _PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": f"urn:bolt-build:engine:v{MANIFEST_VERSION}",
                "externalParameters": {"name": plan.name, "target": plan.target, **_recipe(facts.recipe)},
                "internalParameters": {
                    "arch": target.arch,
                    "batches": [_batch(batch) for batch in plan.plans],
                    "layoutDigest": plan.layout_digest,
                    "manifestVersion": MANIFEST_VERSION,
                    "precision": plan.precision,
                    "requires": {"arch": target.arch, "where": target.where, **_driver(target, facts)},
                    **_slow(plan.slow),
                    **_tuning(facts.kernels),
                },
                "resolvedDependencies": dependencies,
            },
            "runDetails": {"builder": {"id": "bolt-build", "version": {"bolt-build": facts.version}}},
        },
    }


def _driver(target: Target, facts: BuildFacts) -> dict[str, str]:
    """The least driver of a CUDA engine, by the release of the CUDA runtime in it, which is the compiler's."""
    versions = [tool.version.split(".") for tool in facts.tools if tool.name == "nvcc"]
    return {"driver": f"CUDA {versions[0][0]}.0"} if target.gpu is not None and versions else {}


def _slow(found: Sequence[SlowSteps]) -> dict[str, Any]:
    """Where kernels leave most of the hardware unused; microseconds."""
    steps = [
        {
            "batch": each.batch, **_dims(each.dims), "bound": round(each.bound * 1e6, 3), "kernel": each.kernel,
            "measured": each.measured,
            "reasons": list(each.reasons), "share": round(each.share, 3), "steps": list(each.steps),
            "time": round(each.seconds * 1e6, 3),
        }
        for each in found
    ]  # fmt: skip
    return {"slow": steps} if steps else {}


def _tuning(kernels: KernelSource | None) -> dict[str, Any]:
    if kernels is None:
        return {}
    found: dict[str, Any] = {"source": kernels.source}
    if kernels.lock:
        found |= {"lock": kernels.lock, "gpu": kernels.gpu, "stale": kernels.stale, "predicted": kernels.predicted}
    return {"tuning": found}


def _recipe(sha256: str) -> dict[str, Any]:
    return {"recipe": {"sha256": sha256}} if sha256 else {}


def _batch(plan: BatchPlan) -> dict[str, Any]:
    return {
        "arenaBytes": plan.arena_bytes,
        "batch": plan.batch,
        **_dims(plan.dims),
        "inputs": [_port(port) for port in plan.inputs],
        "kernels": [_kernel(step) for step in plan.steps if not step.view],
        "outputs": [_port(port) for port in plan.outputs],
    }


def _dims(dims: Dims) -> dict[str, Any]:
    """The extents of dimensions of which the engine has several."""
    return {"dims": dict(dims)} if dims else {}


def _kernel(step: Step) -> dict[str, Any]:
    candidate = step.candidate
    settings = {"settings": dict(candidate.settings)} if candidate.settings else {}
    return {"kernel": candidate.family, "layer": step.name, "parameters": dict(candidate.parameters), **settings}


def _port(port: Port) -> dict[str, Any]:
    form = port.operand.format
    return {
        "dtype": form.dtype.value,
        "layout": form.layout.value,
        "name": port.name,
        "shape": list(port.operand.shape),
    }
