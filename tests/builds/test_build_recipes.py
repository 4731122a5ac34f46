"""The whole way with a real compiler, by the command line: a small convolutional model, built once for all tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from recipe_projects import PATIENCE_SECONDS, RECIPE, ROOT, Project, new_project, write_model
from watched_files import WATCHED, files_of

from bolt_build.build.caching.cache import Cache
from bolt_build.build.own_code.own_sources import PACKAGE, OwnSources, family_modules
from bolt_build.build.own_code.source_files import SourceFiles
from bolt_build.build.planning.plan_file import load_plan_file, place_of
from bolt_build.build.staleness.receipt import load_receipt

SOURCES = ["compile engine.cpp", "compile plan_b1.cpp", "compile plan_b3.cpp"]
KEYS = (
    "layers: {conv2: {precision: bf16}}",
    "engine: {io: {layout: channels_last}}",
    "engine: {io: {dtype: bf16}}",
    "engine: {io: {dtype: fp16}}",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, cache_home: Path) -> Project:
    project = new_project(tmp_path_factory.mktemp("recipes") / "first", cache_home)
    project.build()
    return project


@pytest.fixture
def project(built: Project) -> Project:
    """The built project with its recipe and model as they were, and everything built."""
    built.recipe()
    write_model(built.path / "tiny.onnx")
    built.build_here()
    return built


def test_a_build_leaves_a_verified_engine_and_all_that_it_needs(project: Project) -> None:
    assert json.loads((project.host / "verify.json").read_text())["ok"] is True
    names = {path.name for path in project.host.iterdir()}
    assert {"libtiny.so", "tiny.h", "tiny.weights", "tiny-run", "manifest.json", "verify.json"} <= names
    shown = subprocess.run([project.host / "tiny-run", "--info"], capture_output=True, text=True, check=True, cwd="/")
    assert "tiny" in shown.stdout


def test_a_second_build_has_nothing_to_do(project: Project) -> None:
    assert project.build() == []
    assert "tiny: done, nothing to do, " in project.bolt("tiny.yaml")
    assert project.bolt("tiny.yaml", "--dry-run") == "tiny: nothing to do\n"


def test_a_build_with_nothing_to_do_imports_neither_onnx_nor_numpy(project: Project) -> None:
    check = project.command("tiny.yaml")[2].replace(
        "sys.exit(main())", "code = main(); assert not {'onnx', 'numpy', 'jinja2'} & set(sys.modules), code"
    )
    subprocess.run([sys.executable, "-c", check, "tiny.yaml"], cwd=project.path, env=project.environment, check=True)


@pytest.mark.parametrize("action", ["manifest", "verify"])
def test_an_action_opens_no_file_of_ours_that_it_is_not_known_to_depend_on(
    project: Project, tmp_path: Path, action: str
) -> None:
    """What is computed from the code, against what a run of the action imports and opens."""
    plan = load_plan_file(project.host / "plan.json")
    assert plan is not None
    argv = [plan.places.expand(word, out=str(tmp_path)) for word in plan.task(action).argv]
    told = tmp_path / "opened.json"
    package = Path(argv[1]).parents[1]  # where the project's bolt-build lies: an installed one runs these tests
    watched = [argv[0], "-c", WATCHED, str(package) + os.sep, str(told), *argv[1:]]
    subprocess.run(watched, cwd=project.host, check=True)
    opened = set(json.loads(told.read_text()))
    chosen = (f"bolt_build.build.actions.{action}", *family_modules(("onednn", "portable")))
    known = OwnSources(PACKAGE, SourceFiles(None)).code_files(["bolt_build.build.action"], chosen)
    known = {file for path in known for file in files_of(path)}
    assert f"bolt_build/build/actions/{action}.py" in opened
    assert opened - known == set()


def test_a_comment_changes_nothing(project: Project) -> None:
    project.recipe(("bolt: 1\n", "# A comment.\nbolt: 1\n"))
    assert project.dry_run() == []
    assert project.build() == []


def test_another_number_of_samples_only_verifies_again(project: Project) -> None:
    project.recipe(("samples: 2", "samples: 3"))
    assert project.bolt("tiny.yaml", "--dry-run") == (
        "tiny/host: verify against onnxruntime: verify.samples changed (tiny.yaml:6): 2 -> 3\n"
    )
    assert project.build() == ["verify against onnxruntime"]


def test_a_policy_reaches_what_depends_on_it_and_the_dry_run_had_said_so(project: Project) -> None:
    project.recipe(("epilogue: true", "epilogue: false"))
    said = project.bolt("tiny.yaml", "--dry-run")
    assert "compile plan_b1.cpp: policy.fusion.epilogue changed (tiny.yaml:5): true -> false\n" in said
    expected = project.dry_run()
    assert project.build() == expected
    assert set(SOURCES) < set(expected)
    assert [label for label in expected if label.startswith("compile")] == SOURCES


@pytest.mark.parametrize("key", KEYS)
def test_every_key_of_an_engine_changes_its_code(project: Project, key: str) -> None:
    (project.path / "tiny.yaml").write_text(f"{RECIPE}{key}\n")
    assert {"compile plan_b1.cpp", "compile plan_b3.cpp"} <= set(project.dry_run())


def test_other_weights_compile_and_link_nothing(project: Project) -> None:
    library = (project.host / "libtiny.so").read_bytes()
    write_model(project.path / "tiny.onnx", seed=1)
    assert "write manifest.json: tiny.onnx: weights alone" in project.bolt("tiny.yaml", "--dry-run")
    expected = project.dry_run()
    assert expected == ["verify against onnxruntime", "write manifest.json"]
    assert project.build() == expected
    assert (project.host / "libtiny.so").read_bytes() == library
    assert json.loads((project.host / "verify.json").read_text())["ok"] is True


def test_a_source_edited_by_hand_is_written_again(project: Project) -> None:
    source = project.host / "src" / "plan_b1.cpp"
    before = source.read_bytes()
    source.write_bytes(before + b"// mine\n")
    assert "src/plan_b1.cpp was changed by hand; it is made again" in project.bolt("tiny.yaml")
    assert source.read_bytes() == before


def test_a_damaged_plan_is_made_again(project: Project) -> None:
    (project.host / "engine.json").write_text("{}")
    assert project.build() == []
    (project.host / "plan.json").write_text("{")
    assert project.build() == []


ONE_OF_EACH_KIND = ("compile-runtime_device_cpu", "compile-runtime_arrays", "compile-onednn_primitive")
"""Of what all engines share: the runtime, the runner, and a family's own source."""


def test_another_directory_gets_the_same_bytes(project: Project, tmp_path: Path) -> None:
    """Built elsewhere, with a cache that knows only what all engines share, and of each kind of that one file less."""
    other = new_project(tmp_path / "somewhere" / "else", tmp_path / "cache")
    plan, cache = load_plan_file(project.host / "plan.json"), Cache(other.cache / "bolt-build")
    assert plan is not None
    shared = [task for task in plan.graph.tasks if task.rule == "compile" and place_of(task.inputs[0])]
    assert set(ONE_OF_EACH_KIND) < {task.name for task in shared}
    for task in shared:
        made = load_receipt(project.host / "build" / "records", task.name)
        assert made is not None
        if task.name not in ONE_OF_EACH_KIND:
            cache.store(made.key, [(file.path, project.host / file.path, file.digest) for file in made.outputs])
    assert compiled_by(other) == {
        *SOURCES,
        "compile runner.cpp",
        *(task.label for task in shared if task.name in ONE_OF_EACH_KIND),
    }
    for name in ("libtiny.so", "tiny-run", "tiny.weights", "tiny.h", "manifest.json"):
        assert (project.host / name).read_bytes() == (other.host / name).read_bytes(), name


def compiled_by(project: Project) -> set[str]:
    """Builds; labels of the compilations that ran, those left out that came from the cache."""
    lines = [json.loads(line) for line in project.bolt("tiny.yaml", "--format", "json").splitlines()]
    ran = (line for line in lines if line["event"] == "task" and line["kind"] == "finished" and not line["cached"])
    return {line["label"] for line in ran if line["label"].startswith("compile ")}


def test_no_object_says_where_it_was_made(project: Project) -> None:
    objects = sorted((project.host / "build" / "objects").glob("*.o"))
    assert {f"{name}.o" for name in ("engine", "runtime_arrays", "onednn_operators")} < {path.name for path in objects}
    for path in objects:
        for place in (project.path, project.cache, PACKAGE, Path(sys.prefix)):
            assert str(place).encode() not in path.read_bytes(), f"{path.name} names {place}"


def test_a_broken_source_names_the_task_its_log_and_how_to_repeat_it(project: Project, tmp_path: Path) -> None:
    place = Project(tmp_path / "p", project.cache)
    shutil.copytree(project.path, place.path)
    fake = tmp_path / "bin" / "g++"
    fake.parent.mkdir()
    compiler = shutil.which("g++")
    fake.write_text(
        '#!/bin/sh\ncase "$*" in\n*plan_b1.cpp*) echo "plan_b1.cpp:1: error: no"; exit 1;;\n'
        # What nobody links is compiled from nothing.
        f'"-c "*) while [ "$1" != -o ]; do shift; done; exec {compiler} -x c++ -c /dev/null -o "$2";;\nesac\n'
        f'exec {compiler} "$@"\n'
    )
    fake.chmod(0o755)
    environment = place.environment | {"PATH": f"{fake.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        place.command("tiny.yaml", "--keep-going"), cwd=place.path, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 4
    failure = "error[task-failed]: tiny/host: compile plan_b1.cpp: exit status 1\n  | plan_b1.cpp:1: error: no\n"
    assert failure in done.stderr
    lost = "link libtiny.so, link tiny-run, write manifest.json, verify against onnxruntime"
    assert f"  not attempted: {lost}\n" in done.stderr
    assert "compile plan_b3.cpp" in done.stdout
    command = next(line for line in done.stderr.splitlines() if "to repeat it:" in line).partition(": ")[2]
    again = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout) == (1, "plan_b1.cpp:1: error: no\n")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.large)])
def test_an_interrupted_build_says_so_and_the_next_goes_on(built: Project, tmp_path: Path, number: int) -> None:
    place = new_project(tmp_path / "p", tmp_path / "cache")
    process = subprocess.Popen(
        place.command("tiny.yaml"), cwd=place.path, env=place.environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    first = next(line for line in process.stdout if line.startswith("["))
    process.send_signal(number)
    rest, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, rest
    assert "tiny: interrupted, " in rest
    assert list((place.host / "build" / "tmp").iterdir()) == []
    assert not (place.host / "libtiny.so").exists()
    assert first.partition("] ")[2].rpartition(" ")[0].rpartition(" ")[0] not in place.dry_run()


def test_without_a_compiler_the_mending_command_is_given(built: Project, tmp_path: Path) -> None:
    place = new_project(tmp_path / "p", tmp_path / "cache")
    done = subprocess.run(
        place.command("tiny.yaml"), cwd=place.path, env=place.environment | {"PATH": "/nowhere"}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 7
    assert "no C++ compiler (g++, clang++ or c++) on PATH" in done.stderr
    assert "apt-get install g++" in done.stderr
    assert not (place.host / "plan.json").exists()


def test_run_gives_what_the_engine_computes(project: Project) -> None:
    x = np.random.RandomState(3).randn(3, 3, 6, 6).astype(np.float32)
    np.save(project.path / "x.npy", x)
    project.bolt("run", "tiny.yaml", "--input", "x=x.npy", "--output", "y.npz")
    import onnxruntime

    session = onnxruntime.InferenceSession(str(project.path / "tiny.onnx"), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x})[0]
    np.testing.assert_allclose(np.load(project.path / "y.npz")["y"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "words",
    [("verify", "tiny.yaml"), ("run", "tiny.yaml", "--input", "x=x.npy", "--output", "y.npz")],
    ids=lambda w: w[0],
)
def test_an_engine_is_used_where_it_cannot_be_built(built: Project, tmp_path: Path, words: tuple[str, ...]) -> None:
    """As on a machine that was sent what another one built. It says what it did not compare."""
    sent = shutil.copytree(built.path, tmp_path / "sent")
    np.save(sent / "x.npy", np.zeros((1, 3, 6, 6), np.float32))
    built.path.rename(built.path.with_name("away"))
    try:
        done = subprocess.run(
            built.command(*words), cwd=sent, env=built.environment | {"PATH": "/nowhere"}, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
    finally:
        built.path.with_name("away").rename(built.path)
    assert done.returncode == 0
    reason = "no C++ compiler (g++, clang++ or c++) on PATH"
    assert done.stderr == f"tiny/host: this tool is not compared with the one that built it: {reason}\n"


def test_a_stale_engine_is_not_run(project: Project) -> None:
    project.recipe(("epilogue: true", "epilogue: false"))
    for verb in (["bench"], ["run", "--input", "x.npy"], ["verify"]):
        said = project.bolt(verb[0], "tiny.yaml", *verb[1:], code=3)
        assert said == (
            "error[stale-engine]: generated/tiny/host is not what tiny.yaml describes any more\n"
            "  hint: build it with: bolt-build tiny.yaml --target host\n"
        )


def test_an_engine_that_is_not_built_is_not_run(built: Project, tmp_path: Path) -> None:
    place = new_project(tmp_path / "p", tmp_path / "cache")
    assert place.bolt("bench", "tiny.yaml", code=3) == (
        "error[not-built]: generated/tiny/host was not built yet\n"
        "  hint: build it with: bolt-build tiny.yaml --target host\n"
    )


def test_bench_has_a_row_a_batch(project: Project) -> None:
    rows = json.loads(project.bolt("bench", "tiny.yaml", "--threads", "1", "--seconds", "0.05", "--format", "json"))
    assert [(row["batch"], row["threads"]) for row in rows] == [(1, 1), (3, 1)]
    assert all(row["median_ms"] > 0 for row in rows)


def test_bench_measures_peers_in_turns_with_the_engine(project: Project) -> None:
    words = ("--against", "onnxruntime", "--batch", "3", "--threads", "1", "--seconds", "0.1", "--rounds", "2")
    (found,), _ = json.JSONDecoder().raw_decode(project.bolt("bench", "tiny.yaml", *words, "--format", "json"))
    engine, peer = found["results"]
    assert (engine["name"], peer["name"], peer["batch"]) == ("engine", "onnxruntime", 3)
    assert peer["agreement"][0]["output"] == "y"
    assert peer["agreement"][0]["max_abs"] < 1e-3
    assert peer["engine_speedup"] == peer["median_ms"] / engine["median_ms"]


def test_verify_reports_again(project: Project) -> None:
    assert "agrees with onnxruntime" in project.bolt("verify", "tiny.yaml").replace("\n", " ")


def test_the_plan_names_every_step_and_what_was_decided(project: Project) -> None:
    shown = project.bolt("plan", "tiny.yaml")
    assert "batch 3: " in shown
    assert "conv2" in shown or "relu2" in shown
    assert "decisions" in shown


def test_the_graph_is_shown_before_and_after_the_passes(project: Project) -> None:
    imported = project.bolt("graph", "tiny.yaml", "--stage", "imported", "--batch", "3")
    optimised = project.bolt("graph", "tiny.yaml", "--batch", "3")
    assert "batch=3" in imported
    assert imported.count("\n") > optimised.count("\n")
    assert project.bolt("graph", "tiny.yaml", "--batch", "7", code=2).startswith(
        "tiny.yaml:3:33: error[unknown-batch]: tiny.yaml has no batch 7\n"
    )


def test_clean_removes_what_was_made_and_leaves_what_was_not(project: Project, tmp_path: Path) -> None:
    place = Project(tmp_path / "p", project.cache)
    shutil.copytree(project.path, place.path)
    (place.host / "notes.txt").write_text("mine")
    said = place.bolt("clean", "tiny.yaml", code=3)
    assert "left alone, as no build made them: " in said
    assert [path.name for path in place.host.iterdir()] == ["notes.txt"]
    (place.host / "notes.txt").unlink()
    place.bolt("clean", "tiny.yaml")
    assert list((place.path / "generated").iterdir()) == []
    assert (place.path / "tiny.onnx").exists()


def scons(project: Project, *words: str) -> str:
    words = ("-Q", "--sconstruct", str(ROOT / "SConstruct"), f"recipe={project.path / 'tiny.yaml'}", *words)
    done = subprocess.run(
        [sys.executable, "-m", "SCons", *words], cwd=project.path, env=project.environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_scons_is_another_door_to_the_same_build(project: Project) -> None:
    (project.host / "libtiny.so").unlink()
    assert "tiny/host: link libtiny.so (from the cache): output libtiny.so is missing\n" in scons(project, "-n")
    assert not (project.host / "libtiny.so").exists()
    assert "] link libtiny.so from the cache: output libtiny.so is missing\n" in scons(project, "-j2")
    assert (project.host / "libtiny.so").exists()
    assert project.dry_run() == []


def test_without_the_reference_the_engine_is_built_and_the_mending_command_given(
    built: Project, tmp_path: Path
) -> None:
    place = new_project(tmp_path / "p", built.cache)
    hide = (
        "import importlib.metadata as m; found = m.distribution\n"
        "def distribution(name):\n"
        "    if name == 'onnxruntime': raise m.PackageNotFoundError(name)\n"
        "    return found(name)\n"
        "m.distribution = distribution\n"
    )
    python, flag, code, *words = place.command("tiny.yaml")
    done = subprocess.run(
        [python, flag, hide + code, *words], cwd=place.path, env=place.environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 7, done.stdout + done.stderr
    assert done.stderr == (
        "onnxruntime: error[missing-tool]: not verified: onnxruntime is not installed\n"
        "  hint: python -m pip install 'onnxruntime>=1.18'\n"
    )
    assert (place.host / "libtiny.so").is_file()
    assert not (place.host / "verify.json").exists()
    assert place.build() == ["verify against onnxruntime"]


def test_a_touched_model_costs_one_look(project: Project) -> None:
    (project.path / "tiny.onnx").touch()
    assert project.build() == []
    plan = json.loads((project.host / "plan.json").read_text())
    assert plan["model"][0]["mtime_ns"] == (project.path / "tiny.onnx").stat().st_mtime_ns
