"""What a run does when something breaks: every fault of faults.py under every launcher, and the table of
docs/reliability.md:

    .deps/venv/bin/python tests/launchers/fault_table.py                         # all, and writes the table anew
    .deps/venv/bin/python tests/launchers/fault_table.py mpirun SLURM kill USR1  # these launchers and faults alone

Ends with 1 where an expectation does not hold.
"""
import contextlib
import dataclasses
import datetime
import os
import pathlib
import platform
import re
import sys
import time

import fault_runs
import faults
import slurm_cluster
import small_run
import virtual_hosts

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs/reliability.md"
BEGIN, END = "<!-- fault table: begin -->", "<!-- fault table: end -->"


@dataclasses.dataclass
class Result:
    """Of one fault under one launcher."""

    seconds: float
    code: int
    named: str  # "rank 1", or "" where none is
    problems: list  # what is not as expected
    output: str

    def cell(self):
        words = [f"{self.seconds:.1f} s", str(self.code), self.named]
        return ", ".join(filter(None, words)) + (" **✗ " + "; ".join(self.problems) + "**" if self.problems else "")


def bench_for(fault, launcher):
    return fault_runs.HostsBench(launcher) if fault.name == "lost network" else fault_runs.Bench(launcher)


def obstacle(fault, launcher):
    """Why this system does not let the cell be tested; None where it does."""
    if launcher == "SLURM":
        return slurm_cluster.obstacle()
    return virtual_hosts.obstacle() if fault.name == "lost network" else None


def try_fault(bench, fault, *settings):
    """Breaks a run, and looks at what it leaves behind; `settings` change the configuration of all runs."""
    reference = bench.reference()
    expected = fault.expects(bench.launcher)
    bench.clear()
    if fault.prepare:
        fault.prepare(bench.folder)
    switch = {"ADTRAIN_FAULT": fault.switch.format(rank=bench.struck)} if fault.switch else {}
    run = bench.start(*settings, **switch)
    _await_checkpoint(bench, run, needed=fault.prepare is None)
    if fault.strike:
        fault.strike(run)
    ended = run.end(fault_runs.LONGEST, expected.launcher_ends)
    if fault.mend:
        fault.mend(run)

    problems = []
    if ended.endless:
        problems.append(f"not ended after {fault_runs.LONGEST} s")
    elif ended.seconds > expected.seconds * small_run.PATIENCE:
        problems.append(f"expected at most {expected.seconds * small_run.PATIENCE} s")
    if not _code_fits(bench, expected.code, ended.code):
        problems.append(f"expected code {expected.code}")
    named = _named(bench, ended)
    if not _name_fits(bench, expected, named):
        problems.append(f"expected rank {expected.named} to be named")
    if expected.resumes:
        problems += _problems_of_resuming(bench, reference, settings, unfinished=fault.prepare is None)
    return Result(ended.seconds, ended.code, "" if named is None else f"rank {named}", problems, ended.output)


def _await_checkpoint(bench, run, needed):
    """Until the checkpoint stands that is to be there before anything breaks."""
    deadline = time.monotonic() + fault_runs.LONGEST
    while needed and not any(step >= faults.BEFORE for step in bench.steps()) and run.alive():
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)


def _code_fits(bench, expected, code):
    if bench.launcher == "torchrun" and expected not in (0, faults.ANY):
        return code == (0 if expected == 75 else 1)  # it ends with 1 whatever has failed, and knows no requeueing
    if bench.launcher == "SLURM" and expected not in (faults.NONZERO, faults.OWN, faults.ANY) and expected > 128:
        return code in (expected, 143)  # srun tells the highest of all: 143 of a rank that it has ended itself
    if expected in (faults.NONZERO, faults.OWN):
        return code != 0 and not (expected == faults.OWN and code == 1)
    return expected in (code, faults.ANY)


def _named(bench, ended):
    """The rank that all who could say anything name, and the record in the run's folder."""
    record = bench.run_folder() / "failure.txt"
    words = bench.words_of_ranks(ended) + (record.read_text() if record.exists() else "")
    named = {int(rank) for rank in re.findall(r"adtrain ended: rank (\d+) of", words)}
    return named.pop() if len(named) == 1 else (", ".join(map(str, sorted(named))) or None)


def _name_fits(bench, expected, named):
    if bench.launcher == "none" or expected.named == faults.ANY:
        return True  # a single process has nobody to accuse
    return named == expected.named


def _problems_of_resuming(bench, reference, settings, unfinished):
    steps = bench.steps()
    damaged = [small_run.damage_of(bench.run_folder() / f"checkpoints/step-{step}") for step in steps]
    problems = list(filter(None, damaged))
    if unfinished and max(steps, default=0) < faults.BEFORE:
        return [*problems, f"the checkpoint of step {faults.BEFORE} is gone"]
    if faults.STEPS not in steps:
        resumed = bench.start("--resume", *settings).end(fault_runs.LONGEST)
        if resumed.code != 0:
            return [*problems, f"resuming ended with {resumed.code}: {resumed.output[-400:]}"]
    return problems + ([] if bench.weights() == reference else ["the resumed weights differ"])


def table(results):
    """Rows of faults, columns of launchers."""
    lines = ["| fault | " + " | ".join(faults.ALL) + " |", "|---" * (1 + len(faults.ALL)) + "|"]
    for fault in faults.FAULTS:
        cells = [results.get((fault.name, launcher), "—") for launcher in faults.ALL]
        lines.append(f"| {fault.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def machine():
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores of a {platform.machine()} machine with {memory:.0f} GiB"


def write(results):
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    said = (f"Measured on {datetime.date.today()} on {machine()}, ranks on the CPU, by "
            f"`.deps/venv/bin/python tests/launchers/fault_table.py`:")
    DOCUMENT.write_text(f"{before}{BEGIN}\n{said}\n\n{table(results)}\n{END}{after}")


def main():
    wanted = sys.argv[1:]
    launchers = [name for name in faults.ALL if name in wanted] or faults.ALL
    chosen = [fault for fault in faults.FAULTS if fault.name in wanted] or faults.FAULTS
    unknown = set(wanted) - set(faults.ALL) - {fault.name for fault in faults.FAULTS}
    if unknown:
        sys.exit(f"no such fault or launcher: {', '.join(sorted(unknown))}; there are: "
                 f"{', '.join([*faults.ALL, *(fault.name for fault in faults.FAULTS)])}")
    results, failed = {}, 0
    for launcher in launchers:
        with contextlib.ExitStack() as stack:
            benches = {}
            for fault in chosen:
                if launcher not in fault.launchers:
                    continue
                if reason := obstacle(fault, launcher):
                    print(f"{launcher}: {fault.name}: not here: {reason}", flush=True)
                    results[fault.name, launcher] = "not tested here"
                    continue
                kind = fault.name == "lost network"
                if kind not in benches:
                    benches[kind] = stack.enter_context(bench_for(fault, launcher))
                result = try_fault(benches[kind], fault)
                results[fault.name, launcher] = result.cell()
                print(f"{launcher}: {fault.name}: {result.cell()}", flush=True)
                if result.problems:
                    failed += 1
                    print(f"{result.output[-3000:]}\n", flush=True)
    if not wanted:
        write(results)
    print(f"{len(results)} cells, {failed} not as expected")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
