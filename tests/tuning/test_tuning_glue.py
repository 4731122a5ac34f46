"""Glue: a problem's source calls what an engine would call, describes its tensors, and has a reference if it can."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from cuda_engine import for_symbols, nvcc
from families_harness import Layer, graph_with
from gpu_depthwise_chains import averaged_step, expanded
from gpu_layers import BANDWIDTH, MATMULS
from gpu_pair_layers import behind
from gpu_pairs import steps_of
from gpu_products import RESIDUAL, conv
from gpu_resample import resampled
from tuning_fakes import supervisor

from bolt_build import runtime
from bolt_build.emit.text import problem_text
from bolt_build.families import load
from bolt_build.families.base import Candidate, StepExpressions
from bolt_build.targets import HOST, target_named
from bolt_build.tuning.compile import glue
from bolt_build.tuning.trials.tuning_set import ProblemTrials, Trial

TARGET = target_named("h200")
FAMILIES = {family.name: family for family in load(TARGET)}

RESIDUAL_CONV = conv("residual", (2, 64, 13, 11), 64, (1, 1), epilogue=RESIDUAL)
STEM = conv("stem", (1, 3, 32, 32), 64, (7, 7), 2)
PRODUCT = next(layer for layer in MATMULS if layer.label == "matmul-32x1000x512-True")
POOL = replace(next(layer for layer in BANDWIDTH if layer.label == "max-pool"), precision=RESIDUAL_CONV.precision)


def trials_of(layer: Layer, family: str, formats: str, count: int = 2) -> ProblemTrials:
    """The family's problem for the layer whose first input has these formats, with its best candidates."""
    graph, node = graph_with(layer)
    steps = [a.steps[0] for a in FAMILIES[family].propose(graph, node, TARGET, layer.precision)[0]]
    # There may be another that leaves fp32.
    (step, *_) = [step for step in steps if str(step.problem.inputs[0].format) == formats]
    found = FAMILIES[family].candidates(step.problem, TARGET)[0][:count]
    return ProblemTrials(step.problem, (f"batch 2: /{layer.label}",), tuple(Trial(c, 1e-5) for c in found), ())


def trials_of_pair(layer: Layer, format: str = "f16/channels_last", count: int = 2) -> ProblemTrials:
    """The problem of both products in one kernel, with its first candidates."""
    (step, *_) = [step for step in steps_of(layer) if str(step.problem.inputs[0].format) == format]
    found = FAMILIES["cutlass"].candidates(step.problem, TARGET)[0][:count]
    return ProblemTrials(step.problem, (f"batch 2: /{layer.label}",), tuple(Trial(c, 1e-5) for c in found), ())


def source(trials: ProblemTrials) -> str:
    return glue.source_of([trials], FAMILIES, TARGET).text


def operands(text: str, table: str) -> list[str]:
    """The rows of a table of operands, without their ranges."""
    (rows,) = re.findall(rf"bolt_tuning_operand {table}\[\] = {{\n(.*?)\n}};", text, re.S)
    return [re.sub(r", -?[\d.e-]+, [\d.e-]+},$", "", row.strip()) for row in rows.splitlines()]


def test_tensors_are_described() -> None:
    text = source(trials_of(RESIDUAL_CONV, "cutlass", "f16/channels_last"))
    assert operands(text, "inputs") == [
        '{"f16/channels_last [2, 64, 13, 11]", BOLT_TUNING_F16, 4, input_shape_0, 36608u, 0, 0, 0',
        '{"f16/row [64, 64, 1, 1]", BOLT_TUNING_F16, 4, input_shape_1, 8192u, 1, 0, 0',
        '{"f32/row [64]", BOLT_TUNING_F32, 1, input_shape_2, 256u, 1, 0, 0',
        '{"f16/channels_last [2, 64, 13, 11]", BOLT_TUNING_F16, 4, input_shape_3, 36608u, 0, 1, 0',
    ]
    assert operands(text, "outputs") == [
        '{"f16/channels_last [2, 64, 13, 11]", BOLT_TUNING_F16, 4, output_shape_0, 36608u, 0, 0, 0'
    ]
    assert "const int64_t input_shape_0[] = {2, 64, 13, 11};" in text


def test_weights_are_scaled_so_that_sums_stay_near_one() -> None:
    text = source(trials_of(PRODUCT, "cutlass", "f16/row"))
    ranges = [float(high) for high in re.findall(r", ([\d.e-]+)},\n", text)[:3]]
    depth = 512
    assert ranges[0] == pytest.approx(3**0.5)
    # The bias adds half an operation to each of the products.
    assert ranges[1] == pytest.approx((3 / depth) ** 0.5, rel=1e-3)
    assert ranges[2] == 1.0


ENLARGED = resampled("enlarged", (2, 16, 9, 7), (2, 18, 2), (3, 29, 4))


def test_tables_of_indices_ascend_from_edge_to_edge() -> None:
    """Half of the neighbours of the first result and of the last one are outside. Weights are random."""
    text = source(trials_of(ENLARGED, "portable", "f16/channels_last"))
    (rows,) = re.findall(r"bolt_tuning_operand inputs\[\] = {\n(.*?)\n};", text, re.S)
    _, *tables = (re.findall(r"0, ([01], [-\d.]+, [-\d.]+)},$", row)[0] for row in rows.splitlines())
    assert tables == ["1, -1.0, 8.0", "0, -1.0, 1.0", "1, -2.0, 5.0", "0, -1.0, 1.0"]


@pytest.mark.parametrize("layer", [RESIDUAL_CONV, PRODUCT], ids=lambda layer: layer.label)
def test_a_candidate_is_called_as_an_engine_calls_it(layer: Layer) -> None:
    formats = "f16/row" if layer is PRODUCT else "f16/channels_last"
    trials = trials_of(layer, "cutlass", formats)
    text = source(trials)
    inputs = ["r.input(0)", "r.weight(1)", "r.weight(2)", "r.input(3)"][: len(trials.problem.inputs)]
    prepare = [None, "p.weight(1)", "p.weight(2)", None][: len(inputs)]
    at = StepExpressions(tuple(inputs), ("r.output(0)",), tuple(prepare))
    for index, trial in enumerate(trials.trials):
        code = FAMILIES["cutlass"].emit(trials.problem, trial.candidate, TARGET, at)
        assert f"using Kernel_{index} = {code.member_type};" in text
        assert f"return new Kernel_{index}(p, {code.member_arguments});" in text
        assert code.call in text
        assert f'{{"{trial.candidate.digest}", "{trial.candidate}", -1, 1e-05, &functions_{index}}}' in text


def test_variants_name_the_trial_that_they_vary() -> None:
    trials = trials_of(conv("3x3", (32, 256, 14, 14), 256, (3, 3)), "cutlass", "f16/channels_last", 8)
    ask = FAMILIES["cutlass"].variants
    of, variant = next(
        (of, variant)
        for of, trial in enumerate(trials.trials)
        for variant in ask(trials.problem, trial.candidate, TARGET)
    )
    text = source(replace(trials, trials=(*trials.trials, Trial(variant, 2e-5, of))))
    assert f'{{"{variant.digest}", "{variant}", {of}, 2e-05, &functions_8}}' in text


def test_the_portable_family_computes_the_reference() -> None:
    text = source(trials_of(RESIDUAL_CONV, "cutlass", "f16/channels_last"))
    assert '#include "bolt_portable/conv.h"' in text
    assert re.search(r"void run_reference\(const void\*, const bolt::Run& r\) { bolt::portable::conv<", text)
    assert "&reference, nullptr," in text


def test_a_reference_in_another_layout_converts_its_input_first() -> None:
    text = source(trials_of(STEM, "cutlass", "f32/row"))
    assert "std::size_t scratch_reference(const void*) { return 6144; }" in text
    (body,) = re.findall(r"void run_reference.*?\n}", text, re.S)
    convert, compute = [line for line in body.splitlines() if "bolt::portable::" in line]
    assert convert.endswith("r.input(0), r.scratch_base + 0);")
    assert "bolt::portable::conv<bolt::portable::f16, bolt::portable::f16, bolt::portable::f16>" in compute
    assert "r.scratch_base + 0, r.weight(1), r.output(0)" in compute


PAIR = behind(conv("pair", (2, 64, 13, 11), 32, (3, 3)), 128, RESIDUAL)


def test_of_three_operators_in_one_kernel_the_reference_stores_what_the_kernel_stores() -> None:
    """A product leaves more pixels than the convolution behind it, which alone is an output beside its means."""
    layer, step = averaged_step(expanded("three", (2, 16, 17, 15), 96, stride=2))
    found = FAMILIES["grouped"].candidates(step.problem, TARGET)[0][:1]
    text = source(ProblemTrials(step.problem, (layer.label,), tuple(Trial(c, 1e-5) for c in found), ()))
    nbytes = -(-2 * 96 * 17 * 15 * 2 // 256) * 256
    assert f"std::size_t scratch_reference(const void*) {{ return {nbytes}; }}" in text
    (body,) = re.findall(r"void run_reference.*?\n}", text, re.S)
    first, second, means = [line for line in body.splitlines() if "bolt::portable::" in line]
    assert "r.input(0), r.weight(1), r.scratch_base + 0, " in first
    assert "r.scratch_base + 0, r.weight(3), r.output(0), " in second
    assert "r.output(0), r.output(1), " in means


def test_two_products_in_one_kernel_are_compared_with_two_plain_kernels() -> None:
    """What lies between them is stored in half precision."""
    trials = trials_of_pair(PAIR)
    text = source(trials)
    nbytes = -(-2 * 32 * 13 * 11 * 2 // 256) * 256
    assert f"std::size_t scratch_reference(const void*) {{ return {nbytes}; }}" in text
    (body,) = re.findall(r"void run_reference.*?\n}", text, re.S)
    first, second = [line for line in body.splitlines() if "bolt::portable::" in line]
    types = "bolt::portable::conv<bolt::portable::f16, bolt::portable::f16, bolt::portable::f16>"
    assert types in first
    assert types in second
    assert "r.input(0), r.weight(1), r.scratch_base + 0, " in first
    assert "r.scratch_base + 0, r.weight(3), r.output(0), " in second
    assert "same<bolt::portable::f16>(r.input(5))" in second
    assert "PairConv<" in text


def test_a_pair_s_reference_converts_its_input_too() -> None:
    text = source(trials_of_pair(behind(conv("pair-stem", (1, 3, 32, 32), 64, (7, 7), 2), 64), "f32/row"))
    assert f"{{ return {6144 + 64 * 16 * 16 * 2}; }}" in text
    (body,) = re.findall(r"void run_reference.*?\n}", text, re.S)
    calls = [line for line in body.splitlines() if "bolt::portable::" in line]
    assert len(calls) == 3
    assert "r.input(0), r.scratch_base + 32768);" in calls[0]
    assert "r.scratch_base + 32768, r.weight(1), r.scratch_base + 0, " in calls[1]


def test_both_weights_of_a_pair_are_scaled() -> None:
    text = source(trials_of_pair(PAIR))
    ranges = [float(high) for high in re.findall(r", ([\d.e-]+)},\n", text)[:6]]
    depths = 64 * 9, 32
    assert ranges[0] == ranges[5] == pytest.approx(3**0.5)
    assert ranges[1] == pytest.approx((3 / depths[0]) ** 0.5, rel=1e-2)
    assert ranges[3] == pytest.approx((3 / depths[1]) ** 0.5, rel=2e-2)
    assert ranges[2] == ranges[4] == 1.0
    # Sums are as deep as the deeper of the two.
    assert re.search(r"1, outputs, 576\.\d+, &reference", text)


def test_the_portable_family_alone_has_no_reference() -> None:
    text = source(trials_of(POOL, "portable", "f16/channels_last"))
    assert "functions_reference" not in text
    assert 'nullptr, "only the portable family computes this: there is nothing to compare it with",' in text


def test_a_target_without_portable_kernels_has_no_reference() -> None:
    trials = trials_of(RESIDUAL_CONV, "cutlass", "f16/channels_last")
    text = glue.source_of([trials], {"cutlass": FAMILIES["cutlass"]}, TARGET).text
    assert 'nullptr, "the target has no portable kernels to compare with",' in text


def test_a_family_that_is_not_there() -> None:
    trials = trials_of(RESIDUAL_CONV, "cutlass", "f16/channels_last")
    with pytest.raises(KeyError, match="'cutlass'"):
        glue.source_of([trials], {}, TARGET)


def test_equal_problems_have_equal_sources() -> None:
    first = glue.source_of([trials_of(PRODUCT, "cutlass", "f16/row")], FAMILIES, TARGET)
    assert first == glue.source_of([trials_of(PRODUCT, "cutlass", "f16/row")], FAMILIES, TARGET)
    assert first.name == f"t_{trials_of(PRODUCT, 'cutlass', 'f16/row').problem.digest[:16]}.cu"
    assert first.label == "calls of 1 problem, cutlass"


def made(parameter: int, setting: int | None = None) -> Candidate:
    settings = () if setting is None else (("slices", setting),)
    return Candidate("cutlass", (("m", parameter),), settings)


def test_leaving_out_what_did_not_compile() -> None:
    problem = trials_of(PRODUCT, "cutlass", "f16/row").problem
    trials = (
        Trial(made(1), 1.0), Trial(made(2), 2.0), Trial(made(3), 3.0),
        Trial(made(1, 2), 1.0, 0), Trial(made(2, 2), 2.0, 1), Trial(made(3, 2), 3.0, 2), Trial(made(3, 4), 3.0, 2),
    )  # fmt: skip
    left = glue.without(ProblemTrials(problem, (), trials, ()), {made(2).digest, made(3, 4).digest})
    assert left.trials == (
        Trial(made(1), 1.0),
        Trial(made(3), 3.0),
        Trial(made(1, 2), 1.0, 0),
        Trial(made(3, 2), 3.0, 1),
    )
    assert glue.without(left, set()) == left


def test_a_table_is_of_a_gpu() -> None:
    with pytest.raises(ValueError, match="target 'host' is no GPU"):
        glue.table_source((), "bundle", HOST)


def test_the_drivers_sources_are_found() -> None:
    names = [path.name for path in glue.driver_sources()]
    assert names == sorted(names)
    assert {"main.cpp", "supervisor.cpp", "worker.cpp"} <= set(names)
    units = glue.driver_units()
    assert [path.name for path in units] == ["device_work.cu", "choosing.cpp", "measuring.cpp", "supervising.cpp"]
    lines = [line for path in units[1:] for line in path.read_text().splitlines()]
    included = [line.split('"')[1] for line in lines if line.startswith("#include")]
    assert sorted(included) == [f"../{name}" for name in names]
    assert (glue.include_dir() / "bolt_tuning" / "candidates.h").is_file()


@pytest.mark.large
def test_a_library_of_candidates_can_be_listed(tmp_path: Path) -> None:
    nvcc()
    problems = (
        trials_of(RESIDUAL_CONV, "cutlass", "f16/channels_last"),
        trials_of(STEM, "cutlass", "f32/row", 1),
        trials_of(PRODUCT, "cutlass", "f16/row", 1),
        trials_of(POOL, "portable", "f16/channels_last"),
        trials_of_pair(PAIR, count=1),
    )
    sources = glue.grouped_sources(problems, FAMILIES, TARGET)
    assert sorted(name for source in sources for name in source.problems) == sorted(t.problem.digest for t in problems)
    assert len(sources) == 2  # those of one family are together
    library = _linked([*sources, glue.table_source(problems, "the bundle", TARGET)], tmp_path)
    # What is missing is what the kernels' own units define, and nothing else.
    symbols = _run(["nm", "-DC", "--undefined-only", library]).splitlines()
    ours = {re.sub(r"<.*", "", line.split(maxsplit=1)[1]) for line in symbols if "bolt::" in line}
    kinds = ("conv", "gemm", "stem")
    assert ours == {f"void bolt::cutlass_kernels::launch_{kind}" for kind in kinds}
    listed = _run([supervisor(), "--candidates", library, "--list"])
    assert listed.splitlines()[0] == "bundle the bundle for h200 (sm_90 alone): 5 problems, 7 candidates"
    for trials in problems:
        assert f"{trials.problem.digest[:16]}  {problem_text(trials.problem)[0]}" in listed
        for trial in trials.trials:
            assert f"10.00 us predicted  {trial.candidate}\n" in listed


def _linked(sources: Sequence[glue.GlueSource], folder: Path) -> Path:
    tool = nvcc()
    includes = [glue.include_dir(), runtime.include_dir(), *(family.include_dir for family in FAMILIES.values())]
    flags = [f"-I{path}" for path in (*includes, *tool.include_dirs)]

    def compiled(source: glue.GlueSource) -> Path:
        path = folder / source.name
        path.write_text(source.text)
        of_cuda = path.suffix == ".cu"
        compiler = [tool.path, *for_symbols(TARGET), "-Xcompiler", "-fPIC"] if of_cuda else ["g++", "-fPIC"]
        _run([*compiler, "-std=c++17", *flags, "-c", path, "-o", path.with_suffix(".o")])
        return path.with_suffix(".o")

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sources))
    folders = [f"-L{path}" for path in tool.library_dirs]
    _run(["g++", "-shared", *objects, *folders, *TARGET.link_flags, "-o", folder / "candidates.so"])
    return folder / "candidates.so"


def _run(argv: Sequence[object]) -> str:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
