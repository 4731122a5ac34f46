"""ONNX files that packages ship, and that exporters other than PyTorch's write."""

from __future__ import annotations

from typing import Any

from benchmarks.rendered import figures, table

_HEAD = ("made by", "opsets", "files", "planned for an H200", "right on the host")
_KINDS = {
    "keras": "Keras and tf2onnx", "tf2onnx": "Keras and tf2onnx", "tflite": "tf2onnx (LiteRT)",
    "jax2onnx": "jax2onnx (Flax)", "paddle2onnx": "paddle2onnx", "skl2onnx": "skl2onnx (scikit-learn)",
    "xgboost": "XGBoost, LightGBM, CatBoost", "lightgbm": "XGBoost, LightGBM, CatBoost",
    "catboost": "XGBoost, LightGBM, CatBoost", "onnx": "written node by node", "spox": "written node by node",
    "ndonnx": "written node by node", "onnxslim": "onnxslim and onnxsim", "onnxsim": "onnxslim and onnxsim",
    **dict.fromkeys(
        ("ortbasic", "ortextended", "ortall", "ortfused", "orthalf", "ortmulti"), "onnxruntime's optimiser"
    ),
    **dict.fromkeys(
        ("ortdynamic", "ortdynamicu8", "ortdynamicchannels", "ortqdq", "ortqdqsigned", "ortqdqu16", "ortqdqw4",
         "ortqoperator", "ortqoperatoru8", "ortnbits"),
        "onnxruntime's quantiser",
    ),
}  # fmt: skip
_SHIPPED = "others, shipped in wheels"
_NOTHING = {
    "shipped": table(_HEAD, [["nothing yet"] + ["-"] * 4]), "shipped.files": "0", "shipped.packages": "0",
    "shipped.refused": "none", "shipped.wrong": "none",
}  # fmt: skip


@figures("shipped_models", without=_NOTHING)
def shipped(data: Any) -> dict[str, str]:
    rows = data["rows"]
    kinds = dict.fromkeys([_SHIPPED, *_KINDS.values()])
    lines = []
    for kind in kinds:
        mine = [row for row in rows if _KINDS.get(row["package"], _SHIPPED) == kind]
        if mine:
            opsets = sorted({row["opset"] for row in mine})
            spread = f"{opsets[0]} to {opsets[-1]}" if len(opsets) > 1 else str(opsets[0])
            planned = sum(row["h200"] == "planned" for row in mine)
            right = sum(row["host"] == "verified" for row in mine)
            lines.append([kind, spread, str(len(mine)), str(planned), str(right)])
    refused = [f"{_name(row)}: {_first(row['h200'])}" for row in rows if row["h200"] != "planned"]
    wrong = [
        f"{_name(row)}: {_first(row['host'])}" for row in rows if row["h200"] == "planned" and row["host"] != "verified"
    ]
    return {
        "shipped": table(_HEAD, lines),
        "shipped.files": str(len(rows)),
        "shipped.packages": str(len({row["package"] for row in rows if row["package"] not in _KINDS})),
        "shipped.refused": "; ".join(refused) or "none",
        "shipped.wrong": "; ".join(wrong) or "none",
    }


def _name(row: dict[str, Any]) -> str:
    return f"{row['package']}, {row['file'].rpartition('/')[2].removesuffix('.onnx')}"


def _first(said: Any) -> str:
    """The first line of what was said, of a list its first, without the names of nodes."""
    text = str(said[0] if isinstance(said, list) else said)
    return (text.splitlines() or [""])[0].partition(": node")[0][:120].rstrip(".")
