"""Faults of faults.py, each under one launcher or a few; fault_table.py tries all of them under all launchers."""
import unittest

import fault_runs
import fault_table
import faults
import small_run

NUMBERS = ["loss not a number", "gradient not a number"]
SUBSETS = {
    "cpu": {
        "none": ["segmentation fault", "gradient not a number", "no space, to the end", "no space, for a while",
                 "unwritable at the start", "kill while saving: folder", "kill while saving: tensors",
                 "kill while saving: manifest", "kill while saving: renamed", "kill while saving: latest",
                 "kill while saving: pruning", "slow rank", "TERM", "closed output", "clock goes back"],
        "mpirun": ["exit 0", "out of memory", "loss not a number"],
        "torchrun": ["exit 0", "abort"],
        "adtrain launch": ["exit 0", "exit 1", "exception", "read-only, to the end", "full pipe, then kill"],
    },
    "cuda": {
        "none": ["out of memory", *NUMBERS],
        "mpirun": ["kill", "exit 0", "out of memory", *NUMBERS, "kill while saving: manifest", "slow rank"],
        "torchrun": ["kill", "exit 0", "loss not a number", "USR1"],
        "adtrain launch": ["kill", "exit 0", "stop (SIGSTOP)"],
    },
}
SUBSET = SUBSETS[small_run.DEVICE]
ELSEWHERE = {"kill", "stop (SIGSTOP)", "USR1", "lost network"}  # test_torchrun.py, test_hosts.py, test_slurm.py
IMPATIENT = ["--set", "silent_rank_seconds=4"]


class Faults(unittest.TestCase):
    def break_runs_of(self, launcher):
        of = {fault.name: fault for fault in faults.FAULTS}
        with fault_runs.Bench(launcher) as bench:
            for name in SUBSET[launcher]:
                if name == "full pipe, then kill" and not small_run.ENDS_IN_A_FULL_PIPE:
                    print(f"{launcher}: {name}: not under ThreadSanitizer, where _exit hangs in it", flush=True)
                    continue
                with self.subTest(fault=name, launcher=launcher):
                    result = fault_table.try_fault(bench, of[name], *IMPATIENT)
                    print(f"{launcher}: {name}: {result.cell()}", flush=True)
                    self.assertEqual([], result.problems, result.output)

    def test_a_single_process(self):
        self.break_runs_of("none")

    def test_under_mpirun(self):
        self.break_runs_of("mpirun")

    def test_under_torchrun(self):
        self.break_runs_of("torchrun")

    def test_under_adtrain_launch(self):
        self.break_runs_of("adtrain launch")

    @unittest.skipUnless(small_run.DEVICE == "cpu", "of the subset on CPUs")
    def test_no_fault_is_left_out(self):
        tried = {name for names in SUBSET.values() for name in names}
        self.assertEqual(set(), {fault.name for fault in faults.FAULTS} - tried - ELSEWHERE)


if __name__ == "__main__":
    small_run.main(fault_runs.RANKS)
