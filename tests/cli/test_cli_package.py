"""`bolt-build package`: what lies in archive and wheel, and that a stranger's build and Python find and run them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from checked_memory import under_valgrind
from packed_files import blob, command, files_in, wheel_in
from recipe_projects import PATIENCE_SECONDS, ROOT, Project, new_project

from bolt_build.errors import ExitCode
from bolt_build.runtime.loader import Engine
from bolt_build.workflows.wheel import write_wheel


@pytest.fixture(scope="module", autouse=True)
def _not_compressed() -> Iterator[None]:
    """oneDNN's library goes into a dozen packages here, and nothing is asked of how small it gets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bolt_build.workflows.packaging.LEVEL", 0)
        patch.setattr("bolt_build.workflows.wheel.LEVEL", 0)
        yield


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory, cache_home: Path) -> Project:
    """Built, packed, and unpacked into `use/`."""
    project = new_project(tmp_path_factory.mktemp("package") / "p", cache_home)
    project.build()
    said = project.bolt("package", "tiny.yaml").split()
    assert said[2::3] == ["tiny-host.tar.gz", "tiny-host-debug.tar.gz", wheel_in(project.path).name]
    with tarfile.open(project.path / "tiny-host.tar.gz") as archive:
        archive.extractall(project.path / "use", filter="data")
    return project


def test_an_example_finds_the_package_and_runs(packed: Project, tmp_path: Path) -> None:
    """By CMake and by pkg-config, each where it is installed, from a place that is not where it was packed."""
    root = packed.path / "use" / "tiny-host"
    example = shutil.copytree(root / "example", tmp_path / "example")
    said = []
    if shutil.which("cmake"):
        said.append(command(built_by_cmake(root, example), cwd=example))
    if shutil.which("pkg-config"):
        found = ("pkg-config", f"--with-path={root}/lib/pkgconfig")
        flags = command(*found, "--cflags", "--libs", "tiny", cwd=example).split()
        weights = command(*found, "--variable=weights", "tiny", cwd=example).strip()
        command("g++", "-Wall", "-Werror", "main.cpp", f'-DWEIGHTS="{weights}"', *flags, "-o", "example", cwd=example)
        said.append(command("./example", cwd=example))
    if not said:
        pytest.skip("neither CMake nor pkg-config is installed")
    for text in said:
        first, second = text.splitlines()
        assert first == "tiny for host, batch 1"
        assert second.startswith("y: 20 bytes ")
        assert len(second.split()) == 3 + 4


def built_by_cmake(root: Path, example: Path) -> str:
    """The example's program, from its folder."""
    command("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={root}", cwd=example)
    command("cmake", "--build", "build", cwd=example)
    return "build/example"


@pytest.mark.large
def test_valgrind_finds_nothing_wrong_in_the_example(packed: Project, tmp_path: Path) -> None:
    root = packed.path / "use" / "tiny-host"
    example = shutil.copytree(root / "example", tmp_path / "example")
    if not shutil.which("cmake"):
        pytest.skip("CMake is not installed")
    checked = under_valgrind([built_by_cmake(root, example)])
    if checked is None:
        pytest.skip("valgrind is not installed")
    assert command(*checked, cwd=example).startswith("tiny for host, batch 1\n")


def test_what_lies_in_it(packed: Project) -> None:
    """Every file with its digest; a library that is smaller, and names its debug information."""
    root = packed.path / "use" / "tiny-host"
    sums = dict(reversed(line.split("  ")) for line in (root / "SHA256SUMS").read_text().splitlines())
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert files == sums.keys() | {"SHA256SUMS"}
    assert all(hashlib.sha256((root / name).read_bytes()).hexdigest() == digest for name, digest in sums.items())
    assert {"licences/bolt-build-LICENSE", "licences/onednn-cpu-gomp-LICENSE.txt", "share/tiny/manifest.json"} <= files
    assert "bolt-build: bolt-build-LICENSE\n" in (root / "licences" / "README").read_text()
    library = root / "lib" / "libtiny.so"
    assert library.stat().st_size < (packed.host / "libtiny.so").stat().st_size / 3
    assert b"libtiny.so.debug" in library.read_bytes()


def test_equal_builds_make_equal_archives(packed: Project) -> None:
    (packed.path / "again").mkdir()
    for path in packed.host.iterdir():
        os.utime(path, (0, 0))
    packed.bolt("package", "tiny.yaml", "--out", "again")
    for name in ("tiny-host.tar.gz", "tiny-host-debug.tar.gz", wheel_in(packed.path).name):
        assert (packed.path / "again" / name).read_bytes() == (packed.path / name).read_bytes()


USE = """\
import importlib.metadata, importlib.util, os, pathlib, sys
import numpy as np
import tiny_host
assert importlib.util.find_spec("bolt_build") is None
assert tiny_host.engine().batches == (1, 3)
given = {"x": np.load("x.npy")}
outputs = []
for weights in (str(tiny_host.WEIGHTS), tiny_host.WEIGHTS, tiny_host.WEIGHTS.read_bytes()):
    with tiny_host.load(weights, threads=1) as model, model.context(3) as context:
        outputs.append(context.run(given)["y"])
with tiny_host.Engine(os.fspath(tiny_host.LIBRARY)) as engine, engine.create(os.fspath(tiny_host.WEIGHTS)) as model:
    outputs.append(model.context(3).run(given)["y"])
assert all(np.array_equal(each, outputs[0]) for each in outputs)
np.save("y.npy", outputs[0])
print(importlib.metadata.version("tiny-host"), importlib.metadata.requires("tiny-host"))
try:
    tiny_host.load(b"no weights")
except tiny_host.EngineError as error:
    print(error)
"""


def bare_environment(folder: Path) -> Path:
    """A virtual environment with NumPy alone. Returns its Python."""
    venv.create(folder, symlinks=True)
    installed = Path(np.__file__).parents[1]
    (packages,) = folder.glob("lib/python*/site-packages")
    for path in (*installed.glob("numpy"), *installed.glob("numpy.libs"), *installed.glob("numpy-*.dist-info")):
        (packages / path.name).symlink_to(path)
    return folder / "bin" / "python"


def test_the_wheel_runs_where_numpy_alone_is_installed(packed: Project, tmp_path: Path) -> None:
    """Without bolt-build, and without a compiler on the path."""
    python = bare_environment(tmp_path / "environment")
    wheel = wheel_in(packed.path)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python), "install", "-q")
    command(*pip, "--no-index", str(wheel), cwd=tmp_path)
    given = np.random.default_rng(0).standard_normal((3, 3, 6, 6), np.float32)
    np.save(tmp_path / "x.npy", given)
    done = subprocess.run(
        [python, "-I", "-c", USE], cwd=tmp_path, env={}, capture_output=True, text=True, check=False,
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    version, refusal = done.stdout.splitlines()
    assert version == f"{wheel.name.split('-')[1]} ['numpy>=1.26']"
    assert refusal == "the memory given as weights is not a bolt-build weights file (bad weights)"
    with Engine(packed.host / "libtiny.so").create(packed.host / "tiny.weights") as model:
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), model.context(3).run({"x": given})["y"])


def test_the_wheel_says_what_it_needs_and_how_it_is_used(packed: Project) -> None:
    with zipfile.ZipFile(wheel_in(packed.path)) as wheel:
        names = wheel.namelist()
        about = next(name for name in names if name.endswith("/METADATA")).rpartition("/")[0]
        metadata, tags, init, record = (
            wheel.read(name).decode()
            for name in (f"{about}/METADATA", f"{about}/WHEEL", "tiny_host/__init__.py", f"{about}/RECORD")
        )
        assert {line.split(",")[0] for line in record.splitlines()} == set(names)
        assert {name for name in names if name.startswith("tiny_host/") and not name.endswith(".py")} == {
            f"tiny_host/{name}"
            for name in ("libtiny.so", "libdnnl.so.3", "libgomp.so.1", "tiny.weights", "manifest.json", "py.typed")
        }
    assert metadata.startswith("Metadata-Version: 2.4\nName: tiny-host\nVersion: 0+")
    assert f"{about}/licenses/bolt-build-LICENSE" in names
    least = json.loads((packed.host / "manifest.json").read_text())["predicate"]["buildDefinition"]
    glibc = least["internalParameters"]["requires"]["leastVersions"]["GLIBC"].replace(".", "_")
    assert tags.splitlines()[-1] == f"Tag: py3-none-manylinux_{glibc}_x86_64"
    assert '"x": np.zeros([1, 3, 6, 6], "float32"),' in init
    compile(init, "__init__.py", "exec")


@pytest.mark.parametrize(
    ("dims", "context"),
    [({}, "model.context(batch=2)"), ({"sequence": 64}, 'model.context(batch=2, dims={"sequence": 64})')],
)
def test_the_wheels_example_names_what_a_context_must_be_told(
    dims: dict[str, int], context: str, tmp_path: Path
) -> None:
    port = {"name": "x", "dtype": "f32", "shape": [2, 64]}
    batch = {"batch": 2, "inputs": [port], "outputs": [port]} | ({"dims": dims} if dims else {})
    inner = {"batches": [batch], "requires": {"leastVersions": {"GLIBC": "2.34"}}}
    built = {"externalParameters": {"name": "enc", "target": "host"}, "internalParameters": inner}
    manifest = json.dumps({"predicate": {"buildDefinition": built}}).encode()
    with zipfile.ZipFile(write_wheel(tmp_path, {"manifest.json": manifest}, ())) as wheel:
        init = wheel.read("enc_host/__init__.py").decode()
    assert f"with enc_host.load() as model, {context} as context:\n" in init


def test_a_version_is_the_packages_own(packed: Project, tmp_path: Path) -> None:
    packed.bolt("package", "tiny.yaml", "--out", str(tmp_path), "--version", "1.2.0rc1")
    assert wheel_in(tmp_path).name.startswith("tiny_host-1.2.0rc1-py3-none-manylinux_")
    with tarfile.open(tmp_path / "tiny-host.tar.gz") as archive:
        found = archive.extractfile("tiny-host/lib/pkgconfig/tiny.pc")
        assert found is not None
        assert b"\nVersion: 1.2.0rc1\n" in found.read()
    said = packed.bolt("package", "tiny.yaml", "--version", "v1", code=ExitCode.USAGE)
    assert "argument --version: 'v1' is no version such as 1.2.0, 1.2.0rc1 or 1.2.0+build.5\n" in said


def test_what_is_not_packed(packed: Project, tmp_path: Path) -> None:
    other = new_project(tmp_path / "p", packed.cache)
    assert "error[not-built]: generated/tiny/host was not built yet" in other.bolt(
        "package", "tiny.yaml", code=ExitCode.INVALID
    )
    assert other.bolt("package", "tiny.yaml", "--out", "gone", code=ExitCode.USAGE) == (
        "gone: error[no-place]: there is no such directory\n  hint: make it with: mkdir -p gone\n"
    )
    assert other.bolt("package", "tiny.yaml", "--out", "tiny.yaml", code=ExitCode.USAGE) == (
        "tiny.yaml: error[no-place]: is no directory\n  hint: name one with --out DIR\n"
    )
    report = packed.host / "verify.json"
    text = report.read_text()
    try:
        report.write_text(json.dumps(json.loads(text) | {"ok": False}))
        said = packed.bolt("package", "tiny.yaml", code=ExitCode.VERIFY_FAILED)
    finally:
        report.write_text(text)
    assert said == (
        "error[not-verified]: generated/tiny/host departs from the reference\n"
        "  hint: see what departs with: bolt-build verify\n"
    )


@pytest.mark.parametrize("name", ["tiny.weights", "libtiny.so", "manifest.json"])
def test_a_file_that_is_not_what_the_build_made_is_not_packed(packed: Project, tmp_path: Path, name: str) -> None:
    """As a disk that loses bits leaves it: of the same size."""
    path, aside = packed.host / name, tmp_path / name
    # Another file in its place, because this process may have the library loaded: what is written into a loaded one
    # changes the code and data of those who run it.
    path.rename(aside)
    whole = aside.read_bytes()
    out = tmp_path / "out"
    out.mkdir()
    try:
        path.write_bytes(
            whole[:100] + bytes([whole[100] ^ 1]) + whole[101:] if name != "manifest.json" else whole[:100]
        )
        said = packed.bolt("package", "tiny.yaml", "--out", str(out), code=ExitCode.INVALID)
    finally:
        aside.replace(path)
    why = "" if name == "manifest.json" else ": it is not what manifest.json says"
    assert said == (
        f"error[changed-engine]: generated/tiny/host: {name} is missing or was changed{why}\n"
        "  hint: build it again: what was changed is made anew\n"
    )
    assert not list(out.iterdir())


@pytest.fixture(scope="module")
def image(packed: Project) -> Path:
    """A folder with the image of the packed engine, and what is known of it."""
    pytest.importorskip("cyclonedx", reason="pip install 'bolt-build[proof,test]'")
    folder = packed.path / "images"
    folder.mkdir()
    said = packed.bolt("package", "tiny.yaml", "--out", "images", "--oci").split()
    assert said[-1] == "images/tiny-host.oci"
    return folder


def test_an_image_has_the_weights_in_a_layer_of_their_own(packed: Project, image: Path) -> None:
    layout = image / "tiny-host.oci"
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(blob(layout, index["manifests"][0]))
    config = json.loads(blob(layout, manifest["config"]))
    weights, rest = (files_in(blob(layout, each)) for each in manifest["layers"])
    assert config["rootfs"]["diff_ids"] == [each["digest"] for each in manifest["layers"]]
    assert weights == {"opt/tiny/share/tiny/tiny.weights"}
    unpacked = packed.path / "use" / "tiny-host"
    files = {f"opt/tiny/{path.relative_to(unpacked)}" for path in unpacked.rglob("*") if path.is_file()}
    assert rest == files - weights
    named = {each["digest"].removeprefix("sha256:") for each in index["manifests"]}
    for each in index["manifests"]:
        inner = json.loads(blob(layout, each))
        named |= {found["digest"].removeprefix("sha256:") for found in (inner["config"], *inner["layers"])}
    assert {path.name for path in (layout / "blobs" / "sha256").iterdir()} == named


def test_what_is_known_of_an_image_refers_to_it(packed: Project, image: Path) -> None:
    layout = image / "tiny-host.oci"
    subject, *referrers = json.loads((layout / "index.json").read_text())["manifests"]
    found = {}
    for each in referrers:
        manifest = json.loads(blob(layout, each))
        assert {name: subject[name] for name in ("mediaType", "digest", "size")} == manifest["subject"]
        assert blob(layout, manifest["config"]) == b"{}"
        found[manifest["artifactType"]] = blob(layout, manifest["layers"][0])
    assert found == {
        "application/vnd.cyclonedx+json": (image / "tiny-host.cdx.json").read_bytes(),
        "application/vnd.in-toto+json": (image / "tiny-host.intoto.json").read_bytes(),
        "application/vnd.bolt-build.verify.v1+json": (packed.host / "verify.json").read_bytes(),
    }


def test_another_tool_reads_the_image(image: Path, tmp_path: Path) -> None:
    """It hashes every layer on the way."""
    skopeo = shutil.which("skopeo")
    if skopeo is None:
        pytest.skip("skopeo is not installed")
    source = f"oci:{image / 'tiny-host.oci'}:latest"
    command(skopeo, "--insecure-policy", "copy", source, f"dir:{tmp_path / 'copy'}", cwd=tmp_path)
    found = json.loads(command(skopeo, "inspect", source, cwd=tmp_path))
    assert (found["Os"], found["Architecture"], found["Labels"]["bolt-build.target"]) == ("linux", "amd64", "host")


def test_the_bill_of_materials_is_valid_and_names_what_is_in_the_engine(packed: Project, image: Path) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    from jsonschema import Draft7Validator

    text = (image / "tiny-host.cdx.json").read_text()
    assert "date-time" in Draft7Validator.FORMAT_CHECKER.checkers
    assert '"url"' not in text, "has an IRI reference, the one format of the schema that nothing here checks"
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    found = {each["name"]: each for each in json.loads(text)["components"]}
    assert (found["onednn"]["scope"], found["cxx"]["scope"]) == ("required", "excluded")
    weights = hashlib.sha256((packed.host / "tiny.weights").read_bytes()).hexdigest()
    assert found["tiny.weights"]["hashes"] == [{"alg": "SHA-256", "content": weights}]
    model = hashlib.sha256((packed.path / "tiny.onnx").read_bytes()).hexdigest()
    assert found["tiny.onnx"]["hashes"] == [{"alg": "SHA-256", "content": model}]


def test_the_provenance_is_valid_and_about_files_and_image(packed: Project, image: Path) -> None:
    json_format = pytest.importorskip("google.protobuf.json_format")
    provenance = pytest.importorskip("in_toto_attestation.predicates.provenance.v1.provenance_pb2")
    statements = pytest.importorskip("in_toto_attestation.v1.statement")

    data = json.loads((image / "tiny-host.intoto.json").read_text())
    whole = json_format.ParseDict(data, statements.Statement([], "", {}).pb)
    statements.Statement.copy_from_pb(whole).validate()
    # Strictly: a field that the form does not have is an error.
    json_format.ParseDict(data["predicate"], provenance.Provenance())
    subjects = {each["name"]: each["digest"]["sha256"] for each in data["subject"]}
    library = hashlib.sha256((packed.host / "libtiny.so").read_bytes()).hexdigest()
    (manifest, *_) = json.loads((image / "tiny-host.oci" / "index.json").read_text())["manifests"]
    assert subjects["libtiny.so"] == library
    made_from = {each["name"]: each for each in data["predicate"]["buildDefinition"]["resolvedDependencies"]}
    model = hashlib.sha256((packed.path / "tiny.onnx").read_bytes()).hexdigest()
    assert made_from["tiny.onnx"]["digest"] == {"sha256": model}
    assert set(made_from["cxx"]["annotations"]) == {"filesDigest", "version"}
    assert f"sha256:{subjects['tiny-host']}" == manifest["digest"]


def test_equal_builds_make_equal_images(packed: Project, image: Path) -> None:
    """Also in the place of an older one; what is no image is left alone."""

    def contents() -> dict[str, bytes]:
        return {str(path.relative_to(image)): path.read_bytes() for path in image.rglob("*") if path.is_file()}

    before = contents()
    (image / "tiny-host.oci" / "blobs" / "sha256" / "stale").write_text("of an older image")
    packed.bolt("package", "tiny.yaml", "--out", "images", "--oci")
    assert contents() == before
    (packed.path / "other" / "tiny-host.oci").mkdir(parents=True)
    (packed.path / "other" / "tiny-host.oci" / "mine.txt").write_text("mine")
    said = packed.bolt("package", "tiny.yaml", "--out", "other", "--oci", code=ExitCode.INVALID)
    assert said == (
        "other/tiny-host.oci: error[not-a-layout]: it is there already, and is no OCI image layout that could be"
        " replaced\n"
        "  hint: move it away, or write to another folder with --out DIR\n"
    )
    left = sorted(str(path.relative_to(packed.path)) for path in (packed.path / "other").rglob("*"))
    assert left == ["other/tiny-host.oci", "other/tiny-host.oci/mine.txt"]


def test_a_bill_needs_its_library(packed: Project, tmp_path: Path) -> None:
    """What is missing is said with the command that installs it, before anything is written."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.modules['cyclonedx'] = None\n"
        "from bolt_build.cli.main import main\nsys.exit(main())"
    )
    words = [sys.executable, "-c", program, "package", "tiny.yaml", "--oci", "--out", str(tmp_path)]
    done = subprocess.run(
        words, cwd=packed.path, env=packed.environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == ExitCode.TOOL_MISSING
    assert done.stderr == (
        "error[missing-library]: a bill of materials needs cyclonedx-python-lib, which is not installed\n"
        "  hint: python -m pip install cyclonedx-python-lib\n"
    )
    assert (done.stdout, list(tmp_path.iterdir())) == ("", [])
