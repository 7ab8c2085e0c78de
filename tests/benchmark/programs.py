"""Starting programs one after the other, each with a deadline, and reading the JSON that they print."""
import dataclasses
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

SECONDS_TO_END = 5  # between asking a program to end and killing it
SECONDS_EXPECTED = 30  # of a program whose like has not run yet
SECONDS_TO_SHOW = 10  # of the time for all: a late program is ended, tables and pictures are made


@dataclasses.dataclass
class Outcome:
    """What became of a program: the JSON that it printed, or the reason why there is none."""
    seconds: float  # by the wall clock, start-up included
    result: dict | None = None
    reason: str | None = None
    left_out: bool = False  # for want of time

    def failed(self):
        return self.result is None and not self.left_out

    def in_short(self):
        if self.reason:
            return self.reason
        step = f"{self.result['ms_median']:.2f} ms a step; " if "ms_median" in self.result else ""
        return f"{step}{self.seconds:.0f} s in all"


def children_of(pid):
    """All processes below this one. Ranks under torchrun have process groups of their own."""
    children = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    found, unvisited = [], [pid]
    while unvisited:
        below = children.get(unvisited.pop(), [])
        found += below
        unvisited += below
    return found


def end(process):
    """Ends the program with all that it has started."""
    below = children_of(process.pid)
    os.killpg(process.pid, signal.SIGTERM)  # torchrun passes it on
    try:
        process.wait(SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        pass
    for kill, pid in [(os.killpg, process.pid)] + [(os.kill, pid) for pid in below]:
        try:
            kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def last_json(text):
    """The last line that is a JSON object, or the whole text as one."""
    for candidate in [*reversed(text.splitlines()), text]:
        try:
            value = json.loads(candidate)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None


def reason_in(errors):
    """The last line in which one of our programs says why it failed, else the last one before torchrun's own report."""
    noise = ("torch/distributed/run.py", "OMP_NUM_THREADS")  # torchrun's advice
    lines = [line.strip() for line in errors.splitlines()
             if re.search(r"\w", line) and not any(word in line for word in noise)]
    own = [line for line in lines if re.match(r"(adtrain|peer_\w+): ", line)]
    report = next((i for i, line in enumerate(lines) if "torch/distributed/elastic" in line), len(lines))
    said = own[-1:] or lines[:report][-1:] or lines[report:][:1] or ["no word on standard error"]
    return said[0]


def run(command, timeout):
    environment = os.environ | {"NCCL_NVLS_ENABLE": "0"}
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                                       env=environment, start_new_session=True)
        except OSError as error:
            return Outcome(0.0, reason=f"{command[0]}: {error.strerror}")
        reason = None
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            reason = f"not done after {timeout:.0f} s"
        finally:
            if process.returncode is None:
                end(process)
        seconds = time.monotonic() - begin
        output.seek(0)
        errors.seek(0)
        if reason is None and code != 0:
            reason = f"exit code {code}: {reason_in(errors.read())}"
        result = None if reason else last_json(output.read())
        if reason is None and result is None:
            reason = "it ended well but printed no JSON"
        return Outcome(seconds, result, reason)


class Runner:
    """Runs each command once: a case that belongs to two series is not measured twice.

    A program that would not end within `seconds` from now on, those for all programs, is left out: it is taken to need
    as long as the last one of its kind.
    """

    def __init__(self, timeout, seconds=math.inf, start=run, clock=time.monotonic):
        self.timeout, self.seconds = timeout, seconds
        self.start, self.clock, self.begin = start, clock, clock()
        self.outcomes = {}
        self.latest = {}  # seconds, by kind

    def run(self, title, command, kind):
        command = tuple(map(str, command))
        if command not in self.outcomes:
            passed = self.clock() - self.begin
            print(f"  {passed // 60:.0f}:{passed % 60:02.0f}  {title} …", end=" ", file=sys.stderr, flush=True)
            self.outcomes[command] = self.outcome_within(self.seconds - SECONDS_TO_SHOW - passed, command, kind)
            print(self.outcomes[command].in_short(), file=sys.stderr, flush=True)
        return self.outcomes[command]

    def outcome_within(self, left, command, kind):
        needed = self.latest.get(kind, SECONDS_EXPECTED)
        if left < needed:
            reason = f"left out: about {needed:.0f} s needed, {max(left, 0):.0f} s left"
            return Outcome(0.0, reason=reason, left_out=True)
        outcome = self.start(command, min(self.timeout, left))
        self.latest[kind] = outcome.seconds
        return outcome
