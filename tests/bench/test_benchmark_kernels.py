"""Benchmarks of single kernels, with a GPU that answers at once: all that they plan can be planned, and their results
have the form that figures read."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpu_harness
import pytest

from benchmarks import ROOT
from benchmarks.record import RESULTS

KERNELS = ROOT / "benchmarks" / "kernels"
WRONG = 2
"""The kernel that is not right."""


@dataclass
class Kernels:
    """Stands for `gpu_harness.Library`: it has whatever was planned."""

    folder: Path
    trials: Any = field(default_factory=lambda: Whatever())

    def run(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(message="", error=3.0 if index == WRONG else 0.5, microseconds=10.0 + index)


class Whatever:
    """Equals the list that it is compared with first, and is it from then on."""

    planned: list[Any]

    def __ne__(self, other: object) -> bool:
        assert isinstance(other, list)
        self.planned = other
        return False

    def __getitem__(self, index: int) -> Any:
        return self.planned[index]


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_harness, "Library", Kernels)


def form(value: Any) -> Any:
    """Names of rows, candidates and fields, without numbers."""
    if isinstance(value, dict):
        return {name: form(each) for name, each in value.items()}
    return [form(each) for each in value[:1]] if isinstance(value, list) else None


@pytest.mark.parametrize(
    ("name", "rows", "words"),
    [
        ("wave_tiles", "products", ["--only", "ViT-B/16 b32", "--count", "1"]),
        ("prenorm_kernels", "products", ["--only", "ViT-B/16 b1", "--count", "1"]),
        ("norm_exchanges", "products", ["--only", "ViT-B/16 b32"]),
        ("narrow_convolutions", "shapes", ["--strips", "1"]),
    ],
)
@pytest.mark.usefixtures("scripts")
def test_a_result_has_the_form_of_the_kept_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, rows: str,
    words: list[str],
) -> None:  # fmt: skip
    (tmp_path / "kernels.so").touch()
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", [str(KERNELS / f"{name}.py"), str(tmp_path), *words, "--out", str(out)])
    assert importlib.import_module(f"benchmarks.kernels.{name}").main() == 1
    assert capsys.readouterr().out.endswith("\n1 kernels were wrong or failed\n")
    found = json.loads(out.read_text())
    kept = json.loads((RESULTS / f"{name}.json").read_text())
    assert found["wrong"] == 1
    assert found["command"] == " ".join(["python", f"benchmarks/kernels/{name}.py", "FOLDER", *words])
    assert list(found) == list(kept)
    assert found[rows]
    for row, what in found[rows].items():
        assert form(what) == form(kept[rows][row])


class Alike(Kernels):
    """Its results differ by rounding alone, but for one kernel's."""

    def run(self, index: int) -> SimpleNamespace:
        return SimpleNamespace(message="", error=3.0 if index == WRONG else 1e-3, microseconds=10.0 + index)


@pytest.mark.usefixtures("scripts")
def test_sliding_windows_stand_beside_the_other_kernels_of_each_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.kernels import sliding_windows as script

    monkeypatch.setattr(script.chain_kernels, "Library", Alike)
    (tmp_path / "kernels.so").touch()
    out = tmp_path / "found.json"
    words = ["--count", "2", "--others", "1"]
    monkeypatch.setattr(sys, "argv", [str(KERNELS / "sliding_windows.py"), str(tmp_path), *words, "--out", str(out)])
    assert script.main() == 1
    assert capsys.readouterr().out.endswith("\n1 kernels were wrong or failed\n")
    found = json.loads(out.read_text())
    assert found["command"] == "python benchmarks/kernels/sliding_windows.py FOLDER --count 2 --others 1"
    assert list(found["shapes"]) == [shape.name for shape in script.SHAPES]
    for at, row in enumerate(found["shapes"].values()):
        first, left = 3 * at, [11.0 + 3 * at + turn for turn in (0, 1) if 3 * at + turn + 1 != WRONG]
        assert [len(row[way]) for way in ("others", "sliding")] == [1, 2]
        assert row["best"] == {"others": 10.0 + first, "sliding": min(left)}


@pytest.mark.usefixtures("scripts")
def test_slabs_in_turn_and_strips_stand_beside_slabs_expanded_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.kernels import slab_kernels as script

    monkeypatch.setattr(script, "LAYERS", (script.LAYERS[1], script.LAYERS[-1]))
    monkeypatch.setattr(script.chain_kernels, "Library", Alike)
    (tmp_path / "kernels.so").touch()
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["slab_kernels.py", str(tmp_path), "--count", "2", "--out", str(out)])
    assert script.main() == 1
    assert capsys.readouterr().out.endswith("\n1 kernels were wrong or failed\n")
    found = json.loads(out.read_text())
    assert list(found["layers"]) == ["112 3x3s2 16 96+24", "14 5x5s1 112 672+dw+mean"]
    assert [len(row["strips"]) for row in found["layers"].values()] == [0, 2]
    for row in found["layers"].values():
        *slabs, strips = ([each["candidate"] for each in row[way]] for way in script.WAYS)
        assert [["halos=1" in each for each in way] for way in slabs] == [[False] * 2, [True] * 2]
        assert all("strips" in each for each in strips)
    assert [row["us"] for row in found["layers"].values()] == [10.0, 14.0]


@pytest.mark.usefixtures("scripts")
def test_groups_side_by_side_stand_beside_what_else_computes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.kernels import group_products as script

    some = [layer for layer in script.layers() if layer.label.startswith(("1x1 of 4 x 768", "3x3 of 64"))]
    monkeypatch.setattr(script, "layers", lambda: some[1:])
    monkeypatch.setattr(script.chain_kernels, "Library", Alike)
    (tmp_path / "kernels.so").touch()
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["group_products.py", str(tmp_path), "--count", "1", "--out", str(out)])
    assert script.main() == 1
    found = json.loads(out.read_text())
    assert {name: row["best"] for name, row in found["layers"].items()} == {
        "1x1 of 4 x 768 to 4 x 192, 32 x 128, residual": {"side by side": 10.0, "bands": None, "warps": 11.0},
        "3x3 of 64 x 32 at 7x7": {"side by side": None, "bands": 13.0, "warps": 14.0},
    }


@pytest.mark.usefixtures("scripts")
def test_means_have_kernels_of_each_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.kernels import mean_kernels as script

    monkeypatch.setattr(script, "SHAPES", (script.SHAPES[-4], script.SHAPES[-2]))
    (tmp_path / "kernels.so").touch()
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["mean_kernels.py", str(tmp_path), "--count", "1", "--out", str(out)])
    assert script.main() == 1
    found = json.loads(out.read_text())
    assert list(found["layers"]) == ["b32 7 5x5s1 1152", "b1 14 3x3s1 80 480"]
    for row in found["layers"].values():
        stated = [
            ["sums=last" in row[way][0]["candidate"], "sums=cluster" in row[way][0]["candidate"]] for way in script.WAYS
        ]
        assert stated == [[False, False], [True, False], [False, True]]
    assert [row["us"]["second"] for row in found["layers"].values()] == [10.0, 13.0]


@pytest.mark.usefixtures("scripts")
def test_heads_have_kernels_of_each_algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.kernels import head_kernels as script

    monkeypatch.setattr(script, "LAYERS", (script.LAYERS[0], script.LAYERS[6]))
    (tmp_path / "kernels.so").touch()
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["head_kernels.py", str(tmp_path), "--count", "1", "--out", str(out)])
    script.main()
    stated = {
        name: {way: [each["candidate"] for each in row[way]] for way in script.WAYS}
        for name, row in json.loads(out.read_text())["layers"].items()
    }
    assert stated == {
        "Qwen 3 8 x 256": {
            "direct": ["portable algorithm=direct"], "pairs": ["portable algorithm=pairs each=2"], "tensor_cores": [],
        },
        "XCiT nano b32": {"direct": [], "pairs": [], "tensor_cores": ["portable algorithm=tensor_cores stages=2"]},
    }  # fmt: skip


@pytest.mark.usefixtures("scripts")
def test_gates_have_kernels_of_each_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.kernels import gate_kernels as script

    monkeypatch.setattr(script, "SHAPES", script.SHAPES[5:6])
    (tmp_path / "kernels.so").touch()
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["gate_kernels.py", str(tmp_path), "--count", "1", "--out", str(out)])
    assert script.main() == 1
    (row,) = json.loads(out.read_text())["layers"].values()
    stated = {way: row[way][0]["candidate"].split()[0] for way in script.WAYS}
    assert stated == {"gated": "cutlass", "alone": "cutlass", "pass": "portable", "sum": "cutlass"}
    assert row["us"] == {"gated": 10.0, "alone": 11.0, "pass": None, "sum": 13.0}
    predicted = {way: row[way][0]["predicted"] for way in script.WAYS}
    assert predicted["sum"] < predicted["gated"] < predicted["alone"] + predicted["pass"]


@pytest.mark.usefixtures("scripts")
def test_products_with_means_stand_beside_both_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.kernels import product_mean_kernels as script

    monkeypatch.setattr(script, "SHAPES", (script.SHAPES[1], script.SHAPES[8]))
    (tmp_path / "kernels.so").touch()
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["product_mean_kernels.py", str(tmp_path), "--count", "1", "--out", str(out)])
    assert script.main() == 1
    shapes = json.loads(out.read_text())["shapes"]
    assert list(shapes) == [
        "MobileNetV2 end, b32 7x7 1x1 320 to 1280", "RegNetY-1.6GF squeeze, b32 14x14 3x3 336 to 336 in 14 groups",
    ]  # fmt: skip
    for row in shapes.values():
        conv, mean, whole = (row[way] for way in script.WAYS)
        assert not any("sums=" in each["candidate"] for each in (*conv, *mean))
        assert all(" sums=whole" in each["candidate"] for each in whole)
    end, squeeze = shapes.values()
    assert (end["us"]["both"], end["us"]["whole"], end["gain"]) == (21.0, None, None)
    assert (squeeze["us"]["both"], squeeze["us"]["whole"], squeeze["gain"]) == (27.0, 15.0, 1.8)


@pytest.mark.usefixtures("scripts")
def test_poolings_that_slide_stand_behind_the_plain_kernel_of_each_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.kernels import pool_windows as script

    monkeypatch.setattr(script, "SHAPES", (script.KNOWN[0], script.ALONE[0]))
    monkeypatch.setattr(script.gpu_harness, "Library", Alike)
    (tmp_path / "kernels.so").touch()
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["pool_windows.py", str(tmp_path), "--count", "1", "--out", str(out)])
    assert script.main() == 1
    assert capsys.readouterr().out.endswith("\n1 kernels were wrong or failed\n")
    found = json.loads(out.read_text())
    kept = json.loads((RESULTS / "pool_windows.json").read_text())
    assert list(found) == list(kept)
    for shape in script.SHAPES:
        assert form(found["shapes"][shape.name]) == form(kept["shapes"][shape.name])
        assert [each["candidate"] for each in found["shapes"][shape.name]["direct"]] == ["portable algorithm=direct"]


@pytest.mark.usefixtures("scripts")
def test_a_name_that_no_kernel_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is compiled, and no empty result is written."""
    monkeypatch.setattr(sys, "argv", ["norm_exchanges.py", str(tmp_path), "--only", "vit"])
    with pytest.raises(SystemExit, match=r"^no kernel has a name that was asked for$"):
        importlib.import_module("benchmarks.kernels.norm_exchanges").main()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("scripts")
def test_thin_pairs_stand_beside_both_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.kernels import thin_pairs as script

    monkeypatch.setattr(script, "SHAPES", script.SHAPES[8:9])
    (tmp_path / "kernels.so").touch()
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["thin_pairs.py", str(tmp_path), "--count", "1", "--out", str(out)])
    assert script.main() == 1
    (row,) = json.loads(out.read_text())["shapes"].values()
    first, second, shared, thin = (row[way][0]["candidate"] for way in script.WAYS)
    assert "n1=64" in shared
    assert "n1=" not in first + second
    assert "warps=" in thin
    assert "warps=" not in first + second + shared


@pytest.mark.usefixtures("scripts")
def test_thin_products_stand_beside_tiles_and_sliced_ones_beside_whole_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.kernels import thin_products as script
    from benchmarks.rendered.thin_products import thin_products

    monkeypatch.setattr(script.kernel_trials, "ALIKE", 1.0)
    monkeypatch.setattr(script, "SHAPES", script.SHAPES[2:4])
    monkeypatch.setattr(script, "PROLOGUES", script.PROLOGUES[1:2])
    monkeypatch.setattr(script, "cudnn", lambda shape: 12.0)
    monkeypatch.setattr(script, "warm", lambda library, index: 9.0)
    (tmp_path / "kernels.so").touch()
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["thin_products.py", str(tmp_path), "--count", "1", "--out", str(out)])
    assert script.main() == 1
    found = json.loads(out.read_text())
    first, second, sliced = found["shapes"].values()
    assert second["gain"] is None  # its first kernel was wrong
    assert "x=" in first["thin"][0]["candidate"]
    assert "warpgroups=" in first["tiles"][0]["candidate"]
    assert first["gain"] == 10 / 11
    assert "deep_cluster=" in sliced["sliced"][0]["candidate"]
    assert "deep_cluster=" not in sliced["whole"][0]["candidate"]
    figures = thin_products({**found, "gpu": "NVIDIA H200"})
    assert figures["thin_rows.cudnn"] == "1.33"
    assert figures["sliced_prologues.faster"] == "0 of 1"
