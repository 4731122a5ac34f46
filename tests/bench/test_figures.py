"""Figures of the documents come from results, and results from scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import ROOT, figures, record, rendered
from benchmarks.rendered import bandwidth, peers, vendor_layers
from benchmarks.repository import ci_run

KNOWN = {"mean": "2.06", "peers": "| a | b |\n| --- | --- |\n| 1 | 2 |"}


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    """Every figure's function, before a test puts others in their place."""
    rendered.rendered(record.RESULTS)


def test_every_document_says_what_the_results_say() -> None:
    """`python benchmarks/figures.py` writes them."""
    known = rendered.rendered(record.RESULTS)
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in figures.documents()}
    assert {"README.md", "docs/figures.md", "docs/figures/cnns.md"} <= texts.keys()
    assert [fault for name, text in texts.items() for fault in figures.faults(name, text, known)] == []
    assert list(figures.unused(texts, known)) == []


def test_every_result_is_shown_and_was_written_by_a_script() -> None:
    rendered.rendered(record.RESULTS)
    assert list(figures.results_faults(record.RESULTS, record.BENCHMARKS, rendered.read_results())) == []


def test_a_vendor_s_layers_are_shown_where_no_power_was_read() -> None:
    row = {"name": "bert_base_b32", "apart_ms": 2.0, "together_ms": 2.5, "sustained_ms": 3.0, "watts": None}
    data = {"gpu": "NVIDIA H200", "dtype": "fp16", "accumulator": "fp32", "date": "today", "rows": [row]}
    shown = vendor_layers.vendor_layers(data)["vendor_layers"].splitlines()
    assert shown[-1] == "| BERT-base, 128 | 2.000 | 2.500 | 3.000 |  | 1.50 |"


def test_a_number_goes_into_its_line_and_a_table_onto_lines_of_its_own() -> None:
    text = "Faster, <!-- figures: mean -->2.1<!-- / --> times.\n\n<!-- figures: peers --><!-- / -->\n"
    assert figures.filled(text, KNOWN) == (
        "Faster, <!-- figures: mean -->2.06<!-- / --> times.\n\n"
        "<!-- figures: peers -->\n| a | b |\n| --- | --- |\n| 1 | 2 |\n<!-- / -->\n"
    )
    assert figures.filled(figures.filled(text, KNOWN), KNOWN) == figures.filled(text, KNOWN)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("As fast, <!-- figures: mean -->2.06<!-- / -->\n", []),
        ("<!-- figures: mean -->2.06<!-- / --> as fast\n",
         ["page.md:1: a number's marker begins a line, which Markdown shows as it stands; put a word before it"]),
        ("one\nis <!-- figures: means -->2.06<!-- / -->\n",
         ["page.md:2: there is no figure 'means'; did you mean 'mean'?"]),
        ("is <!-- figures: mean -->2.07<!-- / -->\n",
         ["page.md: not what the results say; run python benchmarks/figures.py"]),
        ("one\n\nIt takes 14.5 ms,\nor 3% less\n",
         ["page.md:3: '14.5 ms' is typed by hand; render it from a result, or say it without a unit",
          "page.md:4: '3%' is typed by hand; render it from a result, or say it without a unit"]),
        ("`budget: 20 min` and\n\n    sleep 3 s\n", []),
        ("\n    sleep 3 s\n\nIt takes 14.5 ms\n",
         ["page.md:4: '14.5 ms' is typed by hand; render it from a result, or say it without a unit"]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_document_is_said_with_its_line(text: str, said: list[str]) -> None:
    assert list(figures.faults("page.md", text, KNOWN)) == said


def test_a_figure_that_nothing_shows_is_named() -> None:
    shown = {"page.md": "is <!-- figures: mean --><!-- / -->"}
    assert list(figures.unused(shown, KNOWN)) == ["the figure 'peers' stands in no document"]


def test_results_without_a_figure_or_a_script_are_named(tmp_path: Path) -> None:
    (tmp_path / "made.py").touch()
    for name, command in (
        ("made", "python benchmarks/made.py --all"),
        ("gone", "python benchmarks/gone.py"),
        ("typed", "ls"),
    ):
        (tmp_path / f"{name}.json").write_text(f'{{"command": "{command}"}}')
    assert list(figures.results_faults(tmp_path, tmp_path, {"made", "typed"})) == [
        "gone.json: no figure is made of it",
        "gone.json: written by 'python benchmarks/gone.py', which is no script under benchmarks/",
        "typed.json: written by 'ls', which is no script under benchmarks/",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.052, "0.05 s"), (0.51, "0.51 s"), (4.18, "4.2 s"), (85.7, "86 s"), (186.8, "3 min 7 s"), (119.7, "2 min 0 s")],
)
def test_seconds_are_said_as_a_person_says_them(seconds: float, text: str) -> None:
    assert rendered.duration(seconds) == text


def test_two_figures_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text("{}")
    twice = rendered.Renderer(("a",), lambda data: {"one": "1"}, {})
    monkeypatch.setattr(rendered, "RENDERERS", [twice, twice])
    with pytest.raises(ValueError, match=r"^two figures are called 'one'$"):
        rendered.rendered(tmp_path)


def test_what_was_not_measured_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = rendered.Renderer(("a",), lambda data: {"one": data["one"]}, {"one": "not measured"})
    monkeypatch.setattr(rendered, "RENDERERS", [waits])
    assert rendered.rendered(tmp_path) == {"one": "not measured"}
    (tmp_path / "a.json").write_text('{"one": "1"}')
    assert rendered.rendered(tmp_path) == {"one": "1"}


def test_the_readmes_table_of_peers_is_the_shipped_verbs_where_that_was_measured() -> None:
    """As `cnn_peers.py --table dense_peers` writes it: a peer that failed has no time, one that was not asked for has
    no place, and a row may not be there yet."""
    earlier = json.loads((record.RESULTS / "against_peers.json").read_text(encoding="utf-8"))
    before = peers.short_peers(earlier, None)

    def contestants(**times: float) -> dict[str, object]:
        return {name.replace("_", "-"): {"median_ms": ms, "compile_seconds": 20 * ms} for name, ms in times.items()}

    rows = [
        {"model": "vgg16", "batch": 32, "failed": {"torch-reduce-overhead": "no memory"},
         "contestants": contestants(engine=2.0, torch_graph=5.0, torch_compile=8.0)},
        {"model": "resnet18", "batch": 32, "failed": {}, "contestants": contestants(
            engine=1.0, torch_graph=4.0, torch_reduce_overhead=2.0)},
        {"model": "resnet50", "batch": 1, "failed": {}, "contestants": contestants(
            engine=0.5, torch_graph=2.0, torch_compile=1.5, torch_reduce_overhead=0.5)},
    ]  # fmt: skip
    verb = {
        "gpu": "NVIDIA H200", "precision": "fp16", "accumulator": "fp32", "versions": {"torch": "2.11.0"}, "rows": rows
    }  # fmt: skip
    now = peers.short_peers(earlier, verb)
    assert before.keys() == now.keys()
    what = "ms, fp16, fp32 accumulation, H200; all read fp16, channels last"
    assert now["peers.short"].splitlines() == [
        f"| {what} | ResNet-50, batch 1 | ResNet-18, batch 32 | VGG-16, batch 32 |",
        "| --- | --- | --- | --- |",
        "| engine | 0.500 | 1.000 | 2.000 |",
        "| torch.compile max-autotune | 1.500 |  | 8.000 |",
        "| torch.compile reduce-overhead | 0.500 | 2.000 | failed |",
        "| eager in a CUDA graph | 2.000 | 4.000 | 5.000 |",
        "| how long max-autotune compiled | 30 s |  | 160 s |",
        "| how long reduce-overhead compiled | 10 s | 40 s | failed |",
    ]
    assert now["peers.short_mean"] == "2.00"
    faster = {"torch-reduce-overhead": {"median_ms": 1.0, "compile_seconds": 9.0, "date": "2026-11-01"}}
    alone = {**verb, "rows": [rows[1] | {"earlier": faster}]}
    assert peers.short_peers({"rows": []} | earlier, alone)["peers.short_faster"] < now["peers.short_faster"]
    without = peers.short_peers(earlier, {**verb, "rows": rows[1:2]})
    assert "max-autotune" not in without["peers.short"]
    assert now["peers.short_by"] == (
        "by `bolt-build bench --against` with PyTorch 2.11 (`cnn_peers.py --table dense_peers`)"
    )


def test_tests_are_counted_from_pytests_report(tmp_path: Path) -> None:
    report = tmp_path / "tests.xml"
    report.write_text('<testsuites><testsuite tests="9" failures="1" errors="2" skipped="2" time="3.5"/></testsuites>')
    assert ci_run.counts(report) == {"passed": 4, "failed": 3, "skipped": 2, "pytest_wall_s": 3.5}


def moving(case: str, batch: int, us: float) -> dict[str, object]:
    return {"kind": "normalisation", "case": case, "batch": batch, "us": us, "bytes": 1_000_000}


def test_steps_are_shown_at_their_largest_batch() -> None:
    rows = [moving("a", 32, 2.0), moving("a", 256, 4.0), moving("long_rows", 2, 8.0), moving("long_rows", 32, 10.0)]
    assert bandwidth.bandwidth({"peak": 1e12, "rows": [*rows, moving("a.5", 256, 1.0)]})["bandwidth"].splitlines() == [
        "| kind | step | batch | MB | us | of 1 TB/s |",
        "| --- | --- | --- | --- | --- | --- |",
        "| normalisation | a | 256 | 2.0 | 5.0 | 40% |",
        "| normalisation | long rows | 32 | 1.0 | 10.0 | 10% |",
    ]


def test_of_steps_that_move_much_those_that_stay_short_are_named() -> None:
    rows = [moving("slow", 32, 200.0), moving("fast", 32, 100.0), moving("small", 32, 9000.0)]
    rows = [{**row, "bytes": 100_000_000} for row in rows[:2]] + rows[2:]
    found = bandwidth.bandwidth_h100({"peak": 1e12, "rows": rows})
    assert found["bandwidth_h100.short"] == "slow 50.0%"
    assert (found["bandwidth_h100.large"], found["bandwidth_h100.reached"]) == ("2", "1")
