"""The same tests inside the ranks of a SLURM step, on a cluster of two virtual nodes."""
import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "launchers"))
import slurm_cluster
import small_run


class Slurm(unittest.TestCase):
    def test_ranks_of_a_step(self):
        cluster = self.enterContext(slurm_cluster.SlurmCluster())
        output = cluster.command("srun", "--nodes=2", "--ntasks=2", "--cpus-per-task=1", "--time=2",
                                 os.environ["FRAMEWORK_RANKS"], "cpu")
        self.assertIn("2 ranks over Gloo", output)
        self.assertIn("SLURM", output)
        self.assertNotIn("FAILED", output)


if __name__ == "__main__":
    if reason := slurm_cluster.obstacle():
        small_run.skip(reason)
    unittest.main(verbosity=2)
