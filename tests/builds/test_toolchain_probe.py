"""Tools are found where they are, described by what they are, and missed with the command that mends it."""

from __future__ import annotations

import os
import shutil
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from bolt_build.toolchain import known_tools, probe
from bolt_build.toolchain.memory import memory_file
from bolt_build.toolchain.surroundings import Surroundings, surroundings
from bolt_build.toolchain.tool import Tool
from bolt_build.toolchain.trial import try_cxx
from bolt_build.toolchain.wheels import installing

VERSION_HEADER = """\
#define DNNL_VERSION_MAJOR {0}
#define DNNL_VERSION_MINOR {1}
#define DNNL_VERSION_PATCH {2}
"""


class Machine:
    """A machine made of files: nothing of the real one is seen."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.site = root / "site"
        self.memory = root / "state" / "tools.json"
        self.bin.mkdir(parents=True)
        self.site.mkdir()
        self.calls = root / "calls"
        self.calls.touch()

    def program(self, name: str, says: str) -> Path:
        """A program that prints `says` and notes that it was called."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n/bin/echo {name} >> {self.calls}\n/bin/cat <<'END'\n{says}\nEND\n")
        path.chmod(0o755)
        return path

    def wheel(self, name: str, version: str, files: dict[str, str]) -> None:
        """An installed wheel with these files, relative to the folder of packages."""
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        for path, text in files.items():
            (self.site / path).parent.mkdir(parents=True, exist_ok=True)
            (self.site / path).write_text(text)
            (self.site / path).chmod(0o755)
        (info / "RECORD").write_text(
            "".join(f"{path},sha256=x{len(text)},{len(text)}\n" for path, text in files.items())
        )

    def onednn(self, version: tuple[int, int, int] = (3, 2, 0)) -> None:
        """Both wheels of oneDNN, laid out as pip does."""
        self.wheel("onednn-cpu-gomp", "1", {"../lib/libdnnl.so": "code", f"../lib/libdnnl.so.{version[0]}": "code"})
        header = VERSION_HEADER.format(*version)
        self.wheel("onednn-devel-cpu-gomp", "1", {"../include/oneapi/dnnl/dnnl_version.h": header})

    def tool(
        self,
        name: str,
        *,
        prefixes: tuple[Path, ...] = (),
        cuda_compiler: str | None = None,
        compiler: str | None = None,
    ) -> Tool:
        around = Surroundings(str(self.bin), prefixes, self.memory, self._find, cuda_compiler, compiler)
        return probe((name,), around).tool(name)

    def times_called(self) -> int:
        return len(self.calls.read_text().splitlines())

    def _find(self, name: str) -> Distribution | None:
        found = list(self.site.glob(f"{name.replace('-', '_')}-*.dist-info"))
        return Distribution.at(found[0]) if found else None


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


def test_known_tools() -> None:
    assert known_tools() == ("cxx", "onednn", "nvcc", "cutlass", "onnxruntime")


@pytest.mark.parametrize(
    ("name", "problem", "mend"),
    [
        ("cxx", "no C++ compiler (g++, clang++ or c++) on PATH", "apt-get install g++"),
        (
            "onednn",
            "oneDNN is not installed, or not its headers",
            installing("host"),
        ),
        (
            "nvcc",
            "the CUDA compiler nvcc is neither installed as a wheel nor on PATH",
            installing("cuda"),
        ),
        ("cutlass", "CUTLASS is not installed", "python -m pip install nvidia-cutlass==4.2.0.0"),
        ("onnxruntime", "onnxruntime is not installed", installing("verify")),
        ("tpuc", "bolt-build does not know how to look for a tool called 'tpuc'", None),
    ],
)
def test_an_empty_machine_lacks_everything(machine: Machine, name: str, problem: str, mend: str | None) -> None:
    tool = machine.tool(name)
    assert (tool.path, tool.version, tool.digest) == (None, "", "")
    assert tool.problem == problem
    assert tool.mend == mend


def test_missing_tools_are_diagnostics(machine: Machine) -> None:
    machine.program("g++", "g++ (Debian 12.2.0-14) 12.2.0")
    around = Surroundings(str(machine.bin), (), None, lambda name: None)
    chain = probe(("cxx", "onnxruntime"), around)
    assert [tool.name for tool in chain.missing] == ["onnxruntime"]
    (diagnostic,) = chain.diagnostics()
    assert (diagnostic.code, diagnostic.subject) == ("missing-tool", "onnxruntime")
    assert diagnostic.message == "onnxruntime is not installed"
    assert diagnostic.hint == installing("verify")


def test_gcc_comes_before_clang(machine: Machine) -> None:
    machine.program("clang++", "Debian clang version 14.0.6")
    assert machine.tool("cxx").version == "14.0.6"
    path = machine.program("g++", "g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright")
    tool = machine.tool("cxx")
    assert (tool.path, tool.version, tool.problem) == (str(path), "12.2.0", None)


def test_a_compiler_is_asked_once_until_it_changes(machine: Machine) -> None:
    path = machine.program("g++", "g++ 12.2.0")
    first = machine.tool("cxx")
    asked = machine.times_called()
    assert machine.tool("cxx") == first
    assert machine.times_called() == asked == 2  # its version, and where its libgomp is

    before = os.stat(path)
    machine.program("g++", "g++ 13.1.0")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    second = machine.tool("cxx")
    assert second.version == "13.1.0"
    assert second.digest != first.digest


def test_spoilt_answers_are_as_good_as_none(machine: Machine) -> None:
    machine.program("g++", "g++ 12.2.0")
    first = machine.tool("cxx")
    machine.memory.write_text("[1, 2")
    assert machine.tool("cxx") == first
    machine.memory.unlink()
    machine.memory.parent.rmdir()
    machine.memory.parent.write_text("a file where the folder should be")
    assert machine.tool("cxx") == first


@pytest.mark.parametrize("of", ["file", "folder"])
def test_answers_that_others_can_have_written_are_not_believed(machine: Machine, of: str) -> None:
    """They name libraries that are copied beside engines."""
    machine.program("g++", "g++ 12.2.0")
    first = machine.tool("cxx")
    machine.memory.write_text(machine.memory.read_text().replace("12.2.0", "66.6.6"))
    assert machine.tool("cxx").version == "66.6.6"
    (machine.memory if of == "file" else machine.memory.parent).chmod(0o777)
    assert machine.tool("cxx") == first


def test_answers_are_no_part_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOME": "/home/somebody", "XDG_CACHE_HOME": "/caches", "XDG_STATE_HOME": ""}.items():
        monkeypatch.setenv(name, value)
    assert memory_file() == Path("/home/somebody/.local/state/bolt-build/tools.json")
    monkeypatch.setenv("XDG_STATE_HOME", "/states")
    assert memory_file() == Path("/states/bolt-build/tools.json")


def test_answers_are_kept_where_nobody_else_looks(machine: Machine) -> None:
    machine.program("g++", "g++ 12.2.0")
    machine.tool("cxx")
    assert [path.stat().st_mode & 0o777 for path in (machine.memory.parent, machine.memory)] == [0o700, 0o600]


def test_a_compiler_that_does_not_run(machine: Machine) -> None:
    path = machine.bin / "g++"
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    assert machine.tool("cxx").problem == f"{path} does not answer --version"


def test_the_same_compiler_elsewhere_has_the_same_digest(tmp_path: Path) -> None:
    machines = [Machine(tmp_path / name) for name in ("one", "two")]
    source = machines[0].program("g++", "g++ 12.2.0")
    shutil.copy(source, machines[1].bin / "g++")
    digests = {machine.tool("cxx").digest for machine in machines}
    assert len(digests) == 1


def test_onednn_of_wheels(machine: Machine) -> None:
    machine.onednn()
    tool = machine.tool("onednn")
    root = machine.root
    assert tool.problem is None
    assert tool.version == "3.2.0"
    assert tool.path == str(root / "lib" / "libdnnl.so")
    assert tool.include_dirs == (str(root / "include"),)
    assert tool.library_dirs == (str(root / "lib"),)
    assert tool.libraries == (str(root / "lib" / "libdnnl.so.3"),)


def test_onednn_without_its_headers_is_missing(machine: Machine) -> None:
    machine.wheel("onednn-cpu-gomp", "1", {"../lib/libdnnl.so": "code"})
    assert machine.tool("onednn").problem == "oneDNN is not installed, or not its headers"


def test_an_old_onednn_of_the_system_is_refused(machine: Machine, tmp_path: Path) -> None:
    prefix = tmp_path / "usr"
    (prefix / "include/oneapi/dnnl").mkdir(parents=True)
    (prefix / "include/oneapi/dnnl/dnnl_version.h").write_text(VERSION_HEADER.format(2, 6, 0))
    (prefix / "lib").mkdir()
    (prefix / "lib/libdnnl.so").write_text("code")
    tool = machine.tool("onednn", prefixes=(prefix,))
    assert tool.problem == f"oneDNN 2.6.0 in {prefix}/lib is older than 3.0"


def test_onednn_of_a_prefix(machine: Machine, tmp_path: Path) -> None:
    prefix = tmp_path / "usr"
    (prefix / "include/oneapi/dnnl").mkdir(parents=True)
    (prefix / "include/oneapi/dnnl/dnnl_version.h").write_text(VERSION_HEADER.format(3, 5, 1))
    (prefix / "lib64").mkdir()
    for name in ("libdnnl.so", "libdnnl.so.3"):
        (prefix / "lib64" / name).write_text("code")
    tool = machine.tool("onednn", prefixes=(tmp_path / "nothing", prefix))
    assert (tool.version, tool.path, tool.problem) == ("3.5.1", str(prefix / "lib64/libdnnl.so"), None)


def _nvcc_script(home: Path) -> str:
    return (
        "#!/bin/sh\n"
        f'case "$1" in --dryrun) echo "#\\$ TOP={home}/bin/..";;\n'
        '*) echo "Cuda compilation tools, release 13.0, V13.0.88";; esac\n'
    )


def test_nvcc_of_wheels(machine: Machine) -> None:
    home = machine.site / "nvidia/cu13"
    machine.wheel(
        "nvidia-cuda-nvcc",
        "13.0.88",
        {"nvidia/cu13/bin/nvcc": _nvcc_script(home), "nvidia/cu13/lib/libcudart_static.a": ""},
    )
    machine.wheel("nvidia-cuda-crt", "13.0.88", {})
    machine.wheel("nvidia-nvvm", "13.0.88", {})
    tool = machine.tool("nvcc")
    assert (tool.problem, tool.version, tool.path) == (None, "13.0.88", str(home / "bin/nvcc"))
    assert tool.include_dirs == (str(home / "include"),)
    assert tool.library_dirs == (str(home / "lib"),)


def test_the_cuda_compiler_that_a_variable_names_comes_first(machine: Machine, tmp_path: Path) -> None:
    machine.wheel("nvidia-cuda-nvcc", "13.0.88", {"nvidia/cu13/bin/nvcc": _nvcc_script(machine.site)})
    own = tmp_path / "own"
    (own / "bin").mkdir(parents=True)
    (own / "lib64").mkdir()
    (own / "bin/nvcc").write_text(_nvcc_script(own))
    (own / "bin/nvcc").chmod(0o755)
    tool = machine.tool("nvcc", cuda_compiler=str(own / "bin/nvcc"))
    assert (tool.problem, tool.path, tool.library_dirs) == (None, str(own / "bin/nvcc"), (str(own / "lib64"),))
    tool = machine.tool("nvcc", cuda_compiler="/nowhere/nvcc")
    assert (tool.problem, tool.mend) == ("CUDACXX names /nowhere/nvcc, which is no program", "unset CUDACXX")


def test_the_compiler_that_a_variable_names_comes_first(machine: Machine, tmp_path: Path) -> None:
    first = machine.program("g++", "g++ (Debian) 12.2.0")
    other = machine.program("clang++-19", "clang version 19.1.0")
    tools = [machine.tool("cxx"), machine.tool("cxx", compiler="clang++-19"), machine.tool("cxx", compiler=str(other))]
    assert [(tool.path, tool.version) for tool in tools] == [
        (str(first), "12.2.0"), (str(other), "19.1.0"), (str(other), "19.1.0"),
    ]  # fmt: skip
    assert tools[0].digest != tools[1].digest, "what one compiler made is not what the other makes"
    assert tools[1].digest == tools[2].digest


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("/nowhere/g++", "CXX names /nowhere/g++, which is no program"),
        ("ccache g++", "CXX names ccache g++, which is no program: it may not hold arguments"),
    ],
)
def test_a_variable_that_names_no_compiler_is_not_passed_over(machine: Machine, named: str, problem: str) -> None:
    machine.program("g++", "g++ (Debian) 12.2.0")
    tool = machine.tool("cxx", compiler=named)
    assert (tool.problem, tool.mend) == (problem, "unset CXX")


def test_a_compiler_that_is_named_from_here_is_found_from_everywhere(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = machine.program("mine", "g++ (Mine) 13.1.0")
    monkeypatch.chdir(machine.bin)
    assert machine.tool("cxx", compiler="./mine").path == str(other)


def test_the_variables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "clang++")
    monkeypatch.setenv("CUDACXX", "/cuda/nvcc")
    assert (surroundings().compiler, surroundings().cuda_compiler) == ("clang++", "/cuda/nvcc")
    monkeypatch.setenv("CXX", "")
    assert surroundings().compiler is None


def test_cuda_wheels_of_different_releases_are_refused(machine: Machine) -> None:
    machine.wheel("nvidia-cuda-nvcc", "13.0.88", {"nvidia/cu13/bin/nvcc": _nvcc_script(machine.site)})
    machine.wheel("nvidia-cuda-crt", "13.0.88", {})
    assert machine.tool("nvcc").problem == "the wheel nvidia-nvvm is not installed beside nvidia-cuda-nvcc"
    machine.wheel("nvidia-nvvm", "13.5.10", {})
    assert machine.tool("nvcc").problem == (
        "CUDA wheels of different releases: nvidia-cuda-nvcc 13.0.88, nvidia-cuda-crt 13.0.88, nvidia-nvvm 13.5.10"
    )


def test_cutlass_of_its_wheel(machine: Machine) -> None:
    include = "cutlass_library/source/include"
    machine.wheel("nvidia-cutlass", "4.2.0.0", {f"{include}/cutlass/version.h": "#define"})
    tool = machine.tool("cutlass")
    utilities = "cutlass_library/source/tools/util/include"
    pairs = "cutlass_library/source/examples/13_two_tensor_op_fusion"
    assert (tool.problem, tool.version) == (None, "4.2.0.0")
    assert tool.include_dirs == tuple(str(machine.site / path) for path in (include, utilities, pairs))


def test_this_machine_compiles_what_engines_need() -> None:
    chain = probe(("cxx", "onednn"))
    assert chain.diagnostics() == ()
    assert try_cxx(chain.tool("cxx")) is None
    assert [Path(path).name for path in chain.tool("cxx").libraries] == ["libgomp.so.1"]
    assert all(Path(path).is_file() for tool in chain.tools for path in tool.libraries)
    assert len(chain.digest) == 64


def test_a_compiler_links_where_no_path_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """g++ looks for its linker on the PATH that it is given."""
    compiler = probe(("cxx",)).tool("cxx")
    monkeypatch.delenv("PATH")
    assert try_cxx(compiler) is None


def test_a_compiler_without_openmp(tmp_path: Path) -> None:
    path = tmp_path / "g++"
    path.write_text("#!/bin/sh\necho 'trial.cpp:1:10: fatal error: omp.h: No such file or directory' >&2\nexit 1\n")
    path.chmod(0o755)
    assert try_cxx(Tool("cxx", str(path), "1", "")) == (
        f"{path} does not compile C++17 with OpenMP: trial.cpp:1:10: fatal error: omp.h: No such file or directory"
    )
