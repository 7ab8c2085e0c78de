"""What benchmark.py makes of its programs, with others in their place: no GPU is needed."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from benchmark import powers_of_two_and
from programs import Outcome, Runner
from training import compare, measure_training, planned_training

BENCHMARK = pathlib.Path(__file__).with_name("benchmark.py")

# Stands for benchmark_step, and for the Python of torchrun and the peer: two GPUs do 1.8 times as much as one.
PROGRAM = f"""#!{sys.executable}
import json, sys
gpus = int(sys.argv[sys.argv.index("--nproc-per-node") + 1]) if "--nproc-per-node" in sys.argv else 1
rate = (50 if any("peer_training" in word for word in sys.argv) else 100) * (1 if gpus == 1 else 0.9 * gpus)
print(json.dumps(dict(ms_median=1, ms_p99=2, sequences_per_second=rate, sequences_per_second_per_gpu=rate / gpus,
                      exposed_communication_share=0.01, peak_memory_gib=1)))
"""


def options(**more):
    return argparse.Namespace(**{
        "gpus": [1, 2, 4, 8], "models": ["guide", "large"], "scaling": ["weak", "strong"], "steps": 100, "peers": True,
        "variants": ["graphs-bf16", "eager-bf16"], "program": "benchmark_step", "python": "python3",
        "jax_python": "none"} | more)


class PlainPrograms:
    """Each takes as long as the others, by a clock of their own."""

    def __init__(self, seconds_each, seconds_in_all):
        self.now, self.seconds_each, self.timeouts = 0.0, seconds_each, []
        self.runner = Runner(120, seconds_in_all, self.start, clock=lambda: self.now)

    def start(self, command, timeout):
        self.timeouts.append(timeout)
        self.now += self.seconds_each
        return Outcome(self.seconds_each, {"ms_median": 1.0, "sequences_per_second": 1.0})


class Budget(unittest.TestCase):
    def measured(self, seconds_each, seconds_in_all):
        programs = PlainPrograms(seconds_each, seconds_in_all)
        lines = planned_training(options())
        measure_training(lines, options(), programs.runner)
        return programs, lines

    def test_without_limit_all_is_measured_and_nothing_twice(self):
        programs, lines = self.measured(100, float("inf"))
        self.assertTrue(all(line.outcome.result for line in lines))
        self.assertEqual(len(programs.timeouts), len({tuple(line.command) for line in lines}))
        self.assertLess(len(programs.timeouts), len(lines))  # on one GPU, 512 sequences are the same weak and strong

    def test_the_least_important_is_left_out(self):
        programs, lines = self.measured(25, 540)
        run = {tuple(line.command) for line in lines
               if line.ours or (line.name == "PyTorch graphs-bf16" and line.case.series == "weak"
                                and line.case.gpus in (1, 8))}
        self.assertEqual(len(run), 21)  # times 25 s, and 10 s to show it
        for line in lines:
            self.assertEqual(line.outcome.left_out, tuple(line.command) not in run, line)
            self.assertFalse(line.outcome.failed())
        self.assertLessEqual(programs.now, 540)

    def test_the_ends_of_weak_scaling_come_first(self):
        _, lines = self.measured(30, 8 * 30 + 10)
        run = {(line.case.model, line.case.gpus, line.name) for line in lines
               if line.outcome.result and line.case.series == "weak"}
        self.assertEqual(run, {(model, gpus, name) for model in ("guide", "large") for gpus in (1, 8)
                               for name in ("adtrain", "PyTorch graphs-bf16")})

    def test_a_program_gets_no_more_than_is_left(self):
        programs, _ = self.measured(70, 200)
        self.assertEqual(programs.timeouts, [120, 120, 50])


class Table(unittest.TestCase):
    def test_efficiency_is_against_the_same_program_on_one_gpu(self):
        lines = planned_training(options(models=["guide"], scaling=["weak"], gpus=[1, 4], variants=["graphs-bf16"]))
        for line, rate in zip(lines, (100.0, 50.0, 360.0, 150.0)):
            line.outcome = Outcome(1.0, {"sequences_per_second": rate})
        compare(lines)
        self.assertEqual([line.efficiency for line in lines], [1, 1, 0.9, 0.75])
        self.assertEqual([line.against_best_peer for line in lines], [2, None, 2.4, None])
        lines[0].outcome, lines[2].efficiency = Outcome(1.0, reason="it failed"), None
        compare(lines)
        self.assertIsNone(lines[2].efficiency)

    def test_numbers_of_gpus(self):
        self.assertEqual([powers_of_two_and(count) for count in (1, 2, 6, 8)],
                         [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]])


class CommandLine(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.program = self.folder / "program"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def benchmark(self, *more):
        finished = subprocess.run([sys.executable, BENCHMARK, "--gpus", "1,2", "--models", "guide", "--scaling", "weak",
                                   "--variants", "graphs-bf16", "--jax-python", "none", "--output", self.folder,
                                   "--program", self.program, "--python", self.program, *more],
                                  capture_output=True, text=True, timeout=60)
        return finished, json.loads((self.folder / "results.json").read_text())["lines"]

    def test_measures_and_shows(self):
        finished, lines = self.benchmark()
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertEqual([(line["name"], line["case"]["gpus"], line["efficiency"]) for line in lines],
                         [("adtrain", 1, 1), ("PyTorch graphs-bf16", 1, 1), ("adtrain", 2, 0.9),
                          ("PyTorch graphs-bf16", 2, 0.9)])
        self.assertEqual(finished.stdout.count("90.0%"), 2, finished.stdout)
        self.assertRegex(finished.stdout, "(?m)^(picture: .*efficiency.png|no picture, as there is no matplotlib)")

    def test_what_is_left_out_is_said_and_is_no_failure(self):
        finished, lines = self.benchmark("--minutes", "0.5")
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertEqual(finished.stdout.count("left out: about 30 s needed, "), len(lines), finished.stdout)

    def test_a_program_of_ours_that_fails_is_a_failure(self):
        self.program.write_text("#!/bin/sh\nexit 3\n")
        finished, _ = self.benchmark()
        self.assertEqual(finished.returncode, 1, finished.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
