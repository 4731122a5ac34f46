"""External data of a model: what cannot be read, or lies outside its folder, is said once, with the tensor's name."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
from graph_models import model, node, of, said, saved, tensor
from onnx import TensorProto

from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.onnx_model.onnx_tensor import external_files


def external(tmp_path: Path, location: str, dims: tuple[int, ...] = (4,), names: str = "w", **entries: str) -> Path:
    """A model whose weights lie in `location`."""
    tensors = names.split()
    lines = [node("Add", f"{'x' if i == 0 else f's{i}'} {name}", f"s{i + 1}") for i, name in enumerate(tensors)]
    proto = model([*lines, node("Relu", f"s{len(tensors)}", "y")], [tensor("x", [1, 4])])
    for name in tensors:
        found = proto.graph.initializer.add(name=name, data_type=TensorProto.FLOAT, dims=dims)
        found.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **entries}.items():
            found.external_data.add(key=key, value=value)
    return saved(tmp_path, proto)


def test_external_data_that_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "circle").symlink_to("circle")
    why_not = {
        "folder": "Is a directory", "fifo": "a pipe, not a file", "circle": "Too many levels of symbolic links",
    }  # fmt: skip
    for location, why in why_not.items():
        message = f"the data of 'w' cannot be read from '{tmp_path / location}': {why}"
        assert said(external(tmp_path, location)) == [("external-data", message)]
    for location in (".", "./", "a\0b"):
        message = f"the data of 'w' lies at '{location}', outside the model's directory"
        assert said(external(tmp_path, location)) == [("external-data", message)]


def test_external_data_whose_name_is_too_long(tmp_path: Path) -> None:
    ((code, message),) = said(external(tmp_path, "n" * 100_000))
    assert code == "external-data"
    assert message.startswith(f"the data of 'w' cannot be read from '{tmp_path}")
    assert message.endswith("[...]" + "n" * 200 + "': File name too long")


def test_external_data_behind_a_link_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(16))
    folder = tmp_path / "model"
    (folder / "inside").mkdir(parents=True)
    (folder / "link").symlink_to("../secret")
    (folder / "up").symlink_to(tmp_path)
    (folder / "inside/data").write_bytes(bytes(16))
    (folder / "beside").symlink_to("inside/data")
    for location in ("link", "up/secret"):
        message = (
            f"the data of 'w' lies at '{location}', a link to '{tmp_path / 'secret'}' outside the model's directory"
        )
        assert said(external(folder, location)) == [("external-data", message)]
    assert load_model(external(folder, "beside")).bind(1).constant("w") is not None


def test_a_build_looks_at_no_file_outside_the_folder(tmp_path: Path) -> None:
    """What external data is stamped, before anything is imported."""
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(16))
    (folder / "link").symlink_to("../secret")
    (folder / "data").write_bytes(bytes(16))
    os.mkfifo(folder / "fifo")
    for location in ("../secret", str(tmp_path / "secret"), "link", "fifo", "missing", "n" * 5000, ""):
        assert external_files(external(folder, location)) == ()
    assert external_files(external(folder, "data")) == (folder / "data",)


def test_missing_external_data_is_said_once(tmp_path: Path) -> None:
    path = external(tmp_path, "w.bin", names=" ".join(f"w{i}" for i in range(41)))
    shown = ", ".join(f"'w{i}'" for i in range(8))
    message = f"the data of 41 tensors ({shown}, ...) is missing: there is no file '{tmp_path / 'w.bin'}'"
    assert said(path) == [("external-data", message)]


def test_external_data_cut_off_or_unreadable_is_said_once(tmp_path: Path) -> None:
    """A file that was not downloaded to its end lacks the data of many tensors."""
    names, shown = " ".join(f"w{i}" for i in range(41)), ", ".join(f"'w{i}'" for i in range(8))
    all_of_them, file = f"the data of 41 tensors ({shown}, ...)", tmp_path / "w.bin"
    file.write_bytes(bytes(5))
    path = external(tmp_path, "w.bin", names=names)
    assert said(path) == [
        ("external-data", f"{all_of_them} is cut off: '{file}' is too short; download or export it again")
    ]
    file.unlink()
    os.mkfifo(file)
    assert said(path) == [("external-data", f"{all_of_them} cannot be read from '{file}': a pipe, not a file")]


def test_external_data_of_which_git_has_the_pointer_alone(tmp_path: Path) -> None:
    """As in a clone that was made without Git LFS."""
    (tmp_path / "w.bin").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 16\n")
    file, pull = tmp_path / "w.bin", "fetch the file with: git lfs pull"
    message = f"the data of 'w' is not there yet: '{file}' is a Git LFS pointer; {pull}"
    assert said(external(tmp_path, "w.bin", (1024,))) == [("external-data", message)]


def test_external_data_larger_than_its_file(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(4096))
    message = f"the data of 'w' is cut off: '{tmp_path / 'w.bin'}' is too short; download or export it again"
    for dims in ((2**40,), (2**62, 2**62)):
        assert said(external(tmp_path, "w.bin", dims)) == [("external-data", message)]
    message = f"the data of 'w' in '{tmp_path / 'w.bin'}' does not have its 16 bytes"
    assert said(external(tmp_path, "w.bin", offset=str(2**80))) == [("external-data", message)]
    message = f"the data of 'w' in '{tmp_path / 'w.bin'}' has no offset or length in digits"
    assert said(external(tmp_path, "w.bin", offset="9" * 10_000)) == [("external-data", message)]


def test_tensors_that_share_external_data_take_its_memory_once(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    graph = load_model(external(tmp_path, "w.bin", names="w0 w1")).bind(1)
    np.testing.assert_array_equal(graph.constant("w1"), [0, 1, 2, 3])
    path = external(tmp_path, "w.bin", names="w0 w1")
    proto = onnx.load(str(path), load_external_data=False)
    proto.graph.initializer[1].dims[:] = [2]
    proto.graph.node[1].input[0] = "s1"
    message = f"the data of 'w1' overlaps that of other tensors in '{tmp_path / 'w.bin'}'"
    assert of(tmp_path, proto) == [("external-data", message)]
