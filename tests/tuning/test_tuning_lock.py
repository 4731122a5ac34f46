"""The lock as text: the whole file, what is written anew and what is left alone, and what is said of a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from engine_evidence import GRAPH, LINEUP, LINEUP_OF_TWO, TABLE, cover_of, played, swapped
from engine_evidence import OTHER as OTHER_PLAN
from hypothesis import given, settings
from hypothesis import strategies as st
from tune_sets import FIRST, LARGE, SECOND, SMALL, SPLIT, tuning_set
from tuning_evidence import H200, ON_A100, TOOLS, timed

from bolt_build.errors import BoltError
from bolt_build.families.base import Candidate
from bolt_build.lockfile.fingerprint import Device, Fingerprint
from bolt_build.lockfile.reading import Lock, LockedTarget, LockEntry, load_lock, lock_text, updated_lock_text
from bolt_build.planner.selection import ChosenAlternative, ChosenCover, Selection, Winner
from bolt_build.report.diagnostics import render
from bolt_build.tuning.choice.engines import engine_evidence
from bolt_build.tuning.choice.lock_part import lock_from
from bolt_build.tuning.choice.winners import evidence, select

FOUND = tuning_set(FIRST, SECOND)
RECORDS = timed(FOUND, {SMALL: 4.0, LARGE: 2.53125, SPLIT: 2.5})
COVER = ChosenCover(
    "ab" * 32, 1,
    (
        ChosenAlternative(("/conv64",), "cutlass", (FIRST.problem.digest,)),
        ChosenAlternative(("12", "no"), "cutlass", (SECOND.problem.digest,)),
    ),
)  # fmt: skip
PART = lock_from(FOUND, RECORDS, [COVER])
OTHER = LockedTarget(
    "h200", (("0123456789ab", Fingerprint(H200, TOOLS)),),
    (LockEntry("5a" * 32, "matmul", LARGE, 7.0, None, None, 6.0, 1, "0123456789ab"),), (),
)  # fmt: skip


Golden = Callable[[str, str], None]


def test_a_whole_lock(golden: Golden) -> None:
    """`tests/data/tuning/lock.yaml` is what a reader of a diff sees."""
    golden("tuning/lock.yaml", lock_text(Lock((OTHER, PART))))


def test_the_records_alone_give_the_same_bytes() -> None:
    again = lock_from(tuning_set(SECOND, FIRST), RECORDS[::-1], [COVER])
    assert lock_text(Lock((again,))) == lock_text(Lock((PART,)))


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "net.lock.yaml"
    path.write_text(lock_text(Lock((OTHER, PART))))
    assert load_lock(path) == Lock((PART, OTHER))
    assert load_lock(path).target("h200") == OTHER
    assert load_lock(path).target("l4") is None


def test_the_selection_of_a_lock_is_that_of_the_records_to_the_nanosecond() -> None:
    found, chosen = PART.selection("net.lock.yaml"), select(FOUND, RECORDS)
    assert found.source == "net.lock.yaml"
    assert found.covers == (COVER,)
    assert [(each.problem, each.candidate) for each in found.winners] == [
        (each.problem, each.candidate) for each in chosen.winners
    ]
    assert [each.seconds for each in found.winners] == pytest.approx(
        [each.seconds for each in chosen.winners], abs=1e-9
    )


def test_an_entry_says_what_it_was_measured_with() -> None:
    assert {PART.fingerprint(entry) for entry in PART.entries} == {ON_A100}


def test_a_target_that_is_tuned_again_leaves_the_others_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "net.lock.yaml"
    head = "# Mine.\n" + lock_text(Lock((PART, OTHER))).replace("  h200:\n", "  # The cluster.\n  h200:\n")
    head = head.replace("    covers:\n      - batch: 1\n", "    covers:\n      # One image.\n      - batch: 1\n")
    path.write_text(head)
    again = updated_lock_text(path, replace(OTHER, entries=()))
    start = head.index("  h200:\n")
    assert again[:start] == head[:start]
    assert again[start:] == lock_text(Lock((replace(OTHER, entries=()),))).partition("targets:\n")[2]
    first = updated_lock_text(path, replace(PART, covers=()))
    assert first.endswith(head[head.index("  # The cluster.\n") :])
    assert first.startswith("# Mine.\n")
    assert "# One image." not in first
    assert updated_lock_text(path, OTHER) == head


@pytest.mark.parametrize("name", ["a10", "b200", "l4"])
def test_a_new_target_stands_in_its_place_and_nothing_else_moves(tmp_path: Path, name: str) -> None:
    path = tmp_path / "net.lock.yaml"
    before = lock_text(Lock((PART, OTHER))).replace("  h200:\n", "  # The cluster.\n  h200:\n") + "\n# The end.\n"
    path.write_text(before)
    after = updated_lock_text(path, replace(OTHER, target=name))
    added = lock_text(Lock((replace(OTHER, target=name),))).partition("targets:\n")[2]
    assert added in after
    assert after.replace(added, "") == before
    path.write_text(after)
    assert [each.target for each in load_lock(path).targets] == sorted(["a100", "h200", name])


def test_a_file_without_its_last_line_break_gets_one(tmp_path: Path) -> None:
    path = tmp_path / "net.lock.yaml"
    path.write_text(lock_text(Lock((PART,))).rstrip("\n"))
    assert updated_lock_text(path, OTHER) == lock_text(Lock((PART, OTHER)))


def test_a_new_file_and_one_of_another_style_are_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "net.lock.yaml"
    assert updated_lock_text(path, PART) == lock_text(Lock((PART,)))
    for text in ("lock: 1\ntargets: {}\n", "{lock: 1, targets: {}}\n", lock_text(Lock(()))):
        path.write_text(text)
        assert updated_lock_text(path, PART) == lock_text(Lock((PART,)))


def complaint(folder: Path, text: str) -> str:
    path = folder / "net.lock.yaml"
    path.write_text(text)
    with pytest.raises(BoltError) as raised:
        load_lock(path)
    return render(raised.value.diagnostics, color=False).replace(f"{folder}/", "")


def test_everything_that_is_wrong_at_once_with_its_place(tmp_path: Path, golden: Golden) -> None:
    text = lock_text(Lock((OTHER,)))
    for old, new in (
        ("sms: 132", "sms: many"), ("5a" * 32, "55"), ("median: 7.000", "median: -1"), ("measured: 1", "measurd: 1"),
    ):  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    golden("tuning/wrong_lock.txt", complaint(tmp_path, text))


def test_an_entry_of_a_fingerprint_that_is_not_there(tmp_path: Path) -> None:
    text = lock_text(Lock((OTHER,))).replace("fingerprint: 0123456789ab", "fingerprint: cafe")
    assert complaint(tmp_path, text) == (
        "net.lock.yaml:16:22: error[unknown-fingerprint]: 'targets.h200.fingerprints' has no 'cafe'\n"
        "  16 |         fingerprint: cafe\n"
        "     |                      ^^^^\n"
    )


def test_a_newer_lock(tmp_path: Path) -> None:
    assert complaint(tmp_path, "lock: 4\nsurprise: yes\n") == (
        "net.lock.yaml:1:7: error[newer-version]: lock format 4 is newer than this bolt-build, which reads format 3\n"
        "  1 | lock: 4\n"
        "    |       ^ update the checkout that bolt-build was installed from, and install it again\n"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "1:1: error[empty-lock]: the lock is empty"),
        ("- 1\n", "1:1: error[wrong-type]: a lock must be a mapping, found a list"),
        ("lock: 1\n", "1:1: error[missing-key]: a lock needs the key 'targets'"),
        ("lock: 1\n---\nlock: 1\n", "2:1: error[yaml-syntax]: a second document begins here"),
    ],
    ids=["empty", "list", "half", "two"],
)
def test_a_file_that_is_no_lock(tmp_path: Path, text: str, words: str) -> None:
    assert complaint(tmp_path, text).splitlines()[0] == f"net.lock.yaml:{words}"


def test_a_lock_of_a_merge_that_was_not_finished(tmp_path: Path) -> None:
    assert complaint(tmp_path, "lock: 3\n<<<<<<< HEAD\nx: 1\n=======\nx: 2\n>>>>>>> tune\ntargets: {}\n") == (
        "net.lock.yaml:2:1: error[merge-conflict]: a merge was not finished here\n"
        "  2 | <<<<<<< HEAD\n"
        "    | ^ take one side whole (git checkout --ours or --theirs), and tune again for what it lacks\n"
    )


def test_a_lock_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BoltError) as raised:
        load_lock(tmp_path / "gone.lock.yaml")
    assert [d.message for d in raised.value.diagnostics] == ["no such lock"]


_WORDS = st.sampled_from(
    ["no", "~", "1e3", "0o7", "12:30", "true", "570", "a b", "#x", "- a", "'", '"', "\\", "é", "\x85", "=", ".", "a: b"]
)
_TEXT = _WORDS | st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
_DIGESTS = st.text("0123456789abcdef", min_size=64, max_size=64)
_TIMES = st.integers(0, 10**9).map(lambda nanoseconds: nanoseconds / 1000)
_VALUES = st.lists(st.tuples(_TEXT, st.integers(-5, 5) | _TEXT), max_size=3, unique_by=lambda pair: pair[0])
_CANDIDATES = st.builds(Candidate, _TEXT, _VALUES.map(tuple), _VALUES.map(tuple))
_COVERS = st.builds(
    ChosenCover, _DIGESTS, st.integers(1, 128),
    st.lists(
        st.builds(
            ChosenAlternative, st.lists(_TEXT, min_size=1, max_size=2).map(tuple), _TEXT,
            st.lists(_DIGESTS, max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
)  # fmt: skip


@st.composite
def parts(draw: st.DrawFn) -> LockedTarget:
    device = draw(st.builds(Device, _TEXT, st.integers(0, 200), st.integers(0, 2**40), st.integers(0, 900), _TEXT))
    fingerprints = ((draw(_TEXT), Fingerprint(device, TOOLS)),)
    entries = []
    for problem in sorted(draw(st.sets(_DIGESTS, max_size=2))):
        other = draw(st.none() | st.tuples(_CANDIDATES, _TIMES))
        kernel, time = other or (None, None)
        entry = LockEntry(
            problem, draw(_TEXT), draw(_CANDIDATES), draw(_TIMES), kernel, time, draw(_TIMES), draw(st.integers(1, 99)),
            fingerprints[0][0],
        )  # fmt: skip
        entries.append(entry)
    covers = sorted(draw(st.lists(_COVERS, max_size=2)), key=lambda cover: (cover.batch, cover.graph))
    return LockedTarget(draw(_TEXT), fingerprints, tuple(entries), tuple(covers))


@settings(max_examples=60, deadline=None)
@given(first=parts(), second=parts(), third=parts())
def test_any_lock_is_read_as_it_was_written_and_a_part_changes_no_other(
    tmp_path_factory: pytest.TempPathFactory, first: LockedTarget, second: LockedTarget, third: LockedTarget
) -> None:
    path = tmp_path_factory.mktemp("lock") / "net.lock.yaml"
    by_name = {each.target: each for each in (first, second)}
    path.write_text(lock_text(Lock(tuple(by_name.values()))), encoding="utf-8")
    assert {each.target: each for each in load_lock(path).targets} == by_name
    by_name[third.target] = third
    path.write_text(updated_lock_text(path, third), encoding="utf-8")
    assert {each.target: each for each in load_lock(path).targets} == by_name
    assert path.read_text(encoding="utf-8") == lock_text(Lock(tuple(by_name.values())))


def test_readers_of_yaml_1_1_see_the_same_strings(tmp_path: Path) -> None:
    data = yaml.safe_load(lock_text(Lock((PART,))))
    assert data["targets"]["a100"]["covers"][0]["alternatives"][1]["nodes"] == ["12", "no"]


def test_winners_are_in_the_order_of_their_problems() -> None:
    found: Selection = replace(PART, entries=PART.entries[::-1]).selection("x")
    assert list(found.winners) == sorted(found.winners, key=lambda each: each.problem)
    assert found.winners[0] == Winner(found.winners[0].problem, LARGE, pytest.approx(2.531e-6))


ONE, TWO = FIRST.problem.digest, SECOND.problem.digest
WHOLE = played({ONE: SPLIT, TWO: LARGE}, {ONE: SMALL}, before=100.0, after=98.76543, tried=[swapped(ONE, SMALL)])
ENGINES = engine_evidence([LINEUP], evidence(FOUND, RECORDS), RECORDS, [(ON_A100, WHOLE)])
PLAYED = lock_from(FOUND, RECORDS, [COVER], ENGINES)


def test_a_lock_with_a_whole_engine(golden: Golden) -> None:
    """`tests/data/tuning/lock_engines.yaml` is what a reader of a diff sees."""
    golden("tuning/lock_engines.yaml", lock_text(Lock((OTHER, PLAYED))))


def test_a_whole_engine_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "net.lock.yaml"
    path.write_text(lock_text(Lock((PLAYED,))))
    assert load_lock(path) == Lock((PLAYED,))
    (engine,) = PLAYED.engines
    assert (engine.before, engine.after, engine.gain, engine.tried) == (100.0, 98.765, 0.01235, 1)
    (choice,) = PLAYED.selection("net.lock.yaml").engines
    assert (choice.graph, choice.batch) == (GRAPH, 1)
    assert [(each.problem, each.candidate) for each in choice.swaps] == [(ONE, SMALL)]
    assert 1e6 * choice.after == pytest.approx(98.765)


def test_an_engine_without_swaps_says_so(tmp_path: Path) -> None:
    none = played({ONE: SPLIT, TWO: LARGE}, {}, before=100.0, after=100.2)
    part = lock_from(
        FOUND, RECORDS, [COVER], engine_evidence([LINEUP], evidence(FOUND, RECORDS), RECORDS, [(ON_A100, none)])
    )
    text = lock_text(Lock((part,)))
    assert "        after: 100.000\n        gain: 0.00000\n        tried: 0\n" in text
    assert text.endswith("        swaps: {}\n")
    path = tmp_path / "net.lock.yaml"
    path.write_text(text)
    assert load_lock(path) == Lock((part,))


@pytest.mark.parametrize(("version", "part"), [(1, PART), (2, PLAYED)])
def test_candidates_of_earlier_locks_do_not_state_all(tmp_path: Path, version: int, part: LockedTarget) -> None:
    """What stands beside them keeps its bytes, so the file keeps its version until nothing of it is left."""
    path = tmp_path / "net.lock.yaml"
    path.write_text(lock_text(Lock((part, OTHER))).replace("lock: 3\n", f"# Mine.\nlock: {version}\n"))
    earlier = load_lock(path)
    assert earlier == Lock((replace(part, stated=False), replace(OTHER, stated=False)))
    assert (Lock((part, OTHER)).version, earlier.version) == (3, version)
    assert not earlier.targets[0].selection("net.lock.yaml").stated
    path.write_text(updated_lock_text(path, OTHER))
    assert f"lock: {version}\n" in path.read_text()
    path.write_text(updated_lock_text(path, part).replace("# Mine.\n", ""))
    assert load_lock(path).version == version
    path.write_text(lock_text(Lock((replace(part, stated=False),))))
    path.write_text(updated_lock_text(path, part))
    assert load_lock(path) == Lock((part,))


def test_an_engine_names_a_fingerprint_that_is_there(tmp_path: Path) -> None:
    text = lock_text(Lock((PLAYED,)))
    head, _, tail = text.rpartition(PLAYED.engines[0].fingerprint)
    assert (
        complaint(tmp_path, head + "cafe" + tail)
        .splitlines()[0]
        .endswith("error[unknown-fingerprint]: 'targets.a100.fingerprints' has no 'cafe'")
    )


def test_the_plan_of_a_whole_engine_is_the_cover_of_the_lock(tmp_path: Path) -> None:
    record = played({ONE: SPLIT, TWO: LARGE}, {}, plan=OTHER_PLAN)
    found = engine_evidence([LINEUP_OF_TWO], evidence(FOUND, RECORDS), RECORDS, [(ON_A100, record)])
    part = lock_from(FOUND, RECORDS, [cover_of(TABLE)], found)
    assert part.covers == (cover_of(OTHER_PLAN),)
    (engine,) = part.engines
    assert (engine.table, engine.in_place_of, engine.swaps) == (OTHER_PLAN.digest, TABLE.digest, ())
    path = tmp_path / "net.lock.yaml"
    path.write_text(lock_text(Lock((part,))))
    assert load_lock(path) == Lock((part,))


def test_plans_for_several_extents_are_told_apart(tmp_path: Path) -> None:
    """A graph's digest tells already; the extents are there for people."""
    covers = [replace(COVER, graph=letter * 64, dims=(("sequence", n),)) for letter, n in (("b", 64), ("a", 128))]
    part = lock_from(FOUND, RECORDS, covers)
    text = lock_text(Lock((part,)))
    assert [line.strip() for line in text.splitlines() if "batch:" in line or "dims:" in line] == [
        "- batch: 1", "dims: {sequence: 64}", "- batch: 1", "dims: {sequence: 128}",
    ]  # fmt: skip
    (tmp_path / "net.lock").write_text(text)
    assert load_lock(tmp_path / "net.lock") == Lock((part,))
