#!PYTHON -IS
"""Stands for the driver's worker: what a trial does is said by the file beside it, `acts.json`.

    {"devices": [[index, uuid, capability]...], "acts": {"PROBLEM": {"prepare": act, "TRIAL": act}}}

An act is microseconds, or one of the words below. Every start and every answer leaves a line in `log.txt`.
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
    problem = options["--problem"]
    acts = ACTS["acts"].get(problem, {})
    reference = "" if "--no-reference" in options else " with reference"
    gpu = os.environ["CUDA_VISIBLE_DEVICES"]
    assert gpu == options["--gpu"]
    log(f"start {problem} on {gpu}{reference}")
    prepare = acts.get("prepare")
    if prepare is not None and not (prepare.startswith("reference-") and not reference):
        act(prepare.removeprefix("reference-"), None)
    say("ready", options.get("--no-reference", ""))
    for line in sys.stdin:
        word, number = line.split()
        assert word == "measure"
        log(f"measure {problem} {number}")
        act(acts.get(number, 100.0 + int(number)), int(number))


main()
