"""A rank that holds the others back is named while it runs; ranks that are equally slow are not."""
import json

import small_run
from small_run import ADTRAIN, DEVICE
from test_torchrun import mpirun

RANKS = 3 if DEVICE == "cpu" else 2
# Steps of two seconds, which no other load of this machine makes uneven. Three steps are a window, of which the first
# does not count and two (on GPUs three) must agree.
STEPS = 10 if DEVICE == "cpu" else 13
SETTINGS = ["--set", f"train_timesteps={STEPS}", "--set", "eval_interval=0", "--set", f"ckpt_interval={STEPS}"]
HOLDS_BACK = "holds the others back"


class SlowRank(small_run.SmallRun):
    def setUp(self):
        super().setUp()
        self.collect()

    def records(self):
        return [json.loads(line) for line in (self.run_folder() / "metrics.jsonl").read_text().splitlines()]

    def assert_rank_1_is_named_once(self, output, ranks):
        lines = [line for line in output.splitlines() if HOLDS_BACK in line]
        self.assertEqual(1, len(lines), output)
        self.assertIn(f"rank 1 of {ranks} (", lines[0])
        self.assertIn("neither computed nor waited", lines[0])  # it sleeps
        last = self.records()[-1]
        self.assertEqual([(1, "paused")], [(slow["rank"], slow["cause"]) for slow in last["slow_ranks"]])
        self.assertGreater(last["slow_ranks"][0]["lost_share"], 0.5)
        self.assertNotIn("slow_ranks", self.records()[0])

    def run_two_with_faults(self, faults):
        """By hand, so that each rank has a fault of its own. Returns what rank 0 has written."""
        port = small_run.free_port()
        ranks = []
        for rank, fault in enumerate(faults):
            ranks.append(self.start([ADTRAIN, "small.yaml", *SETTINGS], ADTRAIN_FAULT=fault,
                                    **small_run.place(rank, len(faults), port)))
            self.addCleanup(self.end, ranks[-1])
        finished = [small_run.finish(rank, timeout=120) for rank in ranks]
        for rank in finished:
            self.assert_done(rank)
        return finished[0].output

    def test_under_mpirun_the_slow_rank_is_named(self):
        finished = self.run_command([*mpirun(RANKS), "small.yaml", *SETTINGS], ADTRAIN_FAULT="slow@1:1-")
        self.assert_done(finished)
        self.assert_rank_1_is_named_once(finished.output, RANKS)

    def test_by_hand_the_slow_rank_is_named(self):
        self.assert_rank_1_is_named_once(self.run_two_with_faults(["", "slow@1:1-"]), 2)

    def test_equally_slow_ranks_are_not(self):
        self.assertNotIn(HOLDS_BACK, self.run_two_with_faults(["slow@0:1-", "slow@1:1-"]))
        for record in self.records():
            self.assertNotIn("slow_ranks", record)


if __name__ == "__main__":
    small_run.main(RANKS)
