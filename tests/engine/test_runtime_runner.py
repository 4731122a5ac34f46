"""The runner program: arrays in and out, timing, and what it says when it cannot."""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from runner_programs import PORTS, X, ports_runner, run, tiny_runner
from tiny_engine import tiny_constants, tiny_plan, tiny_reference

from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array


@pytest.fixture(scope="module")
def tiny() -> Path:
    return tiny_runner()


@pytest.fixture(scope="module")
def ports() -> Path:
    return ports_runner()


def _copy_of(program: Path, arrays: Mapping[str, Array], directory: Path) -> dict[str, Array]:
    np.savez(directory / "in.npz", **arrays)  # type: ignore[arg-type]
    assert run(program, "--input", directory / "in.npz", "--output", directory / "out.npz") == (0, "", "")
    with np.load(directory / "out.npz") as found:
        return {name.removesuffix("_out"): found[name] for name in found.files}


NUMPY: dict[DType, type[Any]] = {
    DType.F32: np.float32, DType.F16: np.float16, DType.BF16: np.float32, DType.F64: np.float64, DType.I64: np.int64,
    DType.I32: np.int32, DType.I8: np.int8, DType.U8: np.uint8, DType.BOOL: np.bool_,
}  # fmt: skip


def _random_ports(seed: int) -> dict[str, Array]:
    random = np.random.RandomState(seed)
    low = {DType.U8: 0, DType.BOOL: 0}
    high = {DType.BOOL: 2}
    return {
        name: random.uniform(low.get(form.format.dtype, -100), high.get(form.format.dtype, 100), form.shape)
        .astype(np.int8 if form.format.dtype is DType.BOOL else NUMPY[form.format.dtype])
        .astype(NUMPY[form.format.dtype])
        for name, form in PORTS
    }


# Arrays in and out


def test_npy_in_and_out(tiny: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    assert run(tiny, "--input", "x=x.npy", "--output", "y=y.npy", "--threads", 2, cwd=tmp_path) == (0, "", "")
    y = np.load(tmp_path / "y.npy")
    assert y.dtype == np.float32
    assert np.array_equal(y, tiny_reference(X, tiny_constants()))
    assert run(tiny, "--input", "x.npy", "--output", "z.npy", cwd=tmp_path) == (0, "", "")
    assert (tmp_path / "z.npy").read_bytes() == (tmp_path / "y.npy").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy", "y.npy", "z.npy"]


def test_the_batch_is_that_of_the_input(tiny: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X[:1])
    assert run(tiny, "--input", "x.npy", "--output", "y.npy", cwd=tmp_path)[0] == 0
    assert np.load(tmp_path / "y.npy").shape == (1, 15)


def test_npz_of_every_element_type_and_layout(ports: Path, tmp_path: Path) -> None:
    arrays = _random_ports(0)
    found = _copy_of(ports, arrays, tmp_path)
    assert list(found) == [name for name, _ in PORTS]
    arrays["bf16"] = arrays["bf16"].astype(ml_dtypes.bfloat16).astype(np.float32)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array), name


def test_bfloat16_as_numpy_writes_it(ports: Path, tmp_path: Path) -> None:
    arrays = _random_ports(1)
    arrays["bf16"] = arrays["bf16"].astype(ml_dtypes.bfloat16)
    assert np.array_equal(_copy_of(ports, arrays, tmp_path)["bf16"], arrays["bf16"].astype(np.float32))


@given(values=hnp.arrays(np.float32, (2, 64), elements=st.floats(width=32)))
@settings(max_examples=15, deadline=None)
def test_f32_is_rounded_as_numpy_does(ports: Path, tmp_path: Path, values: Array) -> None:
    values[1, :9] = [65504, 65519.996, 65520, 2.0**-24, 2.0**-25, 2.0**-25 * 1.001, 3 * 2.0**-26, 2.0**-14, 2047.5]
    arrays = {**_random_ports(2), "f16": values, "bf16": values}
    found = _copy_of(ports, arrays, tmp_path)
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.array_equal(found["f16"], values.astype(np.float16), equal_nan=True)
        assert np.array_equal(found["bf16"], values.astype(ml_dtypes.bfloat16).astype(np.float32), equal_nan=True)


def test_written_archives_are_equal_and_whole(ports: Path, tmp_path: Path) -> None:
    _copy_of(ports, _random_ports(0), tmp_path)
    first = (tmp_path / "out.npz").read_bytes()
    _copy_of(ports, _random_ports(0), tmp_path)
    assert (tmp_path / "out.npz").read_bytes() == first
    assert zipfile.ZipFile(io.BytesIO(first)).testzip() is None


def _npy(header: str, data: bytes, version: int = 1) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + data


ROW = np.arange(15, dtype=np.float32)


@pytest.mark.filterwarnings("ignore:Reading `.npy`:UserWarning")  # NumPy's word on files of Python 2
@pytest.mark.parametrize(
    "data",
    [
        _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 5), }\n", ROW.tobytes()),
        _npy("{'descr':'<f4','fortran_order':False,'shape':(1,3,5)}", ROW.tobytes()),
        _npy('{"shape": (1L, 3L, 5L), "fortran_order": False, "descr": "f4"}  \t \n', ROW.tobytes()),
        _npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 5,), }\n", ROW.tobytes(), version=2),
        _npy("{'descr': '=f4', 'fortran_order': False, 'shape': (1, 3, 5), }\n", ROW.tobytes(), version=3),
        _npy("{'descr': '>f4', 'fortran_order': False, 'shape': (1, 3, 5), }", ROW.astype(">f4").tobytes()),
        _npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 3, 5), }", ROW.reshape(3, 5).T.tobytes()),
    ],
)
def test_npy_headers_of_odd_forms(tiny: Path, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(data)
    assert np.array_equal(np.load(tmp_path / "x.npy"), ROW.reshape(1, 3, 5)), "NumPy agrees that the file is good"
    assert run(tiny, "--input", "x.npy", "--output", "y.npy", cwd=tmp_path) == (0, "", "")
    assert np.array_equal(np.load(tmp_path / "y.npy"), tiny_reference(ROW.reshape(1, 3, 5), tiny_constants()))


GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 5), }"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "not a .npy file"),
        (b"\x89PNG\r\n\x1a\n0000000000", "not a .npy file"),
        (_npy(GOOD, ROW.tobytes(), version=4), ".npy version 4 is not supported"),
        (_npy(GOOD, b"")[:40], "truncated within its header"),
        (_npy(GOOD, ROW.tobytes()[:-1]), "59 bytes of data do not make f32 of shape (1, 3, 5)"),
        (_npy(GOOD, ROW.tobytes() + b"x"), "61 bytes of data do not make f32 of shape (1, 3, 5)"),
        (_npy(GOOD.replace("1, 3", "99999999999, 99999999999"), b""),
         "0 bytes of data do not make f32 of shape (99999999999, 99999999999, 5)"),
        (_npy(GOOD.replace("<f4", "|O"), b""), "element type '|O' is not supported"),
        (_npy(GOOD.replace("'<f4'", "[('a', '<f4')]"), b""), "structured arrays are not supported"),
        (_npy(GOOD.replace("descr", "dtype"), b""), "unknown key 'dtype' in its header"),
        (_npy("{'descr': '<f4'}", b""), "its header lacks descr, fortran_order or shape"),
        (_npy("{'descr': '<f4', 'shape': (1, -3)", b""), "its header is malformed"),
        (_npy(GOOD + "x", ROW.tobytes()), "its header is malformed"),
        (_npy(GOOD.replace("(1, 3", f"({'9' * 400}"), b""), "an extent in its header has more than 18 digits"),
        (_npy(GOOD.replace("(1, 3", "(" + "1, " * 64), b""), "it has more than 64 axes"),
    ],
)  # fmt: skip
def test_bad_npy_files(tiny: Path, tmp_path: Path, data: bytes, sentence: str) -> None:
    (tmp_path / "x.npy").write_bytes(data)
    assert run(tiny, "--input", "x.npy", cwd=tmp_path) == (3, "", f"tiny-run: 'x.npy': {sentence}\n")


def test_bad_npz_files(tiny: Path, tmp_path: Path) -> None:
    def said(data: bytes) -> str:
        (tmp_path / "x.npz").write_bytes(data)
        code, out, error = run(tiny, "--input", "x.npz", cwd=tmp_path)
        assert (code, out) == (3, "")
        return error.removeprefix("tiny-run: 'x.npz': ")

    def archive(save: Any, **arrays: Array) -> bytes:
        file = io.BytesIO()
        save(file, **arrays)
        return file.getvalue()

    good = archive(np.savez, x=X)
    assert said(b"") == "not a .npz file\n"
    assert said(good[:-30]) == "not a .npz file, or truncated\n"
    assert said(archive(np.savez_compressed, x=X)) == (
        "'x' is compressed: save with numpy.savez, not numpy.savez_compressed\n"
    )
    at = good.index(X.tobytes())
    assert said(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]) == "'x' is damaged: its checksum differs\n"
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as file:
        file.writestr("note.txt", "hello")
    assert said(other.getvalue()) == "'note.txt' in it is no .npy file\n"


def _sharing(entries: int) -> bytes:
    """An archive whose directory names one array again and again."""
    file = io.BytesIO()
    np.savez(file, x=X)
    data = file.getvalue()
    at = data.index(b"PK\x01\x02")
    (comment,) = struct.unpack_from("<H", data, at + 32)
    name, extra = struct.unpack_from("<HH", data, at + 28)
    record = data[at : at + 46 + name + extra + comment]
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, entries, entries, len(record) * entries, at, 0)
    return data[:at] + record * entries + end


def test_entries_that_share_an_array_do_not_multiply_it(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(_sharing(10_000))
    assert run(tiny, "--input", "x.npz", cwd=tmp_path) == (3, "", "tiny-run: 'x.npz': its entries overlap\n")


def test_what_is_no_file_or_larger_than_all_inputs_is_not_read(tiny: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "zero.npz").symlink_to("/dev/zero")
    (tmp_path / "folder.npy").mkdir()
    with (tmp_path / "large.npy").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("pipe.npy", "zero.npz", "folder.npy"):
        said = f"tiny-run: cannot read '{name}': not a regular file\n"
        assert run(tiny, "--input", name, cwd=tmp_path) == (3, "", said)
    most = (1 << 20) + 8 * 4 * X.size
    code, out, said = run(tiny, "--input", "large.npy", cwd=tmp_path)
    assert (code, out) == (3, "")
    assert said == (
        f"tiny-run: cannot read 'large.npy': it has {1 << 40} bytes, more than all inputs of this engine "
        f"({most} with room to spare)\n"
    )


def test_weights_that_are_no_file_are_not_waited_for(tiny: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    np.save(tmp_path / "x.npy", X)
    said = "tiny-run: cannot read weights 'pipe': not a regular file\n"
    assert run(tiny, "--input", "x.npy", "--weights", "pipe", cwd=tmp_path) == (3, "", said)


# What it refuses


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ([], 2, "input 'x' is missing: give --input x=FILE, f32 (1, 3, 5)"),
        (["--batch", "4"], 2, "input 'x' is missing: give --input x=FILE, f32 (4, 3, 5)"),
        (["--input", "x.npy", "--batch", "7"], 2, "batch 7 is not one of this engine's: 1, 4"),
        (["--input", "x.npy", "--batch", "1"], 3, "input 'x' must be f32 (1, 3, 5); 'x.npy' is f32 (4, 3, 5)"),
        (["--input", "x64.npy"], 3, "input 'x' must be f32 (4, 3, 5); 'x64.npy' is f64 (4, 3, 5)"),
        (["--input", "flat.npy"], 3,
         "input 'x' must be f32 (1, 3, 5); 'flat.npy' is f32 (60,): none of the engine's sizes fits (batch 1, 4)"),
        (["--input", "two.npz"], 3, "'two.npz': the engine has no input 'label'; its inputs: x"),
        (["--input", "z=x.npy"], 2, "'x.npy': the engine has no input 'z'; its inputs: x"),
        (["--input", "x.npy", "--input", "x=x.npy"], 2, "input 'x' is given twice: 'x.npy' and 'x.npy'"),
        (["--input", "gone.npy"], 3, "cannot open 'gone.npy': No such file or directory"),
        (["--input", "x.png"], 2, "'x.png' is neither a .npy, .npz, .bin nor .raw file by its name"),
        (["--input", "x60.bin", "--batch", "4"], 3,
         "'x60.bin' has 60 bytes; input 'x', f32 (4, 3, 5), takes 240"),
        (["--callers", "2", "--input", "x.npy"], 2, "--callers and --rate need --bench"),
        (["--bench", "--rate", "-1"], 2, "--rate takes a positive number of requests a second, not '-1'"),
        (["--bench", "--callers", "0"], 2, "--callers takes a whole number from 1 to 1024, not '0'"),
        (["--input", "x.npy", "--output", "z=z.npy"], 2, "'z.npy': the engine has no output 'z'; its outputs: y"),
        (["--input", "x.npy", "--output", "no/y.npy"], 3, "cannot write 'no/y.npy': No such file or directory"),
        (["--input", "x.npy", "--weights", "gone"], 3, "cannot open weights 'gone': No such file or directory"),
        (["--input", "x.npy", "--threads", "2000"], 3,
         "threads is 2000: give 0 for as many as the process may use, or 1 to 1024"),
        (["--threads", "two"], 2, "--threads takes a whole number from 0 to 1000000000, not 'two'"),
        (["--seconds", "0", "--bench"], 2, "--seconds takes a positive number of seconds, not '0'"),
        (["--batch"], 2, "--batch needs a value"),
        (["x.npy"], 2, "'x.npy' follows no option: --input FILE gives the engine a file"),
        (["--inputs", "x.npy"], 2, "unknown option '--inputs'; --help lists those there are"),
        (["--\x1b[31m\nü\x9b"], 2, "unknown option '--\\x1b[31m\\x0aü\\xc2\\x9b'; --help lists those there are"),
        (["--bench", "--runs", "1", "--seconds", "1"], 2, "--seconds and --runs exclude each other"),
        (["--runs", "1"], 2, "--seconds and --runs need --bench"),
        (["--bench", "--output", "y.npy"], 2, "--bench writes no --output"),
        (["--bench", "--info"], 2, "--bench and --info exclude each other"),
        (["--json"], 2, "--json needs --bench or --info"),
    ],
)  # fmt: skip
def test_refusals(tiny: Path, tmp_path: Path, arguments: Sequence[str], code: int, sentence: str) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "x64.npy", X.astype(np.float64))
    np.save(tmp_path / "flat.npy", X.reshape(-1))
    np.savez(tmp_path / "two.npz", x=X, label=X)
    (tmp_path / "x60.bin").write_bytes(X[0].tobytes())
    before = sorted(tmp_path.iterdir())
    assert run(tiny, *arguments, cwd=tmp_path) == (code, "", f"tiny-run: {sentence}\n")
    assert sorted(tmp_path.iterdir()) == before


def test_a_full_disk_has_an_exit_code_of_its_own_and_leaves_nothing(tiny: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    limited = 'trap "" XFSZ; ulimit -f 0; exec "$0" "$@"'
    words = ["bash", "-c", limited, str(tiny), "--input", "x.npy", "--output", "y.npy"]
    done = subprocess.run(words, cwd=tmp_path, text=True, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (4, "tiny-run: cannot write 'y.npy': File too large\n")
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_a_bare_npy_is_refused_where_there_are_several_inputs(ports: Path, tmp_path: Path) -> None:
    names = ", ".join(name for name, _ in PORTS)
    sentence = f"ports-run: which input is 'x.npy'? Say NAME=x.npy, NAME one of {names}\n"
    assert run(ports, "--input", "x.npy", cwd=tmp_path) == (2, "", sentence)


# What it tells


def test_info(tiny: Path) -> None:
    digest = tiny_plan().layout_digest
    assert run(tiny, "--info") == (0, (
        f"tiny for host\nlayout digest {digest}\n"
        "batch 1\n  input  x f32 (1, 3, 5)\n  output y f32 (1, 15)\n"
        "batch 4\n  input  x f32 (4, 3, 5)\n  output y f32 (4, 15)\n"
    ), "")  # fmt: skip
    statement = json.loads(run(tiny, "--info", "--json")[1])
    assert statement["predicate"]["buildDefinition"]["internalParameters"]["layoutDigest"] == digest


def test_a_summary_without_output(tiny: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((1, 3, 5), np.float32))
    said = tiny_reference(np.ones((1, 3, 5), np.float32), tiny_constants())
    best = "  ".join(f"{index}: {said[0, index]:g}" for index in np.argsort(-said[0], kind="stable")[:5])
    assert run(tiny, "--input", tmp_path / "x.npy") == (
        0, f"y f32 (1, 15): from 1 to 9, mean {said.mean():.6g}\n  [0, :] greatest {best}\n", ""
    )  # fmt: skip


def test_a_summary_of_every_element_type(ports: Path, tmp_path: Path) -> None:
    """Values that are none are counted, and lead no row."""
    arrays = _random_ports(3)
    arrays["f16"][:, :3] = [[np.nan, np.inf, 7e3], [1.0, 2.0, 6e-8]]
    np.savez(tmp_path / "in.npz", **arrays)  # type: ignore[arg-type]
    code, out, error = run(ports, "--input", tmp_path / "in.npz")
    assert (code, error) == (0, "")
    lines = out.splitlines()
    for name, array in arrays.items():
        (at,) = [index for index, line in enumerate(lines) if line.startswith(f"{name}_out ")]
        if name in ("f16", "none", "bf16"):
            continue
        seen = array.astype(np.float64)
        assert f"from {seen.min():.6g} to {seen.max():.6g}, mean {seen.mean():.6g}" in lines[at]
        if array.ndim > 1:
            row = seen.reshape(-1, seen.shape[-1])[0]
            best = "  ".join(f"{index}: {row[index]:.6g}" for index in np.argsort(-row, kind="stable")[:5])
            assert lines[at + 1] == f"  [{'0, ' * (seen.ndim - 1)}:] greatest {best}"
    (half,) = [index for index, line in enumerate(lines) if line.startswith("f16_out ")]
    assert lines[half].endswith(", 2 of 128 infinite or no number")
    assert lines[half + 1].startswith("  [0, :] greatest 1: inf  2: 7000  ")


def test_bytes_without_a_header(tiny: Path, tmp_path: Path) -> None:
    """The batch is that whose input has so many bytes."""
    for count in (1, 4):
        (tmp_path / "x.bin").write_bytes(X[:count].tobytes())
        assert run(tiny, "--input", "x=x.bin", "--output", "y.npy", cwd=tmp_path) == (0, "", "")
        assert np.array_equal(np.load(tmp_path / "y.npy"), tiny_reference(X[:count], tiny_constants()))


def test_help_names_every_option(tiny: Path) -> None:
    code, out, _ = run(tiny, "--help")
    assert code == 0
    options = (
        "input",
        "output",
        "batch",
        "threads",
        "weights",
        "bench",
        "seconds",
        "runs",
        "callers",
        "rate",
        "info",
        "json",
    )
    assert all(f"--{option}" in out for option in options)
