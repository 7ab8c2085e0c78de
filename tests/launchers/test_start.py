"""The first second of a run under mpirun, torchrun and `adtrain launch`: ranks killed or stopped before all have met, others'
services at the meeting point, wrong numbers of ranks; and launchers that are killed."""
import http.server
import os
import random
import re
import signal
import socket
import threading

import small_run
from small_run import ADTRAIN, MPIRUN, TORCHRUN, rank_processes

RANKS = 3
LAUNCHERS = {  # mpirun kills one second after SIGTERM, in which a rank that starts on a busy machine says nothing yet
    "mpirun": [MPIRUN, "--mca", "odls_base_sigkill_timeout", int(8 * small_run.PATIENCE), "--oversubscribe", "--bind-to", "none", "-np", RANKS, ADTRAIN],
    "torchrun": [TORCHRUN, "--no-python", "--standalone", "--nproc-per-node", RANKS, ADTRAIN],
    "adtrain launch": [ADTRAIN, "launch", "--nproc", RANKS, "--logs", "logs", "--grace", 10]}
ENDLESS = ["--set", "train_timesteps=1000000", "--set", "eval_interval=0", "--set", "summary_interval=500"]
KILLS = int(os.environ.get("ADTRAIN_TEST_KILLS", "2"))  # of a launcher; the long form of the test takes 24
# In which a process has none of the program's code yet, and cannot hear that another failed; a sanitizer's takes longer.
LOADER_SECONDS = 0.05 if small_run.PATIENCE == 1 else 0.5 * small_run.PATIENCE


class Starting(small_run.SmallRun):
    def setUp(self):
        super().setUp()
        self.folder = self.folder.resolve()

    def begin(self, launcher, *settings):
        """Returns when all ranks have a process."""
        process = self.start([*LAUNCHERS[launcher], "small.yaml", *ENDLESS, *settings])
        self.addCleanup(self.end, process)
        deadline = small_run.time.monotonic() + 60 * small_run.PATIENCE
        while len(rank_processes(self.folder)) < RANKS and process.poll() is None:
            self.assertLess(small_run.time.monotonic(), deadline)
            small_run.time.sleep(0.005)
        small_run.time.sleep(LOADER_SECONDS)
        return process

    def strike(self, launcher, number, delay, *settings):
        """Sends a rank of a new run a signal; returns it and how the run has ended."""
        for left_by_the_last_one in ("logs", "runs"):
            small_run.shutil.rmtree(self.folder / left_by_the_last_one, ignore_errors=True)
        process = self.begin(launcher, *settings)
        small_run.time.sleep(delay)
        victim = random.randrange(RANKS)
        os.kill(rank_processes(self.folder)[victim], number)
        finished = small_run.finish(process, 60)
        self.wait_for(lambda: not rank_processes(self.folder), "no rank survives", timeout=5)
        return victim, finished


class Start(Starting):
    def assert_named_by_all(self, victim, finished):
        words = self.words_of_ranks(finished)
        # torchrun sends SIGTERM to the others at once, which ends a rank that is still loading its libraries: it says nothing.
        silent = len(re.findall(r"exitcode\s*: -15\b", words))
        named = re.findall(r"adtrain ended: rank (\d+) of 3 failed first", words)
        self.assertLessEqual(set(named), {str(victim)}, words)
        self.assertGreaterEqual(len(named), RANKS - 1 - silent, words)
        self.assertNotEqual(0, finished.code)

    def test_a_rank_that_is_killed_at_any_moment_is_named_by_all_others(self):
        self.collect()
        for launcher in LAUNCHERS:
            for kill in range(KILLS):
                delay = random.random()
                with self.subTest(launcher, kill=kill, delay=delay):
                    victim, finished = self.strike(launcher, signal.SIGKILL, delay)
                    self.assert_named_by_all(victim, finished)
                    self.assert_within(20, finished.seconds)
                    if launcher == "adtrain launch":
                        self.assertRegex(finished.output, rf"adtrain launch: rank {victim} of 3 failed first: SIGKILL")

    def test_a_termination_at_any_moment_of_the_start_is_no_failure_of_a_rank(self):
        """The run ends by the signal where not all ranks have met yet, and else as one that was stopped."""
        self.collect()
        for stop in range(3 * KILLS):
            delay = 2 * random.random()
            for left_by_the_last_one in ("logs", "runs"):
                small_run.shutil.rmtree(self.folder / left_by_the_last_one, ignore_errors=True)
            with self.subTest(stop=stop, delay=delay):
                process = self.begin("adtrain launch")
                small_run.time.sleep(delay)
                process.send_signal(signal.SIGTERM)
                finished = small_run.finish(process, 60)
                words = self.words_of_ranks(finished)
                stopped = (self.run_folder() / "requeue").exists()
                # A process dies of the signal before it has loaded enough to hold it, and others may find it gone.
                if stopped or "before all ranks had met" not in words:
                    self.assertNotIn("failed first", words)
                    self.assertFalse((self.run_folder() / "failure.txt").exists(), words)
                self.assertEqual(75 if stopped else 128 + signal.SIGTERM, finished.code, words)
                self.assertEqual(stopped, any((self.run_folder() / "checkpoints").glob("step-*")), words)
                self.assert_within(20, finished.seconds)

    def test_a_rank_that_is_stopped_before_all_have_met_is_named(self):
        self.collect()
        for launcher in ("torchrun", "adtrain launch"):
            with self.subTest(launcher):
                victim, finished = self.strike(launcher, signal.SIGSTOP, 0, "--set", "silent_rank_seconds=2")
                self.assert_named_by_all(victim, finished)


class Meeting(small_run.SmallRun):
    """Ranks that were started by hand."""

    def rank(self, rank, ranks, port, *settings):
        return self.start([ADTRAIN, "test", "--largest", 1, "--set", "device=cpu", *settings],
                          **small_run.place(rank, ranks, port))

    def test_another_service_at_the_meeting_point_holds_nobody(self):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
        self.addCleanup(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        port = server.server_address[1]
        finished = small_run.finish(self.rank(1, 2, port, "--set", "rendezvous_timeout_seconds=3"), 60)
        self.assertEqual(3, finished.code, finished.output)
        self.assert_within(20, finished.seconds)
        self.assertRegex(finished.output, rf"127.0.0.1:{port} .*something else, which answers 'HTTP/1.0 ")

    def test_a_service_that_says_nothing_holds_nobody(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            finished = small_run.finish(self.rank(1, 2, port, "--set", "rendezvous_timeout_seconds=3"), 60)
        self.assertEqual(3, finished.code, finished.output)
        self.assert_within(20, finished.seconds)
        self.assertRegex(finished.output, rf"127.0.0.1:{port} .*accepts connections there and says nothing")

    def assert_all_say(self, ranks, pattern, seconds):
        for process in ranks:
            finished = small_run.finish(process, 60)
            self.assertEqual(3, finished.code, finished.output)
            self.assertRegex(finished.output, pattern)
            self.assertNotIn("GLOO_SOCKET_IFNAME", finished.output)
            self.assert_within(seconds, finished.seconds)

    def test_a_rank_too_few_is_named(self):
        port, patience = small_run.free_port(), ("--set", "rendezvous_timeout_seconds=8")
        self.assert_all_say([self.rank(rank, 3, port, *patience) for rank in (0, 1)],
                            r"waited 8\.\d s at .* for rank 2;", 25)

    def test_another_number_of_ranks_is_refused_at_once(self):
        port = small_run.free_port()
        self.assert_all_say([self.rank(0, 2, port), self.rank(1, 3, port)],
                            "Rank 1 does not belong .* one of 3 ranks and rank 0 as one of 2", 30)

    def test_one_rank_twice_is_refused_at_once(self):
        port = small_run.free_port()
        self.assert_all_say([self.rank(0, 3, port), self.rank(1, 3, port), self.rank(1, 3, port)],
                            "Rank 1 does not belong .* it has come twice, as process", 30)

    def test_a_second_rank_0_blames_no_other_and_ends_alone(self):
        port = small_run.free_port()
        first = self.rank(0, 2, port)
        self.addCleanup(self.end, first)

        def serves():
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", port)) == 0

        self.wait_for(serves, "rank 0 at the meeting point")
        second = small_run.finish(self.rank(0, 2, port), 60)
        self.assertEqual(3, second.code, second.output)
        self.assertIn("by a second process that was given rank 0", second.output)
        self.assertIn("adtrain ended: rank 0 of 2 failed first", second.output)
        self.assertNotIn("rank 1", second.output)
        self.assert_done(small_run.finish(self.rank(1, 2, port), 60))
        self.assert_done(small_run.finish(first, 60))

    def test_strangers_come_too_late_and_only_by_loopback(self):
        """While ranks meet, strangers may come and say what they like; afterwards nobody listens."""
        port = small_run.free_port()
        first = self.rank(0, 2, port)

        def crowd():
            try:
                strangers = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(2000)]
            except OSError:
                return None
            for number, stranger in enumerate(strangers):
                stranger.sendall(random.randbytes(number % 100 * 50))
            return strangers

        strangers = []
        self.wait_for(lambda: strangers.append(crowd()) or strangers[-1], "rank 0 at the meeting point")
        self.assert_done(small_run.finish(self.rank(1, 2, port), 60))
        self.assert_done(small_run.finish(first, 60))


class KilledLauncher(Starting):
    def test_ranks_whose_launcher_is_gone_save_and_end(self):
        self.collect()
        for launcher in LAUNCHERS:
            with self.subTest(launcher):
                process = self.begin(launcher, "--set", "ckpt_interval=1000000")
                metrics = self.run_folder() / "metrics.jsonl"
                self.wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") > 1, "steps of training")
                process.kill()
                self.wait_for(lambda: not rank_processes(self.folder), "the ranks' end", timeout=40)
                finished = small_run.finish(process, 20)
                if launcher != "mpirun":  # its ranks' words are lost with it
                    self.assertRegex(finished.output, f"{launcher} .process .*is gone and has left its ranks behind.*--resume")
                saved = list((self.run_folder() / "checkpoints").glob("step-*"))
                self.assertTrue(saved or launcher == "mpirun", finished.output)  # its library ends the process itself
                small_run.shutil.rmtree(self.run_folder())

    def test_a_run_without_a_launcher_is_left_alone(self):
        self.collect()
        script = f"{ADTRAIN} small.yaml > output 2>&1 & until [ -s runs/small/metrics.jsonl ]; do sleep 0.1; done"
        slow = {"ADTRAIN_FAULT": "slow@0:1-3"}  # for six seconds, in which the shell ends
        small_run.finish(self.start(["bash", "-c", script], **slow), 60)  # it is gone, the run goes on
        self.wait_for(lambda: "done: 20 steps" in (self.folder / "output").read_text(), "the run's end")


if __name__ == "__main__":
    small_run.main()
