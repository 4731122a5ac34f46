#!PYTHON -IS
"""Stands for the driver's worker: what a trial does is said by the file beside it, `acts.json`.

    {"devices": [[index, uuid, capability]...],
     "acts": {"PROBLEM": {"prepare": act, "prepare again": act, "TRIAL": act}},
     "engines": {"ENGINE": {"prepare": act, "PLACE.TRIAL": act, "plan.PLAN": act}}}

An act is microseconds, or one of the words below. A whole engine takes the sum of what the trials at its places take
(100 where nothing is said) and what its plan takes more; a word is done where its trial or plan is what two choices
differ in. Every start and every answer leaves a line in `log.txt`.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
ACTS = json.loads((HERE / "acts.json").read_text())


def log(text):
    with (HERE / "log.txt").open("a") as file:
        file.write(text + "\n")


def say(*fields):
    os.write(1, ("\t".join(map(str, fields)) + "\n").encode())


def result(trial, status="ok", flow="go", time=0.0, error="0.25", message=""):
    say("result", trial, status, flow, time, time, time, 0.001, 8, 16, error, message)


def sleep_forever():
    child = subprocess.Popen([sys.executable, "-IS", "-c", "import time; time.sleep(1000)"])
    (HERE / "sleepers.txt").open("a").write(f"{os.getpid()} {child.pid}\n")
    time.sleep(1000)


def act(what, trial):
    """Does what `acts.json` says; trial is None while the problem is prepared."""
    if isinstance(what, (int, float)):
        result(trial, time=float(what))
    elif what == "segfault":
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    elif what == "hang":
        sleep_forever()
    elif what == "exit":
        os._exit(9)
    elif what == "garbage":
        say("Hello from a kernel")
    elif what == "endless":
        os.write(1, b"x" * (1 << 17))
        sleep_forever()
    elif what == "other-trial":
        result(trial + 1, time=1.0)
    elif what == "lost":
        result(trial, "crashed", "end", message="the kernel: an illegal memory access was encountered")
        os._exit(0)
    elif what == "wrong":
        result(trial, "wrong", error="7.5", message="element 3 is 1, the reference has 2")
    elif what == "no-memory":
        say("failed", "out-of-memory", "no memory is left")
        os._exit(0)
    elif what == "broken":
        say("failed", "crashed", "the reference: an illegal memory access was encountered")
        os._exit(0)
    elif what == "slow":
        time.sleep(0.4)
        result(trial, time=10.0)


def play(options):
    engine = options["--engine"]
    acts = ACTS["engines"].get(engine, {})
    gpu = os.environ["CUDA_VISIBLE_DEVICES"]
    assert gpu == options["--gpu"]
    log(f"play {engine} on {gpu}{waiting()}")
    if "prepare" in acts:
        act(acts["prepare"], None)
    say("ready", "")
    for line in sys.stdin:
        word, first, second = line.split()
        assert word == "compare"
        log(f"compare {engine} {first} {second}")
        time.sleep(acts.get("pause", 0.0))
        plans, choices = zip(*(choice.split(":") for choice in (first, second)), strict=True)
        choices = [list(map(int, choice.split(","))) for choice in choices]
        places = [place for place, (a, b) in enumerate(zip(*choices, strict=True)) if a != b]
        differs = [f"{place}.{choices[1][place]}" for place in places]
        for key in [*differs, *([f"plan.{plans[1]}"] if plans[0] != plans[1] else [])]:
            what = acts.get(key)
            if isinstance(what, str):
                compared(what)
                break
        else:
            noise = acts.get("noise", 0.001)
            a, b = (
                sum(time_of(acts, place, trial) for place, trial in enumerate(choice)) + acts.get(f"plan.{plan}", 0.0)
                for plan, choice in zip(plans, choices, strict=True)
            )
            if len(places) > 1 and "together" in acts:
                b = acts["together"]
            gain = (a - b) / a + acts.get("offset", 0.0)
            times = [a, a, a, 0.001, 12, 1, b, b, b, 0.001, 12, 1]
            say("compared", "ok", "go", *times, gain, gain - noise, gain + noise, 12, "")


def waiting():
    return ", without overlap" if sys.argv[-1] == "--no-overlap" else ""


def time_of(acts, place, trial):
    what = acts.get(f"{place}.{trial}", 100.0 if trial >= 0 else 0.0)
    return 100.0 if isinstance(what, str) else what


def compared(what):
    if what in ("refused", "lost"):
        status, flow = ("refused", "go") if what == "refused" else ("crashed", "end")
        say("compared", status, flow, *[0] * 12, 0, 0, 0, 0, f"conv: {what}")
        if what == "lost":
            os._exit(0)
    else:
        act(what, None)


def devices():
    for index, uuid, capability in ACTS["devices"]:
        say("device", index, uuid, "NVIDIA Test", 132, 1 << 37, 700, "570.1", capability)
    if ACTS.get("device_error"):
        say("error", ACTS["device_error"])
    os._exit(0)


def main():
    if sys.argv[1] == "--devices":
        devices()
    options = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=False))
    if sys.argv[1] == "--play":
        play(options)
        return
    gpu = os.environ["CUDA_VISIBLE_DEVICES"]
    assert gpu == options["--gpu"]
    problem, word = options["--problem"], "start"
    while problem is not None:
        problem, word = measure(problem, word, options, gpu), "go on with"


def measure(problem, word, options, gpu):
    """One problem; returns the next that is asked for."""
    acts = ACTS["acts"].get(problem, {})
    reference = "" if "--no-reference" in options else " with reference"
    log(f"{word} {problem} on {gpu}{reference}{waiting()}")
    prepare = acts.get("prepare", None if word == "start" else acts.get("prepare again"))
    if prepare is not None and not (prepare.startswith("reference-") and not reference):
        act(prepare.removeprefix("reference-"), None)
    say("ready", options.get("--no-reference", ""))
    for line in sys.stdin:
        asked, number = line.split()
        if asked == "problem":
            return number
        assert asked == "measure"
        log(f"measure {problem} {number}")
        act(acts.get(number, 100.0 + int(number)), int(number))
    return None


main()
