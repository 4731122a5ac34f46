"""What is rebuilt after an edit of a recipe for a GPU with a lock, and what `why` says of it: compiled never.

The tools are pretended, so no CUDA is needed. With `test_why.py` it is the table of docs/building.md.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from locked_net import TOOLS, Net
from onnx import TensorProto, helper, numpy_helper
from pretended import pretend_built
from test_build_own_sources import NO_OFFERS, EditedFiles, use

from bolt_build.build import builder
from bolt_build.build.builder import BuildOptions
from bolt_build.build.own_code.own_sources import PACKAGE, OwnSources
from bolt_build.build.planning import preparing
from bolt_build.build.planning.plan_file import load_plan_file
from bolt_build.build.why import why
from bolt_build.lockfile.reading import Lock, lock_text
from bolt_build.report.progress import QuietProgress
from bolt_build.schema.load import load_recipe
from bolt_build.targets import Target
from bolt_build.toolchain import Tool, Toolchain

RECIPE = """\
bolt: 1
model: {onnx: net.onnx, batch: [1, 4], dims: {H: 14}}
targets: {h200: {precision: fp16}}
tuning: {lock: net.lock.yaml}
"""
HOST_TOOL = Tool("onednn", "/dnnl/libdnnl.so", "3.2", "d", ("/dnnl/include",), ("/dnnl/lib",), ("/dnnl/libdnnl.so.3",))
VERIFIER = Tool("onnxruntime", "/onnxruntime", "1.30", "o")
INSTALLED = Toolchain((*TOOLS.tools, HOST_TOOL, VERIFIER))


@dataclass
class Machine:
    """What is installed, and which GPU is here."""

    tools: Toolchain = INSTALLED
    elsewhere: str | None = "this machine has no GPU that CUDA can use"

    def probe(self, names: Sequence[str]) -> Toolchain:
        return Toolchain(tuple(tool for tool in self.tools.tools if tool.name in names))

    def changed(self, name: str, **values: str) -> None:
        tools = (replace(tool, **values) if tool.name == name else tool for tool in self.tools.tools)
        self.tools = Toolchain(tuple(tools))

    def preparer(self, *given: Any, **more: Any) -> preparing.Preparer:
        here = {"find_tools": self.probe, "why_not_here": lambda target: self.elsewhere}
        return preparing.Preparer(*given, **(here | more))


def write_model(path: Path) -> None:
    """Two convolutions with ReLU over images whose height is symbolic."""
    weights = [numpy_helper.from_array(np.full((16, 16, 3, 3), 0.1, np.float32), f"w{index}") for index in range(2)]
    nodes = []
    for index, source in enumerate(("x", "r0")):
        nodes.append(helper.make_node("Conv", [source, f"w{index}"], [f"c{index}"], f"conv{index}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{index}"], [f"r{index}"], f"relu{index}"))
    ports = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 16, "H", 14]) for name in ("x", "r1"))
    graph = helper.make_graph(nodes, "net", [next(ports)], [next(ports)], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Planned once, with the candidates in the second place of the prediction in its lock."""
    path = tmp_path_factory.mktemp("why") / "here"
    path.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        Path("net.yaml").write_text(RECIPE)
        write_model(Path("net.onnx"))
        net = Net()
        net.lock(net.tuned(1))
        (path / "other.lock").write_text(lock_text(Lock((net.tuned(0),))))
        pretend_built(load_recipe(path / "net.yaml"), BuildOptions(path / "generated"), Machine().preparer)
    shutil.copytree(path, path.with_name("as it was"))
    return path


@dataclass
class Place:
    """A recipe that was built, on a machine."""

    path: Path
    machine: Machine
    patch: pytest.MonkeyPatch

    def kernels(self) -> set[str]:
        """Labels of the tasks that compile kernels, as they were built."""
        plan = load_plan_file(self.path / "generated" / "net" / "h200" / "plan.json")
        assert plan is not None
        return {task.label for task in plan.graph.tasks if task.name.startswith("compile-k_")}

    def text(self, old: str, new: str) -> None:
        assert old in RECIPE
        (self.path / "net.yaml").write_text(RECIPE.replace(old, new))

    def edited(self, file: str) -> None:
        """bolt-build itself with another text in one of its files."""
        use(self.patch, OwnSources(PACKAGE, EditedFiles(PACKAGE / file), NO_OFFERS))

    def stale(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Targets and labels of the tasks that would run, with the reasons, without the folder."""
        recipe = load_recipe(self.path / "net.yaml")
        options = BuildOptions(self.path / "generated", self.path / "cache")
        return {
            (each.target, each.task.label): tuple(reason.replace(f"{self.path}/", "") for reason in each.stale.reasons)
            for each in why([recipe], options, QuietProgress()).tasks
            if each.stale is not None
        }


@pytest.fixture
def place(built: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    use(monkeypatch, OwnSources(PACKAGE, EditedFiles(), NO_OFFERS))
    machine = Machine()
    monkeypatch.setattr(builder, "Preparer", machine.preparer)
    shutil.rmtree(built)
    shutil.copytree(built.with_name("as it was"), built)
    return Place(built, machine, monkeypatch)


def another_user(place: Place) -> None:
    home = place.path / "home"
    home.mkdir()
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        place.patch.setenv(name, str(home))
    for name in ("USER", "LOGNAME"):
        place.patch.setenv(name, "somebody")


NOTHING: dict[str, Callable[[Place], object]] = {
    "nothing": lambda place: None,
    "candidates": lambda place: place.text("{lock", "{candidates: 3, budget: 1min, lock"),
    "another user": another_user,
    "another CPU": lambda place: place.patch.setattr(os, "sched_getaffinity", lambda pid: set(range(64))),
    "another GPU that does not run it": lambda place: setattr(place.machine, "elsewhere", "the GPU here is a T4"),
}


@pytest.mark.parametrize("edit", NOTHING)
def test_what_makes_no_other_engine_builds_nothing(edit: str, place: Place) -> None:
    NOTHING[edit](place)
    assert place.stale() == {}


PLANNED = ("compile engine.cpp", "compile plan_b1.cu", "compile plan_b4.cu")
BEHIND = ("link libnet.so", "link net-run", "write manifest.json")
OTHER_DIMS = "model.dims.H changed (net.yaml:2): 14 -> 28"
OWN = ("bolt-build itself changed",)


def test_a_gpu_that_runs_the_engine_verifies_it(place: Place) -> None:
    place.machine.elsewhere = None
    assert place.stale() == {("h200", "verify against onnxruntime"): ("not verified yet",)}


def test_an_engine_that_was_built_without_a_gpu_is_the_recipes_where_one_is(place: Place) -> None:
    """`bench` and `run` take it there as it is."""
    recipe = load_recipe(place.path / "net.yaml")
    (spec,) = recipe.targets
    directory = BuildOptions(place.path / "generated").directory(recipe)
    preparer = place.machine.preparer(recipe, directory, lambda text: None)
    assert preparer.is_current(spec)
    place.machine.elsewhere = None
    assert preparer.is_current(spec)
    place.machine.changed("cutlass", version="4.3.0", digest="v")
    assert not place.machine.preparer(recipe, directory, lambda text: None).is_current(spec)


def test_another_cutlass_compiles_all_kernels(place: Place) -> None:
    kernels = place.kernels()
    place.machine.changed("cutlass", version="4.3.0", digest="v")
    found = place.stale()
    assert {label for _, label in found} >= {*PLANNED, *kernels, *BEHIND}
    assert set(found.values()) == {("CUTLASS changed 4.2.0.0 -> 4.3.0",)}


def test_another_lock_compiles_the_kernels_that_it_chose(place: Place) -> None:
    shutil.copy(place.path / "other.lock", place.path / "net.lock.yaml")
    found = place.stale()
    new = {label for (_, label), reasons in found.items() if reasons == ("not built yet",)}
    assert new
    assert not new & place.kernels()
    assert {label for _, label in found} - new == {*PLANNED, *BEHIND}
    (reason,) = {reasons[0] for (_, label), reasons in found.items() if label not in new}
    kernel = r"([a-z_]+=\S+ ?)+, 5\.000 us"
    assert re.match(
        r"tuning\.lock changed \(net\.yaml:4\): batch 4: relu0 and 1 more: "
        rf"cutlass {kernel} -> (cutlass )?{kernel}; batch 1: ",
        reason,
    )


def test_other_dims_plan_again(place: Place) -> None:
    place.text("H: 14", "H: 28")
    found = place.stale()
    new = {label for (_, label), reasons in found.items() if reasons == ("not built yet",)}
    assert {label for _, label in found} - new == {*PLANNED, *BEHIND}
    assert {reasons[0] for (_, label), reasons in found.items() if label not in new} == {OTHER_DIMS}


def test_a_target_more_leaves_the_others_alone(place: Place) -> None:
    place.text("{h200: {precision: fp16}}", "{h200: {precision: fp16}, host: {precision: fp32}}")
    found = place.stale()
    assert ("host", "link libnet.so") in found
    assert {(target, reasons) for (target, _), reasons in found.items()} == {("host", ("not built yet",))}


def test_a_template_compiles_what_may_include_it(place: Place) -> None:
    kernels = place.kernels()
    place.edited("families/cutlass/include/bolt_cutlass/units/conv_kernel.h")
    found = place.stale()
    assert {label for _, label in found} >= {*PLANNED, *kernels, *BEHIND}
    assert set(found.values()) == {OWN}


def test_an_emitter_that_writes_the_same_builds_nothing(place: Place) -> None:
    place.edited("families/cutlass/kinds/windows/resident.py")
    assert place.stale() == {}


def test_another_flag_compiles_all_that_has_it(place: Place) -> None:
    """Flags are a target's, whose row is bolt-build's own."""
    kernels = place.kernels()
    row = preparing.target_named

    def flagged(name: str) -> Target:
        found = row(name)
        return replace(found, compile_flags=(*found.compile_flags, "-lineinfo"))

    place.patch.setattr(preparing, "target_named", flagged)
    place.edited("targets.py")
    found = place.stale()
    assert {label for _, label in found} == {*PLANNED, *kernels, *BEHIND}
    assert set(found.values()) == {OWN}
