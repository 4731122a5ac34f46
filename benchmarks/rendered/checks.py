"""Whether kernels and engines are right, and whether verification would say so."""

from __future__ import annotations

from collections import Counter
from typing import Any

from . import duration, figures, percent, table


@figures(
    "emulated_h200",
    "emulated_a100",
    "emulated_t4",
    "emulated_grouped_h200",
    "emulated_grouped_a100",
    "emulated_grouped_t4",
    "emulated_attention_h200",
    "emulated_attention_a100",
    "emulated_attention_t4",
)
def emulated(*results: Any) -> dict[str, str]:
    rows = []
    for data in results:
        wrong = sum(len(run["wrong"]) for run in data["runs"])
        orders = len(data["runs"]) - 1
        what = f"{data['target']}: {data['only']}" if data.get("only") else data["target"]
        rows.append([what, str(data["runs"][0]["trials"]), str(orders), str(wrong)])
    head = ["kernels on the emulated GPU, of", "trials in program order", "times again in random orders", "wrong"]
    return {"emulated": table(head, rows)}


@figures("gpu_checks_resnet50", "gpu_models", "gpu_ptx")
def on_gpu(resnet50: Any, models: Any, ptx: Any) -> dict[str, str]:
    (checks,) = resnet50["engines"].values()
    replays, endurance = checks["replays"], checks["endurance"]
    sanitized = [name for name, each in models["engines"].items() if "sanitizers" in each]
    hazards = sum(tool["ok"] is False for name in sanitized for tool in models["engines"][name]["sanitizers"].values())
    a100, h200 = (ptx["engines"][name]["time"]["32"]["replay_ms"] for name in ("a100", "h200"))
    return {
        "replays": f"{min(each['replays'] for each in replays.values()):,} times",
        "replays.batches": ", ".join(replays),
        "replays.wrong": str(sum(each["wrong"] for each in replays.values())),
        "endurance": f"{endurance['runs']:,} runs",
        "endurance.growth": f"{endurance['device_growth'] + endurance['host_growth']} bytes",
        "gpu_models": f"{sum(each['verify']['ok'] for each in models['engines'].values())} of {len(models['engines'])}",
        "gpu_models.sanitized": str(len(sanitized)),
        "gpu_models.hazards": str(hazards),
        "ptx.a100": f"{a100:.3f} ms",
        "ptx.h200": f"{h200:.3f} ms",
        "ptx.translated": duration(ptx["engines"]["a100"]["translated"]["first_run_s"]),
    }


@figures("planted_faults")
def planted(data: Any) -> dict[str, str]:
    rows, kinds = [], set[str]()
    spread, wrong_alarms = 0.0, 0
    counted: Counter[str] = Counter()
    for name, engine in data["engines"].items():
        model, _, precision = name.split()
        came = Counter[str]()
        for row in engine["table"].values():
            came.update(row)
        kinds |= set(engine["table"])
        spread = max(spread, engine["right_layers_spread"])
        wrong_alarms += len(engine["right_layers_that_depart"]) + len(engine["right_layers_not_judged"])
        small = came["within rounding"] + came["changes nothing"]
        rows.append([model, precision, *map(str, (engine["faults"], engine["found"], small, engine["missed"]))])
        counted.update({f"{precision} faults": engine["faults"], f"{precision} found": engine["found"]})
    head = ["model", "precision", "faults planted", "found", "no larger than rounding", "missed"]
    return {
        "planted": table(head, rows),
        "planted.kinds": str(len(kinds)),
        "planted.fp32": f"{counted['fp32 found']} of {counted['fp32 faults']}",
        "planted.fp16": f"{counted['fp16 found']} of {counted['fp16 faults']}",
        "planted.spread": f"{spread:.2f}",
        "planted.wrong_alarms": str(wrong_alarms),
    }


@figures("fuzz", "fuzz_cache_entries", "fuzz_locks", "fuzz_readers")
def fuzzed(*results: Any) -> dict[str, str]:
    found = {name: kind for data in results for name, kind in data["kinds"].items()}
    rows = [
        [name.replace("_", " "), f"{kind['cases']:,}", str(len(kind["violations"])), f"{kind['slowest']['s']:.2f} s",
         f"{kind['largest']['mb']} MB"]
        for name, kind in sorted(found.items())
    ]  # fmt: skip
    head = ["inputs at random of", "cases", "violations", "slowest, CPU", "most memory"]
    return {"fuzzed": table(head, rows)}


@figures("mixed_models")
def mixed_models(data: Any) -> dict[str, str]:
    stages, parts = data["stages"], (data["stages"], data["host"], data["emulated_h200"])
    return {
        "mixed.models": f"{stages['models']:,}",
        "mixed.operators": str(stages["operators"]),
        "mixed.nodes": f"{stages['nodes']:,}",
        "mixed.refused": str(sum(stages["refused"].values())),
        "mixed.host": f"{data['host']['models']:,}",
        "mixed.emulated": f"{data['emulated_h200']['models']:,}",
        "mixed.wrong": str(sum(len(part["wrong"]) for part in parts)),
    }


@figures("onnx_nodes")
def onnx_cases(data: Any) -> dict[str, str]:
    counts = data["counts"]
    runs = sum(counts[form]["right"] + counts[form]["wrong"] for form in ("data", "first", "constants"))
    refused = counts["cases"]["refused"]
    return {
        "onnx_cases": f"{len(data['cases']):,}",
        "onnx_cases.runs": f"{runs:,}",
        "onnx_cases.wrong": str(len(data["wrong"])),
        "onnx_cases.refused": percent(refused / len(data["cases"])),
    }
