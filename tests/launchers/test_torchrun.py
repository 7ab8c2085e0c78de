"""Under the real torchrun, the real mpirun and `adtrain launch`: starting, restarting, stopping, every way to fail."""
import os
import signal
import socket

import small_run
from small_run import ADTRAIN, DEVICE, MOST_RANKS as RANKS, MPIRUN, TORCHRUN, rank_processes

LONG = ["--set", "train_timesteps=1000000", "--set", "eval_interval=0", "--set", "summary_interval=500"]
# Rank 0 sleeps six seconds from step 12 on: the run is in its midst when something happens to it. It has 20 steps.
LINGER = {"ADTRAIN_FAULT": "slow@0:12-14"}
SECONDS_TO_LEAVE = 30

# Makes a rank start where it should not.
ASTRAY = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void go(void) {
  const char *rank = getenv("RANK"), *astray = getenv("ASTRAY");
  if (rank == NULL) rank = getenv("OMPI_COMM_WORLD_RANK");
  if (rank != NULL && astray != NULL && strcmp(rank, astray) == 0 && chdir("elsewhere") != 0) abort();
}
"""


def torchrun(*options, ranks=RANKS):
    return [TORCHRUN, "--no-python", "--nproc-per-node", ranks, *(options or ["--standalone"]), ADTRAIN]


def mpirun(ranks=RANKS):
    return [MPIRUN, "--oversubscribe", "--bind-to", "none", "-np", ranks, ADTRAIN]


def adtrain_launch(ranks=RANKS):
    return [ADTRAIN, "launch", "--nproc", ranks, "--logs", "logs", "--grace", 10]


class Launched(small_run.SmallRun):
    def setUp(self):
        super().setUp()
        self.collect()

    def start_long(self, launcher, *settings, name="small", **environment):
        """Returns once the run has saved its first checkpoint."""
        process = self.start([*launcher, "small.yaml", *LONG, "--set", f"run_name={name}", *settings], **environment)
        self.addCleanup(self.end, process)
        checkpoints = self.run_folder(name) / "checkpoints"  # on a GPU the first of them are soon replaced by others
        self.wait_for(lambda: any(checkpoints.glob("step-*")) or process.poll() is not None, "a checkpoint")
        if process.poll() is not None:
            self.fail(process.communicate()[0])
        return process

    def assert_culprit(self, finished, rank, *words, name="small", seconds=SECONDS_TO_LEAVE):
        """Every rank that could has ended with the block that names the rank, and the run's folder holds it."""
        title = f"adtrain ended: rank {rank} of {RANKS} failed first"
        self.assertGreaterEqual(self.words_of_ranks(finished).count(title), RANKS - 1, finished.output)
        record = (self.run_folder(name) / "failure.txt").read_text()
        for word in (title, *words):
            self.assertIn(word, record)
        self.assert_within(seconds, finished.seconds)
        self.wait_for(lambda: not rank_processes(self.folder), "no rank survives", timeout=5)


class Starts(Launched):
    def test_static_and_c10d_rendezvous_train_to_the_same_weights(self):
        own_port = ["--master-addr", "127.0.0.1", "--master-port", small_run.free_port()]
        endpoint = f"127.0.0.1:{small_run.free_port()}"
        for name, options in [("standalone", ["--standalone"]),
                              ("static", ["--nnodes", "1", "--node-rank", "0", *own_port]),
                              ("c10d", ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint])]:
            self.assert_done(self.run_command([*torchrun(*options), "small.yaml", "--set", f"run_name={name}"]))
            self.assertEqual(self.weights(name=name), self.weights(name="standalone"), name)

    def test_a_killed_rank_restarts_the_group_which_resumes_exactly(self):
        steps = ["--set", "train_timesteps=20", "--set", "eval_interval=0"]
        self.assert_done(self.run_command([*torchrun(), "small.yaml", *steps, "--set", "run_name=whole"]))
        process = self.start_long(torchrun("--standalone", "--max-restarts", "2"), *steps, **LINGER)
        os.kill(rank_processes(self.folder)[1], signal.SIGKILL)
        finished = small_run.finish(process, timeout=120)
        self.assert_done(finished)
        self.assertIn("restart 1 by torchrun", finished.output)
        self.assertIn("resuming after step", finished.output)
        self.assertEqual(self.weights(), self.weights(name="whole"))
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
        self.assert_done(self.run_command([*torchrun(), "small.yaml", *LONG, "--resume", "--stop-after", "1"]))


class Pauses(Launched):
    def test_a_run_that_is_stopped_as_a_whole_goes_on_when_it_is_continued(self):
        """As a scheduler suspends a job: nobody has fallen silent then."""
        process = self.start_long(mpirun(), "--set", "silent_rank_seconds=3", "--set", "train_timesteps=20", **LINGER)
        ranks = rank_processes(self.folder).values()
        for what in (signal.SIGSTOP, signal.SIGCONT):
            for rank in ranks:
                os.kill(rank, what)
            if what == signal.SIGSTOP:
                small_run.time.sleep(6)
        self.assert_done(small_run.finish(process, timeout=120))


class Meeting(small_run.SmallRun):
    """Where addresses and ports are given, and wrong."""

    def self_test(self, launcher, *settings, **environment):
        return self.run_command([*launcher, "test", "--largest", 1, "--set", f"device={DEVICE}", *settings],
                                **environment)

    def test_a_port_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            by_hand = self.self_test([ADTRAIN], **small_run.place(0, 2, port))
            self.assertEqual(by_hand.code, 3, by_hand.output)
            self.assertRegex(by_hand.output, f"127.0.0.1:{port} .*port is in use.*set MASTER_PORT")
            static = ["--master-addr", "127.0.0.1", "--master-port", port]
            by_torchrun = self.self_test(torchrun(*static))
            self.assertEqual(by_torchrun.code, 1, by_torchrun.output)
            self.assertRegex(by_torchrun.output, f"{port}.*EADDRINUSE")
            for launcher in (mpirun(), adtrain_launch()):  # they find ports of their own
                self.assert_done(self.self_test(launcher, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)))

    def test_a_master_that_nobody_is(self):
        port = small_run.free_port()
        by_hand = self.self_test([ADTRAIN], "--set", "rendezvous_timeout_seconds=2",
                                 **small_run.place(1, 2, port))
        self.assertEqual(by_hand.code, 3, by_hand.output)
        self.assertRegex(by_hand.output, f"Rank 1 of 2 did not reach rank 0 at 127.0.0.1:{port} .*refused")
        second_host = ["--nnodes", 2, "--node-rank", 1, "--master-addr", "127.0.0.1", "--master-port", port]
        by_torchrun = self.self_test(torchrun(*second_host, "--rdzv-conf", "timeout=2"))
        self.assertEqual(by_torchrun.code, 1, by_torchrun.output)
        self.assertRegex(by_torchrun.output, rf"timed out .*127.0.0.1, {port}")


class EachLauncher:
    """What holds under each of them."""

    def test_resumes_on_another_number_of_ranks_and_says_so(self):
        stopped = self.run_command([*self.launcher(), "small.yaml", "--stop-after", 10])
        self.assertEqual(stopped.code, self.STOPPED, stopped.output)
        resumed = self.run_command([*self.launcher(ranks=2), "small.yaml", "--resume"])
        self.assert_done(resumed)
        self.assertIn("resuming after step 10, saved by a run of 3 ranks where this one has 2 ranks", resumed.output)
        self.assertIn("done: 20 steps", resumed.output)

    def test_a_gpu_that_is_not_there_or_not_for_each(self):
        visible, obstacle = {"cpu": ("", "rank 0 sees no GPU"),
                             "cuda": ("0", "ranks 0 and 1 are on one GPU, GPU-")}[DEVICE]
        finished = self.run_command([*self.launcher(ranks=2), "small.yaml", "--set", "device=cuda"],
                                    CUDA_VISIBLE_DEVICES=visible)
        self.assert_code(finished, 3)
        self.assertIn(f"device: cuda is asked for, but {obstacle}", finished.output)
        self.assertIn("expected a GPU of its own for each rank", finished.output)

    def test_an_error_on_one_rank(self):
        """Rank 1 is in a folder without histories, as on a host where a disk is not mounted."""
        (self.folder / "elsewhere").mkdir()
        (self.folder / "elsewhere/small.yaml").write_text((self.folder / "small.yaml").read_text())
        finished = self.run_command([*self.launcher(), "small.yaml"], LD_PRELOAD=small_run.preloadable(ASTRAY, self.folder), ASTRAY="1")
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
        # It may have been training, or waiting for rank 0 to save.
        self.assert_culprit(finished, 2, "has not been heard of", " after step ",
                            seconds=SECONDS_TO_LEAVE + 15)  # torchrun gives a stopped rank 30 s of its own


class UnderTorchrun(EachLauncher, Launched):
    launcher = staticmethod(torchrun)
    STOPPED = 0

    def assert_code(self, finished, code):
        """torchrun itself ends with 1; its table of failures has the code of the one that it takes for the cause."""
        self.assertEqual(finished.code, 1, finished.output)
        cause = finished.output[finished.output.index("Root Cause"):]
        self.assertIn(f"exitcode  : {-9 if code == 137 else code}", cause)
        if code == 4:
            self.assertIn("DataError: ", cause)


class UnderMpirun(EachLauncher, Launched):
    launcher = staticmethod(mpirun)
    STOPPED = 75

    def assert_code(self, finished, code):
        self.assertEqual(finished.code, code, finished.output)


class UnderAdtrainLaunch(UnderMpirun):
    launcher = staticmethod(adtrain_launch)


if __name__ == "__main__":
    small_run.main()
