"""Which of bolt-build's own files an action depends on: computed, and exactly these make its task stale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cuda_tasks import TOOLS, UNIT
from planner_fakes import recipe

from bolt_build.build.files import FileStamp
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.own_code import own_sources
from bolt_build.build.own_code.facts import Versioned
from bolt_build.build.own_code.own_sources import PACKAGE, OwnSources, family_modules
from bolt_build.build.own_code.source_files import SourceFile, SourceFiles
from bolt_build.build.planning.context import BuildContext
from bolt_build.build.planning.model_file import ModelFile
from bolt_build.build.planning.plan_file import EngineSummary
from bolt_build.build.planning.task_graph import task_graph
from bolt_build.build.planning.written_model import written_model
from bolt_build.build.tasks import Task, ValueKind
from bolt_build.families import load
from bolt_build.graph import zoo
from bolt_build.plugins import Offer
from bolt_build.schema.recipe import Deepening, ModelSpec, Recipe, VariantSpec
from bolt_build.targets import target_named
from bolt_build.toolchain import Tool, Toolchain
from bolt_build.tuning.compile.tasks import driver_graph

HOST_TOOLS = Toolchain(
    (
        TOOLS.tool("cxx"),
        Tool("onednn", "/dnnl/libdnnl.so", "3.2", "d", ("/dnnl/include",), ("/dnnl/lib",), ("/dnnl/libdnnl.so.3",)),
        Tool("onnxruntime", "/onnxruntime", "1.30", "o"),
    )
)
NO_OFFERS: tuple[Offer, ...] = ()
EMITTED = ("engine", "plan_b1", "runner")


class EditedFiles(SourceFiles):
    """The package with one file edited. Every other is looked at once for all tests."""

    def __init__(self, edited: Path | None = None) -> None:
        super().__init__(None)
        self._edited = edited

    def of(self, path: Path, module: str = "") -> SourceFile:
        if path not in LOOKED_AT:
            LOOKED_AT[path] = super().of(path, module)
        return replace(LOOKED_AT[path], digest="edited") if path == self._edited else LOOKED_AT[path]


LOOKED_AT: dict[Path, SourceFile] = {}


def context(target: str) -> BuildContext:
    row = target_named(target)
    gpu = row.gpu is not None
    sources = ("engine.cpp", "plan_b1.cu" if gpu else "plan_b1.cpp", "tiny.h", "exports.map")
    engine = EngineSummary("tiny", sources, (UNIT,) if gpu else (), (1,), "0" * 64, 64, 64, 1)
    model = ModelFile((FileStamp("/m.onnx", "1" * 64, 1, 0, 0),))
    return BuildContext(recipe(), row, load(row), TOOLS if gpu else HOST_TOOLS, engine, model, verified=not gpu)


def tasks_of(target: str) -> dict[str, Task]:
    return {task.name: task for task in task_graph(context(target)).tasks}


def own(edited: str | None = None) -> OwnSources:
    """The package, with one of its files edited."""
    assert edited is None or (PACKAGE / edited).is_file(), edited
    return OwnSources(PACKAGE, EditedFiles(None if edited is None else PACKAGE / edited), NO_OFFERS)


@pytest.fixture(scope="module")
def before() -> dict[str, dict[str, Task]]:
    """The tasks of each target with the package as it is."""
    with pytest.MonkeyPatch.context() as patch:
        use(patch, own())
        return {target: tasks_of(target) for target in ("host", "h200")}


def use(monkeypatch: pytest.MonkeyPatch, sources: OwnSources) -> None:
    monkeypatch.setattr(own_sources, "_own", lambda: sources)


def stale(before: dict[str, dict[str, Task]], target: str) -> set[str]:
    """Tasks that an edit reaches by itself; what stands behind them follows from what they make."""
    now = tasks_of(target)
    assert list(before[target]) == list(now)
    return {name for name, task in now.items() if task != before[target][name]}


def compiles(*units: str, of: str = "") -> set[str]:
    return {f"compile-{of}{unit}" for unit in units}


ACTIONS = {"manifest", "verify"}
HOST_EDITS = {
    # The actions themselves, and what runs them.
    "build/action.py": ACTIONS,
    "build/planning/engine_file.py": {"verify"},
    "build/actions/manifest.py": {"manifest"},
    "build/actions/verify.py": {"verify"},
    "graph/ops/products/conv.py": {"verify"},
    "digest.py": ACTIONS,
    "emit/manifest.py": set(),
    "emit/subjects.py": {"manifest"},
    "emit/elf.py": {"manifest"},
    "verify/tolerance.py": {"verify"},
    "runtime/loader.py": {"verify"},
    "graph/zoo/samples.py": {"verify"},
    # What is planned and emitted reaches tasks by the files that planning writes.
    "planner/memory.py": set(),
    "emit/step_source.py": set(),
    "emit/templates/plan.cpp.j2": set(),
    "families/onednn/epilogue.py": set(),
    # C++: each file by what it includes.
    "runtime/runner/npy.h": compiles("arrays", of="runtime_"),
    "runtime/src/crc32.cpp": {"compile-runtime_crc32"},
    "families/onednn/include/bolt_onednn/kernel.h": compiles(*EMITTED)
    | compiles("operators", "primitive", of="onednn_"),
    "families/onednn/src/primitive.h": compiles("operators", "primitive", of="onednn_"),
    "families/onednn/src/pool.cpp": compiles("operators", of="onednn_"),
    # What no action of this engine reads.
    "families/cutlass/family.py": set(),
    "families/cutlass/include/bolt_cutlass/launch.h": set(),
    "build/compile_cuda.py": set(),
    "graph/zoo/resnet50.py": set(),
    "graph/variants/deepen.py": set(),
    # Recipes reach planning and tasks as what they say, whatever read them.
    "schema/recipe.schema.json": set(),
    "schema/load.py": set(),
    "cli/main.py": set(),
    "report/explained/explain.py": set(),
    "bench/runner.py": set(),
    "tuning/driver/src/lines.h": set(),
}

GPU_EDITS = {
    "families/cutlass/problems/conv.py": set(),
    "families/cutlass/include/bolt_cutlass/launch.h": compiles(*EMITTED, "k_0123"),
    "families/onednn/family.py": set(),
    "build/compile_cuda.py": compiles("plan_b1", "k_0123"),
    "runtime/src/device_cuda.cpp": {"compile-runtime_device_cuda"},
    "runtime/include/bolt/device.h": compiles(*EMITTED, "k_0123") | compiles("core", "device_cuda", of="runtime_"),
}


@pytest.mark.parametrize(
    ("target", "file"), [*(("host", file) for file in HOST_EDITS), *(("h200", file) for file in GPU_EDITS)]
)
def test_an_edit_reaches_exactly_the_tasks_that_depend_on_the_file(
    monkeypatch: pytest.MonkeyPatch, before: dict[str, dict[str, Task]], target: str, file: str
) -> None:
    use(monkeypatch, own(file))
    assert stale(before, target) == {"host": HOST_EDITS, "h200": GPU_EDITS}[target][file]


def test_links_and_copies_depend_on_none_of_our_files(before: dict[str, dict[str, Task]]) -> None:
    for tasks in before.values():
        for task in tasks.values():
            if task.rule in ("link", "copy"):
                assert [value for value in task.values if value.kind is ValueKind.SOURCE] == []


def test_an_edit_of_the_driver_reaches_its_own_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, own())
    tasks = driver_graph(context("h200")).tasks
    use(monkeypatch, own("tuning/driver/src/lines.h"))
    changed = [new.rule for old, new in zip(tasks, driver_graph(context("h200")).tasks, strict=True) if old != new]
    assert set(changed) == {"compile"}
    assert len(changed) == len(tasks) - 1


HOST_FAMILIES = family_modules(("onednn", "portable"))
PLANNING = {
    "planner/memory.py": True, "families/onednn/rule.py": True, "graph/ops/products/conv.py": True,
    "schema/recipe.py": True, "schema/load.py": False, "schema/recipe.schema.json": False, "emit/weights.py": True,
    "families/cutlass/problems/conv.py": False, "emit/engine.py": False, "verify/compare.py": False,
    "build/caching/cache.py": False,
}  # fmt: skip
EMISSION = {
    "emit/step_source.py": True, "emit/templates/plan.cpp.j2": True, "runtime/include/bolt_engine.h": True,
    "families/onednn/epilogue.py": True, "families/common/cxx.py": True, "families/cutlass/problems/conv.py": False,
    "verify/compare.py": False, "cli/main.py": False,
}  # fmt: skip


@pytest.mark.parametrize("file", PLANNING)
def test_an_edit_of_what_the_planner_imports_plans_again(file: str) -> None:
    modules = ("bolt_build.build.planning.engine_from_model", "bolt_build.emit.weights")
    changed = own(file).code_digest(modules, HOST_FAMILIES) != own().code_digest(modules, HOST_FAMILIES)
    assert changed is PLANNING[file]


@pytest.mark.parametrize("file", EMISSION)
def test_an_edit_of_what_emission_imports_emits_again(file: str) -> None:
    modules = ("bolt_build.build.planning.emission",)
    changed = own(file).code_digest(modules, HOST_FAMILIES) != own().code_digest(modules, HOST_FAMILIES)
    assert changed is EMISSION[file]
    # Planning a target is more than the planner's part of it.
    whole = ("bolt_build.build.planning.preparing",)
    assert (own(file).code_digest(whole, HOST_FAMILIES) != own().code_digest(whole, HOST_FAMILIES)) >= changed


def zoo_writes(monkeypatch: pytest.MonkeyPatch, place: Path, model: Recipe) -> bool:
    """True where the model's file is written again."""
    said: list[str] = []
    monkeypatch.setattr(zoo, "write", lambda name, path, change=None: path.write_bytes(b"model"))
    written_model(model, (), RecipeDirectory(place), said.append)
    return said == [f"writing {_named(model)} to {place / 'model.onnx'}"]


def _named(model: Recipe) -> str:
    return "the zoo's resnet50" if model.variant is None else "the variant 'deeper' of the zoo's resnet50"


ZOO = {
    "graph/zoo/resnet50.py": True, "graph/zoo/calibrate.py": True, "graph/ops/products/conv.py": True,
    "graph/reference.py": True, "graph/onnx_model/onnx_file.py": True, "dtypes.py": True, "graph/zoo/repvgg.py": False,
    "graph/variants/deepen.py": False,
    "planner/memory.py": False, "emit/weights.py": False, "build/planning/written_model.py": False,
}  # fmt: skip


@pytest.mark.parametrize("file", ZOO)
def test_a_zoo_model_is_written_again_where_what_makes_it_is_edited(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str
) -> None:
    model = replace(recipe(), model=ModelSpec(None, "resnet50", (1,), ()))
    use(monkeypatch, own())
    assert zoo_writes(monkeypatch, tmp_path, model)
    assert not zoo_writes(monkeypatch, tmp_path, model)
    use(monkeypatch, own(file))
    assert zoo_writes(monkeypatch, tmp_path, model) is ZOO[file]


@pytest.mark.parametrize(("file", "again"), [("graph/variants/deepen.py", True), ("graph/text.py", False)])
def test_a_variant_depends_on_what_rewrites_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, again: bool
) -> None:
    deeper = VariantSpec("deeper", deepen=Deepening("*"))
    model = replace(recipe(), model=ModelSpec(None, "resnet50", (1,), (), variant="deeper"), variants=(deeper,))
    use(monkeypatch, own())
    assert zoo_writes(monkeypatch, tmp_path, model)
    use(monkeypatch, own(file))
    assert zoo_writes(monkeypatch, tmp_path, model) is again


GROUPS = {
    "bolt_build.ops": True, "bolt_build.passes": True, "bolt_build.families": True, "bolt_build.targets": True,
    "bolt_build.peers": False, "bolt_build.zoo": False,
}  # fmt: skip


@pytest.fixture
def more_of_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of an installed package of two modules, of which the first imports the second."""
    package = tmp_path / "more_of_it"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "first.py").write_text("from more_of_it import second\n")
    (package / "second.py").write_text("ONE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    return package


@pytest.mark.parametrize("group", GROUPS)
def test_what_an_installed_package_offers_counts_where_it_is_looked_up(more_of_it: Path, group: str) -> None:
    """Added, edited (not only the module that is named), of another version, and asked for."""
    offer = Offer(group, "more", "more_of_it.first:THING", "more-of-it", "1.0")

    def digest_now(*installed: Offer, counts: bool = True) -> str:
        LOOKED_AT.pop(more_of_it / "second.py", None)
        found = OwnSources(PACKAGE, EditedFiles(), installed)
        return found.code_digest(["bolt_build.build.planning.engine_from_model"], HOST_FAMILIES, lambda offer: counts)

    without, with_it = digest_now(), digest_now(offer)
    assert (with_it != without) is GROUPS[group]
    assert (digest_now(replace(offer, version="1.1")) != with_it) is GROUPS[group]
    assert digest_now(offer, counts=False) == without
    (more_of_it / "second.py").write_text("ONE = 2\n")
    assert (digest_now(offer) != with_it) is GROUPS[group]


def test_a_package_is_known_by_its_version_and_all_its_files(more_of_it: Path) -> None:
    """Whatever the number of its offers; packages whose offers do not count are left out."""
    one = Offer("bolt_build.passes", "a", "more_of_it.first:A", "more-of-it", "1.0")
    other = Offer("bolt_build.peers", "p", "json:P", "another", "2.0")

    def versions(*installed: Offer) -> tuple[Versioned, ...]:
        LOOKED_AT.pop(more_of_it / "second.py", None)
        found = OwnSources(PACKAGE, EditedFiles(), installed)
        return found.package_versions(lambda offer: offer.group == "bolt_build.passes")

    (package,) = before = versions(one, replace(one, name="b"), other)
    assert (package.name, package.version, len(package.mark)) == ("more-of-it", "1.0", 12)
    (more_of_it / "second.py").write_text("ONE = 2\n")
    assert versions(one) != before


def test_headers_are_followed_from_one_to_the_next(tmp_path: Path) -> None:
    """Beside the file, then in the folders; what is in neither is a tool's."""
    folder = tmp_path / "include" / "a"
    folder.mkdir(parents=True)
    (tmp_path / "one.cpp").write_text('#include "beside.h"\n  #  include <a/far.h>\n#include <vector>\n')
    for path, text in ((tmp_path / "beside.h", ""), (folder / "far.h", '#include "next.h"\n'), (folder / "next.h", "")):
        path.write_text(text)

    def digest_now() -> str:
        found = OwnSources(PACKAGE, SourceFiles(None), NO_OFFERS)
        return found.header_digest([tmp_path / "one.cpp"], [tmp_path / "include"])

    first = digest_now()
    for path in (tmp_path / "beside.h", folder / "far.h", folder / "next.h"):
        path.write_text(path.read_text() + "// edited\n")
        assert digest_now() != first, path
        first = digest_now()
    (folder / "other.h").write_text("")
    assert digest_now() == first


def test_a_module_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"has no module bolt_build\.no_such_thing"):
        own().code_digest(["bolt_build.no_such_thing"])
