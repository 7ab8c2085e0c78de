"""Under the real torchrun and the real mpirun: starting, restarting, stopping, and every way to fail."""
import os
import pathlib
import shlex
import signal
import subprocess
import unittest

import small_run
from small_run import ADTRAIN, MPIRUN, TORCHRUN

RANKS = 3
LONG = ["--set", "train_timesteps=100000", "--set", "eval_interval=0", "--set", "summary_interval=500"]
SECONDS_TO_LEAVE = 30

# A rank that leaves as a program does that calls exit(0) where it should not.
EARLY_EXIT = "#include <signal.h>\n#include <unistd.h>\nstatic void leave(int s) { (void)s; _exit(0); }\n" \
    "__attribute__((constructor)) static void arm(void) { signal(SIGUSR2, leave); }\n"


def torchrun(*options, ranks=RANKS):
    return [TORCHRUN, "--no-python", "--nproc-per-node", ranks, *(options or ["--standalone"])]


def mpirun(ranks=RANKS):
    return [MPIRUN, "--oversubscribe", "--bind-to", "none", "-np", ranks]


def rank_processes(folder):
    """{rank: process id} of the adtrain processes that were started in this folder."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if not (process / "cwd").resolve().is_relative_to(folder) or (process / "exe").resolve().name != "adtrain":
                continue
            variables = dict(line.partition("=")[::2] for line in (process / "environ").read_text().split("\0"))
        except OSError:  # it has just ended
            continue
        rank = variables.get("RANK", variables.get("OMPI_COMM_WORLD_RANK"))
        if rank is not None:
            found[int(rank)] = int(process.name)
    return found


class Launched(small_run.SmallRun):
    def setUp(self):
        super().setUp()
        self.collect()

    def start_long(self, launcher, *settings, name="small", **environment):
        """Returns once the run has saved its first checkpoint."""
        process = self.start([*launcher, ADTRAIN, "small.yaml", *LONG, "--set", f"run_name={name}", *settings],
                             **environment)
        self.addCleanup(self.end, process)
        first = self.run_folder(name) / "checkpoints/step-10/manifest.json"
        self.wait_for(lambda: first.exists() or process.poll() is not None, "the first checkpoint")
        if not first.exists():
            self.fail(process.communicate()[0])
        return process

    def end(self, process):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        for pid in rank_processes(self.folder).values():
            os.kill(pid, signal.SIGKILL)
        process.communicate()

    def assert_culprit(self, finished, rank, *words, name="small", seconds=SECONDS_TO_LEAVE):
        """Every rank that could has ended with the block that names the rank, and the run's folder holds it."""
        title = f"adtrain ended: rank {rank} of {RANKS} failed first"
        self.assertGreaterEqual(finished.output.count(title), RANKS - 1, finished.output)
        record = (self.run_folder(name) / "failure.txt").read_text()
        for word in (title, *words):
            self.assertIn(word, record)
        self.assertLess(finished.seconds, seconds)
        self.wait_for(lambda: not rank_processes(self.folder), "no rank survives", timeout=5)


class Starts(Launched):
    def test_static_and_c10d_rendezvous_train_to_the_same_weights(self):
        own_port = ["--master-addr", "127.0.0.1", "--master-port", "29611"]
        for name, options in [("standalone", ["--standalone"]),
                              ("static", ["--nnodes", "1", "--node-rank", "0", *own_port]),
                              ("c10d", ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:29612"])]:
            self.assert_done(self.run_command(
                [*torchrun(*options), ADTRAIN, "small.yaml", "--set", f"run_name={name}"]))
            self.assertEqual(self.weights(name=name), self.weights(name="standalone"), name)

    def test_a_killed_rank_restarts_the_group_which_resumes_exactly(self):
        steps = ["--set", "train_timesteps=2000", "--set", "summary_interval=500", "--set", "eval_interval=0"]
        self.assert_done(self.run_command([*torchrun(), ADTRAIN, "small.yaml", *steps, "--set", "run_name=whole"]))
        process = self.start_long(torchrun("--standalone", "--max-restarts", "2"), *steps)
        os.kill(rank_processes(self.folder)[1], signal.SIGKILL)
        finished = small_run.finish(process, timeout=120)
        self.assert_done(finished)
        self.assertIn("restart 1 by torchrun", finished.output)
        self.assertIn("resuming behind step", finished.output)
        self.assertEqual(self.weights(2000), self.weights(2000, "whole"))
        self.assertFalse((self.run_folder() / "failure.txt").exists())


class Stops(Launched):
    def test_mpirun_passes_usr1_on_and_all_save_the_same_step(self):
        process = self.start_long(mpirun())
        process.send_signal(signal.SIGUSR1)
        finished = small_run.finish(process, timeout=60)
        self.assertEqual(finished.code, 75, finished.output)
        self.assertTrue((self.run_folder() / "requeue").exists())

    def test_under_torchrun_a_marker_stands_for_the_code(self):
        process = self.start_long(torchrun())
        os.kill(rank_processes(self.folder)[2], signal.SIGUSR1)
        self.assert_done(small_run.finish(process, timeout=60))
        self.assertTrue((self.run_folder() / "requeue").exists())
        self.assert_done(self.run_command(
            [*torchrun(), ADTRAIN, "small.yaml", *LONG, "--resume", "--stop-after", "1"]))


class Pauses(Launched):
    def test_a_run_that_is_stopped_as_a_whole_goes_on_when_it_is_continued(self):
        """As a scheduler suspends a job: nobody has fallen silent then."""
        process = self.start_long(mpirun(), "--set", "silent_rank_seconds=3", "--set", "train_timesteps=3000")
        ranks = rank_processes(self.folder).values()
        for what in (signal.SIGSTOP, signal.SIGCONT):
            for rank in ranks:
                os.kill(rank, what)
            if what == signal.SIGSTOP:
                small_run.time.sleep(6)
        self.assert_done(small_run.finish(process, timeout=120))


class Failures:
    """Under each launcher."""

    def test_an_error_on_one_rank(self):
        """Rank 1 is in a folder without histories, as on a host where a disk is not mounted."""
        (self.folder / "elsewhere").mkdir()
        (self.folder / "elsewhere/small.yaml").write_text((self.folder / "small.yaml").read_text())
        go = f'[ "${{RANK:-$OMPI_COMM_WORLD_RANK}}" != 1 ] || cd elsewhere; exec {shlex.quote(ADTRAIN)} small.yaml'
        finished = self.run_command([*self.launcher(), "sh", "-c", go])
        self.assert_code(finished, 4)
        self.assert_culprit(finished, 1, "does not exist", "loading histories", "exit code   4")

    def test_a_killed_rank(self):
        for rank in (1, 0):
            with self.subTest(rank=rank):
                name = f"killed{rank}"
                process = self.start_long(self.launcher(), name=name)
                begin = small_run.time.monotonic()
                os.kill(rank_processes(self.folder)[rank], signal.SIGKILL)
                finished = small_run.finish(process, 60, begin)
                self.assert_code(finished, 137)
                self.assert_culprit(finished, rank, "ended without a word", name=name)

    def test_a_stopped_rank(self):
        process = self.start_long(self.launcher(), "--set", "silent_rank_seconds=3")
        small_run.time.sleep(1)  # what it does is known within half a second
        begin = small_run.time.monotonic()
        os.kill(rank_processes(self.folder)[2], signal.SIGSTOP)
        finished = small_run.finish(process, 60, begin)
        self.assertNotEqual(finished.code, 0, finished.output)
        self.assert_culprit(finished, 2, "has not been heard of", "training behind step",
                            seconds=SECONDS_TO_LEAVE + 15)  # torchrun gives a stopped rank 30 s of its own

    def test_a_rank_that_leaves_early_with_0(self):
        source, library = self.folder / "early.c", self.folder / "early.so"
        source.write_text(EARLY_EXIT)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        process = self.start_long(self.launcher(), LD_PRELOAD=str(library))
        begin = small_run.time.monotonic()
        os.kill(rank_processes(self.folder)[1], signal.SIGUSR2)
        finished = small_run.finish(process, 60, begin)
        self.assertNotEqual(finished.code, 0, finished.output)
        self.assert_culprit(finished, 1, "ended without a word")


class UnderTorchrun(Failures, Launched):
    def launcher(self):
        return torchrun()

    def assert_code(self, finished, code):
        """torchrun itself ends with 1; its table of failures has the code of the one that it takes for the cause."""
        self.assertEqual(finished.code, 1, finished.output)
        cause = finished.output[finished.output.index("Root Cause"):]
        self.assertIn(f"exitcode  : {-9 if code == 137 else code}", cause)
        if code == 4:
            self.assertIn("DataError: ", cause)


class UnderMpirun(Failures, Launched):
    def launcher(self):
        return mpirun()

    def assert_code(self, finished, code):
        self.assertEqual(finished.code, code, finished.output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
