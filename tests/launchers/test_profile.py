"""`profile_steps`: what the ranks of a run have recorded, in files as a user opens them."""
import gzip
import json

import small_run
from small_run import ADTRAIN, DEVICE, MPIRUN

PARTS = {"computing", "overlapped", "communicating", "copying", "idle"}


class Profile(small_run.SmallRun):
    def train(self, launcher, *arguments):
        return self.run_command([*launcher, ADTRAIN, "small.yaml", *arguments])

    def mpirun(self, ranks):
        return [MPIRUN, "--oversubscribe", "--bind-to", "none", "-np", ranks]

    def profile(self, steps, run="small"):
        """(the figures, the trace's events by rank, the text) of a run."""
        folder = self.run_folder(run) / "profile"
        with gzip.open(folder / f"steps_{steps}.trace.json.gz", "rt") as file:
            events = json.load(file)["traceEvents"]
        by_rank = {}
        for event in events:
            if event["ph"] == "X":
                by_rank.setdefault(event["pid"], []).append(event)
        titles = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.assertEqual(titles.keys(), by_rank.keys())
        for rank, title in titles.items():
            self.assertRegex(title, rf"^rank {rank} · .+ · .+$")
        figures = json.loads((folder / f"steps_{steps}.json").read_text())["ranks"]
        return {rank["rank"]: rank for rank in figures}, by_rank, (folder / f"steps_{steps}.txt").read_text()

    def assert_parts_sum_to_the_wall_time(self, rank):
        self.assertEqual(rank["parts_ns"].keys(), PARTS)
        self.assertTrue(all(part >= 0 for part in rank["parts_ns"].values()), rank["parts_ns"])
        seconds = rank["wall_seconds"] - rank["between_seconds"]
        self.assertAlmostEqual(sum(rank["parts_ns"].values()) / 1e9, seconds, delta=0.02 * seconds)
        for step in rank["steps"]:
            self.assertEqual(sum(step["parts_ns"].values()), step["end_ns"] - step["start_ns"])

    def assert_sums_over_ranks_overlap(self, by_rank):
        """No rank has a sum before another has started it: so their clocks are aligned. Returns how many there were."""
        def sums(rank):
            """(start, end) of each, in microseconds."""
            start, found = None, []
            for event in sorted(by_rank[rank], key=lambda event: event["ts"]):
                if event["name"] == "communication: start of gradients' all-reduce":
                    start = event["ts"]
                elif event["name"] == "communication: gradients' all-reduce":
                    found.append((start, event["ts"] + event["dur"]))
            return found

        exact = 20  # microseconds: the recording compares two clocks of the processor
        for (start, end), (others_start, others_end) in zip(sums(0), sums(1), strict=True):
            self.assertGreater(end + exact, others_start)
            self.assertGreater(others_end + exact, start)
        return len(sums(0))

    def test_all_ranks_are_in_it_and_training_is_the_same(self):
        self.collect()
        launchers = {"mpi": self.mpirun(2), "local": [ADTRAIN, "launch", "--nproc", 2, "--logs", "logs"]}
        for name, launcher in launchers.items():
            arguments = ["small.yaml"] if name == "local" else [ADTRAIN, "small.yaml"]
            plain = self.run_command([*launcher, *arguments, "--set", f"run_name={name}"])
            self.assert_done(plain)
            self.assertFalse((self.run_folder(name) / "profile").exists())
            finished = self.run_command([*launcher, *arguments, "--set", f"run_name={name}-profiled",
                                         "--set", "profile_steps=8-12"])
            self.assert_done(finished)
            figures, by_rank, text = self.profile("8-12", f"{name}-profiled")
            self.assertEqual([0, 1], sorted(figures))
            for rank in figures.values():
                self.assertEqual([8, 9, 10, 11, 12], [step["step"] for step in rank["steps"]])
                self.assert_parts_sum_to_the_wall_time(rank)
                self.assertGreater(rank["parts_ns"]["computing"], 0)
                self.assertGreater(rank["parts_ns"]["communicating"] + rank["parts_ns"]["overlapped"], 0)
                self.assertEqual(rank["on_gpu"], DEVICE == "cuda")
            self.assertEqual(5, self.assert_sums_over_ranks_overlap(by_rank) if DEVICE == "cpu" else 5)
            for rank in by_rank.values():
                marks = [event["name"] for event in rank if event["cat"] == "step"]
                self.assertEqual([f"step {step}" for step in range(8, 13)],
                                 [mark for mark in marks if mark.startswith("step")])
            for shown in (finished.output, text):
                self.assertIn("profile of steps 8-12: rank 0", shown)
                self.assertRegex(shown, r"Name +Calls +(CPU|Device) total")
                self.assertIn("communication overlapped", shown)
            self.assertIn(f"runs/{name}-profiled/profile/steps_8-12.trace.json.gz is the trace of 2 ranks", finished.output)
            if DEVICE == "cpu":  # on GPUs an equal run is equal to rounding
                self.assertEqual(self.weights(name=name), self.weights(name=f"{name}-profiled"))

    def test_of_one_rank_only(self):
        self.collect()
        self.assert_done(self.train(self.mpirun(2), "--set", "profile_steps=3", "--set", "profile_ranks=[1]"))
        figures, by_rank, text = self.profile("3-3")
        self.assertEqual([1], sorted(figures))
        self.assertEqual([1], sorted(by_rank))
        self.assertIn("profile of step 3: rank 1", text)

    def test_a_run_that_stops_within_the_steps_writes_what_it_has(self):
        self.collect()
        steps = ["--set", "profile_steps=10-15"]
        self.assertEqual(75, self.train([], *steps, "--stop-after", 12).code)
        self.assertEqual(3, len(self.profile("10-12")[0][0]["steps"]))
        self.assert_done(self.train([], *steps, "--resume"))
        self.assertEqual(3, len(self.profile("13-15")[0][0]["steps"]))
        self.assert_done(self.train([], "--set", "profile_steps=1-5", "--set", "train_timesteps=22", "--resume"))
        self.assertEqual(6, len(list((self.run_folder() / "profile").iterdir())))
        self.assert_done(self.train([], "--overwrite"))
        self.assertFalse((self.run_folder() / "profile").exists())

    def test_a_rank_that_is_not_there_is_an_error_at_the_start(self):
        self.collect()
        finished = self.train(self.mpirun(2), "--set", "profile_steps=3", "--set", "profile_ranks=[0, 7]")
        self.assertEqual(2, finished.code, finished.output)
        self.assertIn("profile_ranks: found rank 7; expected ranks of this run, which are 0 to 1", finished.output)
        self.assertFalse((self.run_folder() / "checkpoints").exists())


if __name__ == "__main__":
    small_run.main(ranks=2)
