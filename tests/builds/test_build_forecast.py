"""`--dry-run`: what would run, and why, in the recipe's words; and the build that follows does just that."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from build_graphs import plan_of, shell, write_plan
from hypothesis import given, settings
from hypothesis import strategies as st

from bolt_build.build.caching.cache import Cache
from bolt_build.build.claim import directory_claim
from bolt_build.build.events import EventKind, TaskEvent
from bolt_build.build.layout import RecipeDirectory
from bolt_build.build.own_code.facts import NO_FACTS, BatchChoice, Facts, LockedKernel, LockFacts, Versioned
from bolt_build.build.running.session import SessionOptions, SessionPart, run_session
from bolt_build.build.staleness.changes import RecipeChange, texts
from bolt_build.build.staleness.staleness import StaleTask, fact_changes, forecast
from bolt_build.build.tasks import Task, Value, ValueKind
from bolt_build.errors import Mark
from bolt_build.planner.kernel_sources import UsedProblem

FACTS = Facts(
    (("policy.fusion.epilogue", "true"), ("verify.samples", "2")), "m1", (Versioned("cxx", "12.1.0", "aaaa"),),
    own=Versioned("bolt-build", "0.1.0", "bbbb"),
)  # fmt: skip


def mark(key: str) -> Mark | None:
    return Mark("recipes/toy.yaml", 14, 3) if key.startswith("policy") else None


def with_epilogue(value: str) -> Facts:
    return replace(FACTS, recipe=(("policy.fusion.epilogue", value), *FACTS.recipe[1:]))


def with_compiler(version: str, mark: str) -> Facts:
    return replace(FACTS, tools=(Versioned("cxx", version, mark),))


def emit(text: str = "one", value: str = "1") -> Task:
    return shell(
        "emit", f'cat plan.txt > /dev/null; echo {text} > "$out/src.txt"', ("src.txt",), ("plan.txt",),
        (Value(ValueKind.SOURCE, "emit", value),), reads=("policy",),
    )  # fmt: skip


def compile_(tool: str = "1") -> Task:
    values = (Value(ValueKind.TOOL, "cxx", tool),)
    return shell("compile", 'cat src.txt > "$out/obj.txt"', ("obj.txt",), ("src.txt",), values, reads=("policy",))


LINK = shell("link", 'cat obj.txt > "$out/lib.txt"', ("lib.txt",), ("obj.txt",), reads=("policy",))


class Toy:
    def __init__(self, root: Path) -> None:
        self.root, self.cache = root, Cache(root / "cache")
        self.recipe: RecipeDirectory = write_plan(root, emit(), compile_(), LINK, facts=FACTS)
        (self.host / "plan.txt").write_text("plan")

    @property
    def host(self) -> Path:
        return self.recipe.target("host").path

    def build(self, *tasks: Task, facts: Facts = FACTS) -> list[str]:
        """Build; the tasks that ran or were fetched, in order."""
        write_plan(self.root, *tasks, facts=facts)
        told: list[TaskEvent] = []
        with directory_claim(self.recipe.path, wait=True, say=print) as lock:
            options = SessionOptions(1, False, str(self.cache.directory), 1 << 30)
            run_session([SessionPart(self.recipe.path, ("host",), lock)], options, told.append)
        return [event.task for event in told if event.kind is EventKind.FINISHED]

    def ask(self, *tasks: Task, facts: Facts = FACTS, foreseen: dict[str, str] | None = None) -> list[str]:
        return [self.line(stale) for stale in self.stale(*tasks, facts=facts, foreseen=foreseen)]

    def stale(
        self, *tasks: Task, facts: Facts = FACTS, foreseen: dict[str, str] | None = None
    ) -> tuple[StaleTask, ...]:
        plan = plan_of(tasks, facts)
        return forecast(plan, self.recipe.target("host"), self.cache, foreseen or {}, mark).stale

    @staticmethod
    def line(stale: StaleTask) -> str:
        how = " (cache)" if stale.from_cache else "" if stale.certain else " (perhaps)"
        return f"{stale.task.name}{how}: {'; '.join(stale.reasons)}"


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    toy = Toy(tmp_path)
    toy.build(emit(), compile_(), LINK)
    return toy


def test_a_first_build_runs_everything(tmp_path: Path) -> None:
    assert Toy(tmp_path).ask(emit(), compile_(), LINK) == [
        "emit: not built yet",
        "compile: not built yet",
        "link: not built yet",
    ]


def test_nothing_changed(toy: Toy) -> None:
    assert toy.ask(emit(), compile_(), LINK) == []


def test_a_recipe_key(toy: Toy) -> None:
    """The command changed with the key; what it makes is not known before, so that what follows is uncertain."""
    now = with_epilogue("false")
    why = "policy.fusion.epilogue changed (recipes/toy.yaml:14): true -> false"
    tasks = (emit("two"), compile_(), LINK)
    assert toy.ask(*tasks, facts=now) == [f"emit: {why}", f"compile (perhaps): {why}", f"link (perhaps): {why}"]
    assert toy.build(*tasks, facts=now) == ["emit", "compile", "link"]


def test_a_recipe_key_whose_effect_is_foreseen_to_end_early(toy: Toy) -> None:
    now = with_epilogue("false")
    source = toy.host / "src.txt"
    from bolt_build.digest import digest_file

    assert toy.ask(emit(value="2"), compile_(), LINK, facts=now, foreseen={"src.txt": digest_file(source)}) == [
        "emit: bolt-build itself changed"
    ]
    assert toy.build(emit(value="2"), compile_(), LINK, facts=now) == ["emit"]


def test_a_file_that_planning_is_about_to_write(toy: Toy) -> None:
    assert toy.ask(emit(), compile_(), LINK, facts=with_epilogue("false"), foreseen={"plan.txt": "0" * 64})[0] == (
        "emit: policy.fusion.epilogue changed (recipes/toy.yaml:14): true -> false"
    )


def test_a_task_that_comes_to_make_another_file(toy: Toy) -> None:
    """That the file is not there yet is no reason: what changed is."""
    more = shell(
        "emit", 'cat plan.txt > /dev/null; echo one | tee "$out/src.txt" > "$out/more.txt"', ("src.txt", "more.txt"),
        ("plan.txt",), (Value(ValueKind.SOURCE, "emit", "1"),), reads=("policy",),
    )  # fmt: skip
    now = with_epilogue("false")
    why = "policy.fusion.epilogue changed (recipes/toy.yaml:14): true -> false"
    assert toy.ask(more, compile_(), LINK, facts=now)[0] == f"emit: {why}"
    assert "emit" in toy.build(more, compile_(), LINK, facts=now)


def test_another_compiler(toy: Toy) -> None:
    now = with_compiler("12.2.0", "cccc")
    why = "the C++ compiler changed 12.1.0 -> 12.2.0"
    assert toy.ask(emit(), compile_("2"), LINK, facts=now) == [f"compile: {why}", f"link (perhaps): {why}"]


def test_another_compiler_of_the_same_version(toy: Toy) -> None:
    now = with_compiler("12.1.0", "cccc")
    assert toy.ask(emit(), compile_("2"), LINK, facts=now)[0] == "compile: the C++ compiler changed (still 12.1.0)"


def test_an_output_that_is_gone(toy: Toy) -> None:
    (toy.host / "lib.txt").unlink()
    assert toy.ask(emit(), compile_(), LINK) == ["link (cache): output lib.txt is missing"]
    assert toy.build(emit(), compile_(), LINK) == ["link"]


def test_an_output_edited_by_hand_touches_nothing_behind_it(toy: Toy) -> None:
    (toy.host / "src.txt").write_text("by hand\n")
    assert toy.ask(emit(), compile_(), LINK) == ["emit (cache): output src.txt was changed by hand"]
    assert toy.build(emit(), compile_(), LINK) == ["emit"]


def test_receipts_of_an_older_form_are_none_and_what_they_were_of_comes_from_the_cache(toy: Toy) -> None:
    for path in toy.recipe.target("host").receipts.glob("*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 1, "facts": [["model", "m1"]]}))
    assert toy.ask(emit(), compile_(), LINK) == [
        f"{task} (cache): not built yet" for task in ("emit", "compile", "link")
    ]


def test_what_was_built_before_comes_from_the_cache(toy: Toy) -> None:
    toy.build(emit("two"), compile_(), LINK, facts=with_epilogue("false"))
    lines = toy.ask(emit(), compile_(), LINK)
    why = "policy.fusion.epilogue changed (recipes/toy.yaml:14): false -> true"
    assert lines == [f"{task} (cache): {why}" for task in ("emit", "compile", "link")]
    assert toy.build(emit(), compile_(), LINK) == ["emit", "compile", "link"]


def test_keys_that_a_task_does_not_read_are_no_reason() -> None:
    now = replace(FACTS, recipe=(FACTS.recipe[0], ("verify.samples", "9")))
    assert fact_changes(FACTS, now, ("policy",), mark) == ()
    assert fact_changes(FACTS, now, ("verify",), mark) == (RecipeChange("verify.samples", "2", "9", None),)


USED = (
    UsedProblem("aa", "conv", ("batch 1: conv1", "batch 1: conv3"), True),
    UsedProblem("bb", "conv", ("batch 1: conv2",), True),
)
KERNELS = (
    LockedKernel("aa", "cutlass m=64", 3.1), LockedKernel("bb", "cutlass m=64", 4.0),
    LockedKernel("cc", "cutlass m=64", 5.0),
)  # fmt: skip
LOCK = Facts(lock=LockFacts("net.lock.yaml", "NVIDIA H200", KERNELS, "01", (BatchChoice("cover", 1, "0123"),)))


def lock_changes(
    *, others: str = "01", cover: str = "0123", graphs: str = "", before: Facts = LOCK, **kernels: LockedKernel
) -> tuple[str, ...]:
    """What is said to a task that reads the lock where it now says this of these problems."""
    found = tuple(kernels.get(kernel.problem, kernel) for kernel in KERNELS)
    batches = (BatchChoice("cover", 1, cover),)
    now = Facts(lock=LockFacts("net.lock.yaml", "NVIDIA H200", found, others, batches, graphs))
    at = Mark("net.yaml", 4, 16)
    changes = fact_changes(
        before, now, ("model", "tuning.lock"), lambda key: at if key == "tuning.lock" else None, USED
    )
    return texts(changes)


def test_another_kernel_in_the_lock_is_named_by_what_it_computes() -> None:
    assert lock_changes(bb=LockedKernel("bb", "cutlass m=128", 3.9)) == (
        "tuning.lock changed (net.yaml:4): batch 1: conv2: cutlass m=64, 4.000 us -> m=128, 3.900 us",
    )


def test_of_many_changes_of_a_lock_two_kernels_of_the_engine_are_named() -> None:
    x, y, z = (LockedKernel(problem, kernel, 1.0) for problem, kernel in (("cc", "x"), ("bb", "y"), ("aa", "z")))
    (said,) = lock_changes(cc=x, bb=y, aa=z)
    assert said == (
        "tuning.lock changed (net.yaml:4): batch 1: conv1 and 1 more: cutlass m=64, 3.100 us -> z, 1.000 us; "
        "batch 1: conv2: cutlass m=64, 4.000 us -> y, 1.000 us; 1 other choice"
    )
    assert lock_changes(cc=x) == ("tuning.lock changed (net.yaml:4): 1 choice",)


def test_of_kernels_those_that_are_others_stand_before_those_measured_again() -> None:
    again, other = LockedKernel("aa", "cutlass m=64", 3.2), LockedKernel("bb", "y", 1.0)
    (said,) = lock_changes(aa=again, bb=other)
    assert said == (
        "tuning.lock changed (net.yaml:4): batch 1: conv2: cutlass m=64, 4.000 us -> y, 1.000 us; "
        "batch 1: conv1 and 1 more: cutlass m=64: 3.100 us -> 3.200 us"
    )


def test_what_a_lock_says_of_whole_batches_and_of_other_graphs_is_counted() -> None:
    assert lock_changes(cover="4567", others="02", graphs="03") == ("tuning.lock changed (net.yaml:4): 3 choices",)
    assert lock_changes() == ()


def test_a_lock_where_there_was_none() -> None:
    assert lock_changes(before=Facts(lock=LockFacts())) == (
        "tuning.lock changed (net.yaml:4): predictions -> net.lock.yaml, NVIDIA H200",
    )


def test_a_task_that_reads_no_lock_has_nothing_to_do_with_it() -> None:
    assert fact_changes(NO_FACTS, LOCK, ("verify",), mark, USED) == ()


def test_a_new_bolt_build_is_named_with_its_versions() -> None:
    now = replace(FACTS, own=Versioned("bolt-build", "0.2.0", "cccc"))
    (change,) = fact_changes(FACTS, now, ("policy",), mark)
    assert change.text == "bolt-build itself changed 0.1.0 -> 0.2.0"


def test_a_package_that_comes_goes_or_changes_is_named_with_its_versions() -> None:
    without, first, second = (
        replace(FACTS, packages=tuple(Versioned("more", *each) for each in found))
        for found in ((), (("1.0", "aa"),), (("1.0", "bb"),))
    )
    said = [
        texts(fact_changes(*pair, ("policy",), mark)) for pair in ((without, first), (first, second), (second, without))
    ]
    assert said == [
        ("package more changed absent -> 1.0",), ("package more changed (still 1.0)",),
        ("package more changed 1.0 -> absent",),
    ]  # fmt: skip


EDITS = st.lists(
    st.sampled_from(["plan.txt", "src.txt", "obj.txt", "-src.txt", "-obj.txt", "-lib.txt", "value", "tool"]), max_size=4
)


@settings(max_examples=8, deadline=None)
@given(edits=EDITS, seed=st.integers(0, 10**9))
def test_a_build_runs_what_the_forecast_said_and_certain_tasks_always(
    tmp_path: Path, edits: list[str], seed: int
) -> None:
    """After any edits: nothing runs that was not named, and everything certain that was named runs."""
    toy = Toy(tmp_path / str(seed))
    toy.build(emit(), compile_(), LINK)
    tasks = (emit(value=str(edits.count("value"))), compile_(str(1 + edits.count("tool"))), LINK)
    for edit in edits:
        if edit.startswith("-"):
            (toy.host / edit[1:]).unlink(missing_ok=True)
        elif edit.endswith(".txt"):
            (toy.host / edit).write_text(f"edited {seed}")
    stale = toy.stale(*tasks)
    ran = set(toy.build(*tasks))
    assert ran <= {item.task.name for item in stale}
    assert {item.task.name for item in stale if item.certain} <= ran
    assert toy.stale(*tasks) == ()
