"""Recipes: bytes, YAML's structure, recipes of the schema with mistakes put in, chains and rings of `extend`."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import yaml
from fuzzing.bytes_mutation import mutated
from fuzzing.case import Case, Violation
from fuzzing.commands import bolt_build
from fuzzing.recipe_drawing import drawn, spoiled, unlike

LONG, SHORT = 5000, 40

_HEAD = "bolt: 1\nmodel: {zoo: resnet18, batch: [1, 8]}\ntargets: {host: {}}\n"

_RIGHT = (
    _HEAD,
    "bolt: 1\nmodel: {onnx: net.onnx}\ntargets:\n  h200: {precision: fp16, batch: 128}\n  host:\n",
    _HEAD + "policy: {fusion: {epilogue: true, persistent: auto}}\nlayers:\n  '/layer1/*': {persistent: never}\n",
    _HEAD + "variants:\n  deep: {deepen: {behind: '*'}}\n  gelu: {activation: {to: gelu, match: '*'}}\n",
    _HEAD + "tuning: {lock: net.lock, candidates: 6, budget: 20min}\nverify: {samples: 4, seed: 0}\n",
    "bolt: 1\nextend: base.yaml\nname: net\n",
    "base: &base {zoo: vgg16}\nbolt: 1\nmodel: *base\ntargets: &t {host: &p {precision: fp32}, h200: {}}\n",
)
_BASE = "bolt: 1\nmodel: {zoo: resnet18, batch: 4}\ntargets: {host: {precision: fp32}}\n"

_TOKENS = (
    "&a ", "*a ", "*b", "!!binary ", "!!python/object/apply:os.system [id]", "<<: *a", "? ", "- ", "---\n", "...\n",
    "%YAML 1.1\n", "%TAG ! x\n", "|\n", ">-\n ", "{", "[", "}", "]", '"', "'", "@", "`", "#", ": ", ",", "!!str ",
    "!!int x", "!!float 1", "!!null ''", "!!set {a}", "\\", "0x", "0o9", "1e999", "-.inf", ".nan", "~", "\t",
    "\u2028", "\u0085",
)  # fmt: skip

_RINGS = ("layers: &a {b: *a}\n", "variants: &a [*a]\n", "&a : *a\n")


def case(random: Random) -> Case:
    """Most cases are recipes of the schema with mistakes: those get furthest."""
    kinds = (_bytes, _tokens, _structure, _extended, _drawn, _drawn, _drawn, _drawn)
    return random.choice(kinds)(random)


def check(case: Case, folder: Path) -> str:
    """What `check` says is text, in JSON the same, each once; what is right stays what it is when written out."""
    case.write(folder)
    path = case.arguments[0]
    text = bolt_build("check", path)
    data = json.loads(bolt_build("check", "--format", "json", path).out)
    said = data["diagnostics"]
    if len({json.dumps(one) for one in said}) != len(said):
        raise Violation(f"something is said twice: {text.err}")
    if (text.code == 0) != (not said) or (text.code == 0) != (len(data["recipes"]) == 1):
        raise Violation(f"text and JSON differ: {text} {data}")
    if text.code == 0:
        _check_expanded(path, folder)
        return "right"
    return str(said[0]["code"])


def _check_expanded(path: str, folder: Path) -> None:
    """A recipe with all its defaults written out says the same again."""
    expanded = bolt_build("check", "--expand", path, codes=(0,), most_text=None).out
    (folder / "expanded.yaml").write_text(expanded, encoding="utf-8")
    again = bolt_build("check", "--expand", "expanded.yaml", codes=(0,), most_text=None).out
    if again != expanded:
        raise Violation(f"written out, it is another recipe:\n{expanded}\n{again}")


def _case(about: str, recipe: bytes, *others: tuple[str, bytes], name: str = "recipe.yaml") -> Case:
    files = {"net.onnx": b"ONNX", "base.yaml": _BASE.encode(), **dict(others), name: recipe}
    return Case(about, tuple(files.items()), (name,))


def _bytes(random: Random) -> Case:
    data = random.choice(_RIGHT).encode()
    if random.random() < 0.1:
        return _case("another encoding", data.decode().encode(random.choice(("utf-16", "utf-32", "utf-16-le"))))
    return _case("bytes", mutated(random, data, [text.encode() for text in _RIGHT]))


def _tokens(random: Random) -> Case:
    text = random.choice(_RIGHT)
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(text))
        text = text[:at] + random.choice(_TOKENS) + text[at:]
    return _case("tokens of YAML", text.encode())


def _structure(random: Random) -> Case:
    """Documents that are large, deep, or refer to themselves."""
    many = 10 ** random.randint(1, 4)
    makers = {
        "nested lists": lambda: "bolt: " + "[" * many + "]" * random.choice((many, 0)),
        "nested mappings": lambda: "bolt: " + "{a: " * many + "1" + "}" * many,
        "block lists": lambda: "bolt:\n  " + "- " * many + "x\n",
        "unknown keys": lambda: _HEAD + _lines(many, "key{0}: {0}"),
        "unknown keys of layers": lambda: _HEAD + "layers:\n" + _lines(many, "  l{0}: {{precison: fp32}}"),
        "unknown targets": lambda: _HEAD.replace("host: {}", _lines(many, "t{0}: {{}},")),
        "batches": lambda: _HEAD.replace("[1, 8]", f"[{', '.join(str(n % 50) for n in range(many))}]"),
        "one key again and again": lambda: _HEAD + "verify: {samples: 1}\n" * many,
        "a long key": lambda: _HEAD + "k" * many + ": 1\n",
        "a long string": lambda: _HEAD.replace("resnet18", "r" * many),
        "a long number": lambda: _HEAD.replace("[1, 8]", random.choice(("", "-", "0x", "1.", "1e")) + "9" * many),
        "aliases of aliases": lambda: _bomb(random, min(many, 60)),
        "an alias of itself": lambda: _HEAD + random.choice(_RINGS),
        "many aliases": lambda: _HEAD + "layers:\n  x: &a {precision: fp32}\n" + _lines(many, "  y{0}: *a"),
        "many documents": lambda: "---\n".join([_HEAD] * min(many, 1000)),
        "many comments": lambda: "# x\n" * many + _HEAD,
    }
    about = random.choice(tuple(makers))
    return _case(f"{about}, {many}", makers[about]().encode())


def _lines(count: int, form: str) -> str:
    return "".join(form.format(number) + "\n" for number in range(count))


def _bomb(random: Random, depth: int) -> str:
    """Aliases each of which stands for several of the one before."""
    lines = ["a0: &a0 [x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * random.randint(2, 9))}]" for n in range(1, depth)]
    return "\n".join(lines) + "\n" + _HEAD


def _extended(random: Random) -> Case:
    """Recipes that extend others, in chains that end, do not, or lead elsewhere."""
    length = random.choice((1, 2, 3, 40, 300))
    names = [f"part{n}.yaml" for n in range(length)]
    last = random.choice(
        ("base.yaml", names[0], names[-1], "nowhere.yaml", "..", ".", "net.onnx", "./base.yaml", "/base.yaml", "a\\0b",
         "x" * 300, "d/" * 2000 + "e", "~/base.yaml", "base.yaml@deep", "recipe.yaml", "/proc/self/environ")
    )  # fmt: skip
    files = []
    for name, following in zip(names, [*names[1:], last], strict=True):
        body = _dump(random, {"bolt": 1, "extend": following})
        if random.random() < 0.3:
            body = _dump(random, spoiled(random, {**drawn(random), "extend": following}))
        files.append((name, body))
    return _case(f"{length} recipes, the last extends {unlike(last)}", files[0][1], *files, name=names[0])


def _drawn(random: Random) -> Case:
    data = drawn(random)
    mistakes = random.choice((0, 1, 1, 1, 2, 3))
    for _ in range(mistakes):
        data = spoiled(random, data)
    name = random.choice(
        ("recipe.yaml",) * 6 + ("Net-2.yaml", "größe.yaml", "n.et.yaml", "9.yaml", "a@b.yaml", "a b", ".yaml")
    )
    return _case(f"of the schema, {mistakes} mistakes", _dump(random, data), name=name)


def _dump(random: Random, data: Any) -> bytes:
    """As JSON, or as YAML in one of its styles."""
    if random.random() < 0.2:
        return json.dumps(data, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    text: str = yaml.safe_dump(
        data, default_flow_style=random.choice((None, True, False)), allow_unicode=random.random() < 0.5,
        sort_keys=False, width=random.choice((40, 4000)), default_style=random.choice((None,) * 8 + ("'", '"')),
    )  # fmt: skip
    return text.encode("utf-8", "surrogatepass")
