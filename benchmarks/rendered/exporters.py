"""Models that torch.onnx writes, and the onnx package's cases on GPUs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from benchmarks.rendered import figures, table

_LIBRARIES = ("torchvision", "timm", "transformers")
_OWN = "module"
"""Of modules that no library has."""
_FURTHER = ""
"""Of all other packages, which have a row together."""


_HEAD = ("models of", "architectures", "files", "planned for an H200", "tried on the host", "and right")
_NOTHING = {
    "exported": table(_HEAD, [["nothing yet"] + ["-"] * 5]), "exported.files": "0", "exported.wrong": "none",
    "exported.lost": "none", "exported.forms": "none",
}  # fmt: skip


@figures("exporters", without=_NOTHING)
def exported(data: Any) -> dict[str, str]:
    groups: dict[str, list[dict[str, Any]]] = {name: [] for name in (*_LIBRARIES, _FURTHER, _OWN)}
    for row in data["rows"]:
        library = row["model"].partition(".")[0]
        groups[library if library in groups else _FURTHER].append(row)
    rows = [_counted(_label(name, mine, data["versions"]), mine) for name, mine in groups.items() if mine]
    forms = Counter(row["form"] for row in data["rows"] if row["export"] == "ok")
    lost = [f"{_name(row)} ({_first(row['export'])})" for row in data["rows"] if row["export"] != "ok"]
    wrong = [
        f"{_name(row)}: {_first(row['h200'] if row['h200'] != 'planned' else row['host'])}"
        for row in data["rows"]
        if row["export"] == "ok"
        and (row["h200"] != "planned" or row["host"] not in ("verified", "not built yet"))
    ]  # fmt: skip
    return {
        "exported": table(_HEAD, rows),
        "exported.files": str(data["files"]),
        "exported.forms": ", ".join(f"{forms[form]} as {form}" for form in sorted(forms)) or "none",
        "exported.wrong": "; ".join(wrong) or "none",
        "exported.lost": "; ".join(lost) or "none",
    }


def _label(name: str, mine: list[dict[str, Any]], versions: dict[str, str]) -> str:
    if name == _OWN:
        return "modules written for this"
    if name == _FURTHER:
        return ", ".join(sorted({row["model"].partition(".")[0] for row in mine}))
    return f"{name} {versions[name]}"


def _counted(label: str, mine: list[dict[str, Any]]) -> list[str]:
    made = [row for row in mine if row["export"] == "ok"]
    planned = sum(row["h200"] == "planned" for row in made)
    verified = sum(row["host"] == "verified" for row in made)
    tried = sum(row["host"] != "not built yet" for row in made)
    return [label, *map(str, (len({row["model"] for row in made}), len(made), planned, tried, verified))]


def _name(row: dict[str, Any]) -> str:
    return f"{row['model'].partition('.')[2]}, {row['form']}"


def _first(said: Any) -> str:
    """The first line of what was said, of a list its first."""
    text = str(said[0] if isinstance(said, list) else said)
    return (text.splitlines() or [""])[0][:160].rstrip(".")


@figures("onnx_nodes_h200", without={"onnx_cases.h200": "has not run them yet"})
def on_a_gpu(data: Any) -> dict[str, str]:
    return {"onnx_cases.h200": f"computes {data['right']:,} of {data['cases']:,} right"}


@figures("onnx_nodes_emulated", without={"onnx_cases.emulated": "has not run them yet"})
def on_the_emulated_gpu(data: Any) -> dict[str, str]:
    whole = data["engines"] == data["prepared"]
    part = "" if whole else f", from {data['engines']} of {data['prepared']} engines so far"
    return {"onnx_cases.emulated": f"computes {data['right']:,} of {data['cases']:,} right{part}"}
