"""What people read when a file holds no recipe: whole texts, carets included."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from recipe_complaints import HEAD, complaint, complaint_about

from bolt_build.report.diagnostics import MOST_SHOWN
from bolt_build.schema.document import MAX_BYTES, MAX_NODES


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


FILES = {
    "empty": (
        "",
        """\
recipe.yaml:1:1: error[empty-recipe]: the recipe is empty
  1 |
    | ^ a recipe begins with 'bolt: 1'
""",
    ),
    "comments only": (
        "# to do\n",
        """\
recipe.yaml:1:1: error[empty-recipe]: the recipe is empty
  1 | # to do
    | ^ a recipe begins with 'bolt: 1'
""",
    ),
    "not a mapping": (
        "hello\n",
        """\
recipe.yaml:1:1: error[wrong-type]: a recipe must be a mapping, found the string 'hello'
  1 | hello
    | ^^^^^ a recipe begins with 'bolt: 1'
""",
    ),
    "not UTF-8": (
        b"\xef\xbb\xbfbolt: 1\nname: \xc3\xa9\xe9\n",
        """\
recipe.yaml:2:8: error[not-utf8]: byte 0xe9 is not UTF-8
  2 | name: \u00e9\ufffd
    |        ^ a recipe is UTF-8 text
""",
    ),
    "a PNG": (
        b"\x89PNG\r\n\x1a\n",
        """\
recipe.yaml: error[other-file]: this is a PNG image, not a recipe
  hint: a recipe is YAML text
""",
    ),
    "a pointer of Git LFS": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
        """\
recipe.yaml: error[other-file]: this is a Git LFS pointer, not a recipe
  hint: fetch the file that it stands for: git lfs pull
""",
    ),
    "an ONNX model": (
        b"\x08\x08\x12\x07pytorch\xf5",
        """\
recipe.yaml: error[other-file]: this is an ONNX model, not a recipe
  hint: name it in a recipe, as model.onnx; 'bolt-build init' writes one
""",
    ),
    "control character": (
        "bolt: 1\nname: \u00e9\x00\n",
        """\
recipe.yaml:2:8: error[yaml-syntax]: character U+0000 is not allowed in YAML
  2 | name: \u00e9\ufffd
    |        ^
""",
    ),
    "tab": (
        "bolt: 1\nmodel:\n\tzoo: resnet50\n",
        """\
recipe.yaml:3:1: error[yaml-syntax]: a tab where only spaces may stand
  3 | \tzoo: resnet50
    | ^ indent with spaces
""",
    ),
    "tab behind a value": (
        "bolt: 1\n\tmodel: {zoo: resnet50}\n",
        """\
recipe.yaml:2:1: error[yaml-syntax]: a tab where only spaces may stand
  2 | \tmodel: {zoo: resnet50}
    | ^ indent with spaces
""",
    ),
    "reserved character": (
        "bolt: 1\nname: @net\n",
        """\
recipe.yaml:2:7: error[yaml-syntax]: text cannot begin with '@'
  2 | name: @net
    |       ^ write it in quotes
""",
    ),
    "bracket left open": (
        "bolt: 1\nmodel: {zoo: [\n",
        """\
recipe.yaml:3:1: error[yaml-syntax]: did not find expected node content, while parsing a flow node
  3 |
    | ^
""",
    ),
    "brace left open": (
        "bolt: 1\nmodel: {zoo: resnet50\ntargets: {host: }\n",
        """\
recipe.yaml:3:8: error[yaml-syntax]: did not find expected ',' or '}', while parsing a flow mapping that begins on \
line 2
  3 | targets: {host: }
    |        ^
""",
    ),
    "second document": (
        HEAD + "---\nbolt: 1\n",
        """\
recipe.yaml:4:1: error[yaml-syntax]: a second document begins here
  4 | ---
    | ^ one file holds one recipe
""",
    ),
    "merge that was not finished": (
        HEAD + "<<<<<<< HEAD\npolicy: {skip: []}\n=======\npolicy: {}\n>>>>>>> other\n",
        """\
recipe.yaml:4:1: error[merge-conflict]: a merge was not finished here
  4 | <<<<<<< HEAD
    | ^ keep one side, and remove the lines that begin with '<<<<<<<', '=======' and '>>>>>>>'
""",
    ),
    "half of a merge": (
        HEAD + "policy: {}\n>>>>>>> other\n",
        """\
recipe.yaml:5:1: error[merge-conflict]: a merge was not finished here
  5 | >>>>>>> other
    | ^ keep one side, and remove the lines that begin with '<<<<<<<', '=======' and '>>>>>>>'
""",
    ),
    "undefined alias": (
        "bolt: 1\nmodel: *base\n",
        """\
recipe.yaml:2:8: error[yaml-syntax]: found undefined alias
  2 | model: *base
    |        ^
""",
    ),
    "value inside itself": (
        "bolt: 1\nmodel: &model [*model]\n",
        """\
recipe.yaml:2:8: error[recursive-alias]: this value contains itself through an alias
  2 | model: &model [*model]
    |        ^^^^^^^^^^^^^^^
""",
    ),
    "aliases that multiply": (
        "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)),
        """\
recipe.yaml:6:5: error[too-large]: more than 100000 values once aliases are expanded
  6 | a5: &a5 [*a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4]
    |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "nesting without end": (
        "a: " + "[" * 201 + "]" * 201 + "\n",
        f"""\
recipe.yaml:1:203: error[too-large]: more than 200 collections inside one another
  1 | ...{"[" * 42}{"]" * 78}...
    |    {" " * 40}^
""",
    ),
}


@pytest.mark.parametrize(("text", "expected"), FILES.values(), ids=FILES)
def test_files_that_hold_no_recipe(text: str | bytes, expected: str) -> None:
    assert complaint_about(text) == expected


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("\u7f51", "a name is letters, digits, '_', '-' and '.', a letter or digit first"),
        ("___", "a name is letters, digits, '_', '-' and '.', a letter or digit first"),
        ("n" * 65, "a name has at most 64 characters"),
    ],
)
def test_a_file_whose_name_cannot_name_an_engine(file: str, why: str) -> None:
    Path(f"{file}.yaml").write_text(HEAD)
    assert complaint(f"{file}.yaml") == (
        f"""\
{file}.yaml:1:1: error[bad-name]: the file's name cannot name the engine: {why}
  1 | bolt: 1
    | ^ add a name, such as 'name: model'
"""
    )


def test_a_recipe_that_is_not_there() -> None:
    assert complaint("gone.yaml") == "gone.yaml: error[no-such-file]: no such recipe\n"


def test_a_link_that_leads_nowhere() -> None:
    Path("net.yaml").symlink_to("gone/net.yaml")
    assert complaint("net.yaml") == (
        "net.yaml: error[no-such-file]: no such recipe\n  hint: it is a link to 'gone/net.yaml', which is not there\n"
    )
    Path("net.onnx").symlink_to("gone.onnx")
    assert complaint_about(HEAD.replace("zoo: resnet50", "onnx: net.onnx")) == (
        """\
recipe.yaml:2:15: error[no-such-model]: the model file 'net.onnx' does not exist
  2 | model: {onnx: net.onnx}
    |               ^^^^^^^^ it is a link to 'gone.onnx', which is not there
"""
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (
            "https://models.example/net.onnx",
            "no URL is read: fetch the file, and name that; paths are relative to the recipe",
        ),
        ("~/net.onnx", "'~' and variables stand for themselves here; paths are relative to the recipe"),
        ("$MODELS/net.onnx", "'~' and variables stand for themselves here; paths are relative to the recipe"),
    ],
)
def test_a_model_by_what_is_no_path(name: str, hint: str) -> None:
    assert complaint_about(HEAD.replace("zoo: resnet50", f"onnx: {name}")) == (
        f"""\
recipe.yaml:2:15: error[no-such-model]: the model file '{name}' does not exist
  2 | model: {{onnx: {name}}}
    |               {"^" * len(name)} {hint}
"""
    )


def test_a_directory() -> None:
    Path("recipes").mkdir()
    assert complaint("recipes") == (
        "recipes: error[not-a-file]: is a directory, not a recipe\n  hint: name the recipe's file\n"
    )


def test_what_is_no_file() -> None:
    """Nobody ever writes to this pipe, and the device never ends: neither is waited for."""
    os.mkfifo("pipe.yaml")
    Path("zero.yaml").symlink_to("/dev/zero")
    assert [complaint(name) for name in ("pipe.yaml", "zero.yaml")] == [
        "pipe.yaml: error[not-a-file]: is a pipe, not a recipe\n  hint: name the recipe's file\n",
        "zero.yaml: error[not-a-file]: is a device, not a recipe\n  hint: name the recipe's file\n",
    ]


def test_what_a_recipe_extends_is_no_file() -> None:
    os.mkfifo("base.yaml")
    assert complaint_about(f"{HEAD}extend: base.yaml\n") == (
        """\
recipe.yaml:4:9: error[not-a-file]: 'base.yaml': is a pipe, not a recipe
  4 | extend: base.yaml
    |         ^^^^^^^^^ name the recipe's file
"""
    )


def test_a_model_that_is_no_file() -> None:
    os.mkfifo("pipe.onnx")
    assert complaint_about(HEAD.replace("zoo: resnet50", "onnx: pipe.onnx")) == (
        """\
recipe.yaml:2:15: error[no-such-model]: the model file 'pipe.onnx' is a pipe
  2 | model: {onnx: pipe.onnx}
    |               ^^^^^^^^^
"""
    )


@pytest.mark.parametrize(
    ("name", "kind"), [("pipe.lock", "a pipe"), ("folder.lock", "a directory"), ("/dev/zero", "a device")]
)
def test_a_lock_that_is_no_file(name: str, kind: str) -> None:
    """The CPU has nothing to tune: its lock is looked at and not read."""
    os.mkfifo("pipe.lock")
    Path("folder.lock").mkdir()
    assert complaint_about(HEAD + f"tuning: {{lock: {name}}}\n") == (
        f"""\
recipe.yaml:4:16: error[bad-value]: the lock '{name}' is {kind}
  4 | tuning: {{lock: {name}}}
    |                {"^" * len(name)}
"""
    )


def test_a_file_that_is_too_large() -> None:
    with Path("large.yaml").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert complaint("large.yaml") == (
        "large.yaml: error[unreadable]: cannot be read: larger than 16 MiB\n"
        "  hint: a recipe is YAML text that people read\n"
    )


def test_a_model_in_the_place_of_a_recipe_that_is_too_large_to_be_one() -> None:
    with Path("net.onnx").open("wb") as file:
        file.write(b"\x08\x08\x12\x07pytorch")
        file.truncate(MAX_BYTES + 1)
    assert complaint("net.onnx") == (
        "net.onnx: error[other-file]: this is an ONNX model, not a recipe\n"
        "  hint: name it in a recipe, as model.onnx; 'bolt-build init' writes one\n"
    )


def test_values_without_end() -> None:
    said = complaint_about("a: [" + "1," * MAX_NODES + "]\n")
    assert said.startswith(
        f"recipe.yaml:1:{5 + 2 * (MAX_NODES - 3)}: error[too-large]: more than 200000 keys and values"
    )


def test_thousands_of_mistakes_are_counted_where_a_hundred_are_shown() -> None:
    said = complaint_about(HEAD + "".join(f"unknown_{number}: 1\n" for number in range(8000)))
    assert said.count("error[unknown-key]") == MOST_SHOWN == 100
    assert said.endswith("note[more]: 7900 errors more are not shown\n")
    assert len(said) < 30_000


def test_a_file_below_a_file() -> None:
    Path("recipe.yaml").write_text(HEAD)
    assert complaint("recipe.yaml/x") == "recipe.yaml/x: error[unreadable]: cannot be read: not a directory\n"
