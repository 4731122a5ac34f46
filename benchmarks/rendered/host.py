"""Engines of the CPU beside onnxruntime."""

from __future__ import annotations

from typing import Any

from . import figures, table


@figures("host_resnet50", "host_resnet50_bf16")
def host(fp32: Any, bf16: Any) -> dict[str, str]:
    low = {(row["batch"], row["threads"]): row for row in bf16["rows"]}
    rows = []
    for row in fp32["rows"]:
        threads = "1 thread" if row["threads"] == 1 else f"{row['threads']} threads"
        half = low.get((row["batch"], row["threads"]))
        rows.append(
            [
                f"batch {row['batch']}, {threads}",
                f"{row['engine_ms']:.1f} ms",
                f"{row['onnxruntime_ms']:.1f} ms",
                f"{half['engine_ms']:.1f} ms" if half else "",
            ]
        )
    ratios = [row["engine_over_onnxruntime"] for row in fp32["rows"] if row["threads"] == 1]
    head = [f"ResNet-50, {fp32['device']}", "engine, fp32", f"onnxruntime {fp32['versions']['onnxruntime']}, fp32"]
    return {
        "host": table([*head, "engine, bf16, another run"], rows),
        "host.ratio": f"{min(ratios):.2f} to {max(ratios):.2f}",
    }


@figures("light_models")
def light(data: Any) -> dict[str, str]:
    rows = data["rows"]
    agree = sum(row["agrees"] for row in rows)
    most = max(row["worst_layer_part_of_tolerance"] for row in rows)
    return {
        "light": f"{agree} of {len(rows)}",
        "light.names": ", ".join(row["model"] for row in rows),
        "light.most": f"{most:.2f}",
    }
