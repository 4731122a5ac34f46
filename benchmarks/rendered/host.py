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


@figures("host_threads")
def threads(data: Any) -> dict[str, str]:
    """One row a number of busy processes beside the engine."""
    rows = []
    for row in data["rows"]:
        busy = {0: "a quiet machine", 1: "one busy process"}.get(
            row["busy_processes"], f"{row['busy_processes']} busy processes"
        )
        rows.append(
            [busy, *(f"{row['median_ms'][name]:.1f} ms" for name in ("engine", "passive", "spinning", "onnxruntime"))]
        )
    head = [
        f"ResNet-50, batch {data['batch']}, {data['device']}",
        "engine",
        "it, waiting passively",
        "it, spinning",
        "onnxruntime",
    ]
    return {"threads": table(head, rows)}


@figures("half_models")
def half(data: Any) -> dict[str, str]:
    took = data["median_ms"]
    return {
        "half": f"{took['engine-fp16']:.1f} ms",
        "half.fp32": f"{took['engine-fp32']:.1f} ms",
        "half.peer": f"{took['onnxruntime-fp16']:.1f} ms",
        "half.load": f"{data['load_average']:.0f}",
    }
