"""What the watch over failures promises under each launcher, where signals, pipes and suspension are against it."""
import fcntl
import os
import signal
import subprocess
import unittest

import small_run
import test_torchrun
from test_torchrun import RANKS, adtrain_launch, mpirun, rank_processes, torchrun

SECONDS_TO_LEAVE = 30
SOME_SECONDS = 600 if small_run.DEVICE == "cpu" else 15000  # steps that take as long
LAUNCHERS = {"mpirun": mpirun, "torchrun": torchrun, "adtrain launch": adtrain_launch}


def send(what, processes):
    for process in processes:
        os.kill(process, what)


class Stopped(test_torchrun.Launched):
    """SIGSTOP to one rank: it alone is named, by all, also where a launcher or a peer wakes it (mpirun does, to end it)."""

    def assert_names_the_stopped_rank(self, launcher, rank, name):
        process = self.start_long(launcher, "--set", "silent_rank_seconds=3", name=name)
        begin = small_run.time.monotonic()
        os.kill(rank_processes(self.folder)[rank], signal.SIGSTOP)
        finished = small_run.finish(process, 60, begin)
        self.assertNotEqual(finished.code, 0, finished.output)
        self.assert_culprit(finished, rank, "has not been heard of", name=name, seconds=SECONDS_TO_LEAVE)
        words = self.words_of_ranks(finished)
        for other in set(range(RANKS)) - {rank}:
            self.assertNotIn(f"adtrain ended: rank {other} of", words)
        for log in self.folder.glob("logs/rank-*.log"):
            log.unlink()

    def test_who_was_stopped_and_woken_accuses_nobody(self):
        for name, launcher in LAUNCHERS.items():
            for rank in (0, 1):
                with self.subTest(launcher=name, rank=rank):
                    self.assert_names_the_stopped_rank(launcher(), rank, f"{name[:3]}{rank}")

    def test_a_short_stop_of_one_rank_ends_nothing(self):
        for name, launcher in LAUNCHERS.items():
            with self.subTest(launcher=name):
                run = f"short-{name[:3]}"
                process = self.start_long(launcher(), "--set", "silent_rank_seconds=20", "--set",
                                          f"train_timesteps={SOME_SECONDS}", name=run)
                for rank in (0, 1):
                    stopped = [rank_processes(self.folder)[rank]]
                    send(signal.SIGSTOP, stopped)
                    small_run.time.sleep(3)
                    send(signal.SIGCONT, stopped)
                self.assert_done(small_run.finish(process, timeout=120))
                self.assertFalse((self.run_folder(run) / "failure.txt").exists())


class LostHost(test_torchrun.Launched):
    """Ranks 0 and 1 end together, as where they are on one host that is lost."""

    @unittest.skipUnless(small_run.DEVICE == "cpu", "two ranks would have one GPU")
    def test_a_rank_of_another_host_leaves_the_record(self):
        port = small_run.free_port()
        ranks = []
        for rank, (local_rank, local_ranks) in enumerate([(0, 2), (1, 2), (0, 1)]):
            place = small_run.place(rank, 3, port) | {"LOCAL_RANK": str(local_rank), "LOCAL_WORLD_SIZE": str(local_ranks)}
            ranks.append(self.start([small_run.ADTRAIN, "small.yaml", *test_torchrun.LONG], **place))
            self.addCleanup(self.end, ranks[-1])
        self.wait_for(lambda: any((self.run_folder() / "checkpoints").glob("step-*")), "a checkpoint")
        for what in (signal.SIGSTOP, signal.SIGKILL):  # who is stopped cannot report the other's end
            send(what, [rank.pid for rank in ranks[:2]])
        finished = small_run.finish(ranks[2], timeout=60)
        self.assertEqual(7, finished.code, finished.output)
        self.assertIn("rank 0 of 3 failed first", finished.output)
        self.assertIn("rank 0 of 3 failed first", (self.run_folder() / "failure.txt").read_text())


class Suspended(test_torchrun.Launched):
    """All ranks stopped for longer than each of their deadlines: suspended time is no waiting."""

    def test_a_suspended_run_ends_as_if_it_had_not_been(self):
        steps = SOME_SECONDS // 2
        settings = ["--set", "collective_timeout_seconds=5", "--set", "silent_rank_seconds=5",
                    "--set", f"train_timesteps={steps}", "--set", f"ckpt_interval={steps // 3}"]
        for name, launcher in LAUNCHERS.items():
            with self.subTest(launcher=name):
                process = self.start_long(launcher(), *settings, name=name[:3])
                if name == "adtrain launch":  # as Ctrl-Z and `fg`
                    process.send_signal(signal.SIGTSTP)
                    small_run.time.sleep(8)
                    process.send_signal(signal.SIGCONT)
                else:
                    ranks = rank_processes(self.folder).values()
                    send(signal.SIGSTOP, ranks)
                    small_run.time.sleep(8)
                    send(signal.SIGCONT, ranks)
                self.assert_done(small_run.finish(process, timeout=120))
                whole = self.run_command([*launcher(), "small.yaml", *test_torchrun.LONG, *settings,
                                          "--set", f"run_name={name[:3]}-whole"])
                self.assert_done(whole)
                self.assertEqual(self.weights(steps, name[:3]), self.weights(steps, f"{name[:3]}-whole"))


class Output(test_torchrun.Launched):
    """Standard output and standard error in one pipe, of which the reader has stopped or left."""

    def start_into_pipe(self, launcher, name, *settings):
        """(launcher's process, reading end, writing end) of a run that has saved its first checkpoint."""
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        process = subprocess.Popen(
            list(map(str, [*launcher, "small.yaml", *settings, "--set", f"run_name={name}"])), cwd=self.folder,
            env=small_run.environment(), stdin=subprocess.DEVNULL, stdout=writer, stderr=writer, start_new_session=True)
        self.addCleanup(self.end, process)
        self.wait_for(lambda: any((self.run_folder(name) / "checkpoints").glob("step-*")), "a checkpoint")
        return process, reader, writer

    def fill(self, writer):
        os.set_blocking(writer, False)
        for size in (512, 1):
            try:
                while True:
                    os.write(writer, b"x" * size)
            except BlockingIOError:
                pass
        os.set_blocking(writer, True)

    @unittest.skipUnless(small_run.ENDS_IN_A_FULL_PIPE, "under ThreadSanitizer _exit hangs in a full pipe")
    def test_a_full_pipe_holds_up_neither_the_record_nor_the_end(self):
        for name, launcher in LAUNCHERS.items():
            with self.subTest(launcher=name):
                run = name[:3]
                process, reader, writer = self.start_into_pipe(launcher(), run, *test_torchrun.LONG, "--set",
                                                               "leave_within_seconds=3")
                self.fill(writer)
                small_run.time.sleep(11)  # rank 0 prints its progress every ten seconds, and hangs in it
                begin = small_run.time.monotonic()
                os.kill(rank_processes(self.folder)[1], signal.SIGKILL)
                record = self.run_folder(run) / "failure.txt"
                self.wait_for(record.exists, "failure.txt", timeout=10)
                self.assertIn(f"rank 1 of {RANKS} failed first", record.read_text())
                # The launchers' own words may hang in the pipe, the ranks may not.
                self.wait_for(lambda: not rank_processes(self.folder), "the ranks' end", timeout=20)
                self.assert_within(20, small_run.time.monotonic() - begin)
                if name == "adtrain launch":
                    self.assertEqual(137, process.wait(20 * small_run.PATIENCE))
                self.end(process)
                os.close(reader)
                os.close(writer)

    def test_a_closed_reader_ends_no_run(self):
        for name, launcher in (LAUNCHERS | {"alone": lambda: [small_run.ADTRAIN]}).items():
            with self.subTest(launcher=name):
                run = f"closed-{name[:3]}"
                process, reader, writer = self.start_into_pipe(launcher(), run)
                os.close(writer)
                os.close(reader)
                code = process.wait(60 * small_run.PATIENCE)
                self.wait_for(lambda: not rank_processes(self.folder), "the ranks' end")
                self.assertFalse((self.run_folder(run) / "failure.txt").exists())
                if name != "mpirun":  # it asks its ranks to stop, or crashes itself; they save and end well
                    self.assertEqual(0, code)
                    self.assertTrue((self.run_folder(run) / "checkpoints/step-20").exists())

    def test_a_closed_answer_ends_quietly(self):
        for command in ("validate small.yaml", "validate --explain", "--help", "train --help", "env --json"):
            shell = f"set -o pipefail; {small_run.ADTRAIN} {command} | true"
            finished = self.run_command(["bash", "-c", shell])
            self.assertEqual((0, ""), (finished.code, finished.output), command)


if __name__ == "__main__":
    small_run.main()
