"""Engines of the CPU beside onnxruntime."""

from __future__ import annotations

from statistics import geometric_mean
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


@figures("host_models")
def models(data: Any) -> dict[str, str]:
    """One row a model and batch, with one thread and with all."""
    rows, ratios = [], {}
    for row in data["rows"]:
        name = f"{row['model']} ({row['kind']})"
        cells = [name]
        for each in row["contests"]:
            # One thread's CPU time is what it takes on a machine that does other work, too.
            time = "cpu_ms" if each["threads"] == 1 else "ms"
            engine, peer = each[f"engine_{time}"], each[f"onnxruntime_{time}"]
            ratios[f"{row['model']}, {_threads(each['threads'])}"] = engine / peer
            cells += [f"{engine:.2f}", f"{peer:.2f}", f"{engine / peer:.2f}"]
        rows.append(cells)
    head = [f"ms, fp32, {data['device']}, onnxruntime {data['versions']['onnxruntime']}"]
    for each in data["rows"][0]["contests"]:
        head += [f"engine, {_threads(each['threads'])}", "onnxruntime", "ratio"]
    most = max(ratios, key=lambda name: ratios[name])
    differences = [each["difference"] for row in data["rows"] for each in row["contests"]]
    return {
        "host_models": table(head, rows),
        "host_models.count": f"{len(data['rows'])}",
        "host_models.mean": f"{geometric_mean(ratios.values()):.2f}",
        "host_models.most": f"{ratios[most]:.2f}",
        "host_models.most_row": most,
        "host_models.difference": f"{max(differences):.0e}",
    }


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
