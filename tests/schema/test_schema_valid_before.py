"""Recipes that were found valid are not judged again; whatever the answer follows from asks anew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bolt_build.schema import validate as judging
from bolt_build.schema.document import read_document
from bolt_build.schema.valid_before import KEPT, ValidBefore, key_of

VALID = "bolt: 1\nmodel: {onnx: net.onnx}\ntargets: {host: {}}\n"


def test_a_digest_that_was_learnt_is_known_to_the_next_process(tmp_path: Path) -> None:
    file = tmp_path / "state" / "valid.json"
    ValidBefore(file).learn("aa")
    assert ValidBefore(file).knows("aa")
    assert not ValidBefore(file).knows("bb")


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "valid.json"
    for number in range(KEPT + 1):
        ValidBefore(file).learn(str(number))
    known = ValidBefore(file)
    assert [number for number in range(KEPT + 1) if not known.knows(str(number))] == [0]


@pytest.mark.parametrize("text", ["", "{", "3", '{"aa": 1}', "[1]"])
def test_a_file_that_says_nothing_is_no_knowledge(tmp_path: Path, text: str) -> None:
    file = tmp_path / "valid.json"
    file.write_text(text)
    assert not ValidBefore(file).knows("aa")
    ValidBefore(file).learn("aa")
    assert ValidBefore(file).knows("aa")


def test_a_file_that_others_can_write_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "valid.json"
    file.write_text('["aa"]')
    file.chmod(0o666)
    assert not ValidBefore(file).knows("aa")


def test_a_document_without_a_plain_form_has_no_key() -> None:
    assert key_of({"a": object()}, {}) is None
    assert not ValidBefore(None).knows(None)


def test_the_key_follows_values_their_types_and_the_schema() -> None:
    keys = {key_of(value, schema) for value in (1, 1.0, True, "1") for schema in ({}, {"type": "integer"})}
    assert len(keys) == 8


def test_what_is_wrong_is_said_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = ValidBefore(tmp_path / "valid.json")
    monkeypatch.setattr(judging, "valid_before", lambda: known)
    tables = []
    for text in (VALID + "colour: red\n", VALID):
        (tmp_path / "net.yaml").write_text(text)
        tables.append(read_document(tmp_path / "net.yaml")[0])
    wrong, right = tables
    first = judging.validate(wrong)
    assert len(first) == 1
    assert judging.validate(wrong) == first
    assert judging.validate(right) == ()
    monkeypatch.setattr(judging, "_validator", None)  # not asked again
    assert judging.validate(right) == ()


def test_a_recipe_that_was_valid_imports_no_jsonschema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "net.yaml").write_text(VALID.replace("{onnx: net.onnx}", "{zoo: resnet18}"))
    code = (
        "import sys; from pathlib import Path; from bolt_build.schema.load import load_recipe;"
        "load_recipe(Path('net.yaml')); print('jsonschema' in sys.modules)"
    )
    said = [
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert said == ["True\n", "False\n"]
