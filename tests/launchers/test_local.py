"""`adtrain launch`, the launcher of its own, and `adtrain test` under every launcher that needs no daemon."""
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import time
import unittest

import small_run
from small_run import ADTRAIN, DEVICE, MPIRUN, TORCHRUN

ENDLESS = ["--set", "train_timesteps=1000000", "--set", "ckpt_interval=1000000", "--set", "eval_interval=0"]


def ranks_of(launcher):
    """{rank: process id} of the launcher's children that are the program by now."""
    children = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    found = {}
    for child in children:
        variables = pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        rank = [int(variable[5:]) for variable in variables if variable.startswith(b"RANK=")]
        if rank:
            found[rank[0]] = int(child)
    return found


def alive(process):
    try:
        return re.search(r"^State:\s+(\w)", pathlib.Path(f"/proc/{process}/status").read_text(), re.M)[1] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def last_line(finished):
    return finished.output.rstrip().splitlines()[-1]


class LocalLaunch(small_run.SmallRun):
    def launch(self, ranks, *arguments, options=()):
        return self.start([ADTRAIN, "launch", "--nproc", ranks, "--logs", "logs", *options, *arguments])

    def train_on_and_on(self, ranks, options=()):
        """(launcher, {rank: process id}) of a run that has taken some steps and would take a million."""
        self.collect()
        launcher = self.launch(ranks, "small.yaml", *ENDLESS, options=options)
        self.addCleanup(self.end, launcher)
        metrics = self.run_folder() / "metrics.jsonl"
        self.wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") > 3, "steps of training")
        return launcher, ranks_of(launcher.pid)

    def saved_steps(self):
        return [int(folder.name[5:]) for folder in (self.run_folder() / "checkpoints").glob("step-*")]

    def assert_nobody_survives(self, processes):
        self.assertEqual([], [process for process in processes.values() if alive(process)])

    def test_trains_to_the_same_weights_as_torchrun(self):
        self.collect()
        launched = small_run.finish(self.launch(3, "small.yaml", "--set", "run_name=launched"), 100)
        self.assert_done(launched)
        self.assertIn("ranks 1 to 2 write to logs/rank-N.log", launched.output)
        self.assertIn("20/20 steps", launched.output)  # rank 0's progress
        self.assertEqual(["rank-1.log", "rank-2.log"], sorted(log.name for log in (self.folder / "logs").iterdir()))
        self.assert_done(self.run_command([TORCHRUN, "--no-python", "--standalone", "--nproc-per-node", 3, ADTRAIN,
                                           "small.yaml", "--set", "run_name=reference"]))
        self.assertEqual(self.weights(name="launched"), self.weights(name="reference"))

    def test_a_killed_rank_ends_all_and_is_named_last(self):
        launcher, processes = self.train_on_and_on(3)
        self.assertEqual([0, 1, 2], sorted(processes))
        os.kill(processes[1], signal.SIGKILL)
        finished = small_run.finish(launcher, 60)
        self.assertEqual(128 + signal.SIGKILL, finished.code, finished.output)
        self.assertRegex(last_line(finished), r"rank 1 of 3 failed first: SIGKILL \(signal 9")
        self.assert_within(30, finished.seconds)
        self.assert_nobody_survives(processes)

    def test_a_rank_that_does_not_end_is_killed_after_the_grace(self):
        launcher, processes = self.train_on_and_on(3, options=["--grace", 1])
        os.kill(processes[1], signal.SIGSTOP)
        os.kill(processes[2], signal.SIGABRT)
        finished = small_run.finish(launcher, 60)
        self.assertEqual(128 + signal.SIGABRT, finished.code, finished.output)
        self.assertIn("rank 1 of 3 did not end and is killed", finished.output)
        self.assertRegex(last_line(finished), r"rank 2 of 3 failed first: SIGABRT")
        self.assert_nobody_survives(processes)

    def test_a_mistake_is_told_once_with_its_own_code(self):
        finished = small_run.finish(self.launch(2, "small.yaml", "--set", "lrr=1"), 60)
        self.assertEqual(2, finished.code, finished.output)
        self.assertEqual(1, finished.output.count("did you mean"), finished.output)
        self.assertRegex(last_line(finished), r"rank 0 of 2 failed first: exit code 2 \(bad configuration")

    def test_a_request_to_stop_reaches_all_ranks_once(self):
        for number, how in ((signal.SIGUSR1, "once"), (signal.SIGTERM, "twice"), (signal.SIGINT, "to the group")):
            with self.subTest(number.name):
                launcher, processes = self.train_on_and_on(2, options=["--grace", 5])
                # A terminal sends Ctrl-C to the whole group, and `timeout` signals its child and then the group.
                os.killpg(launcher.pid, number) if how == "to the group" else launcher.send_signal(number)
                if how == "twice":
                    time.sleep(0.05)
                    launcher.send_signal(number)
                finished = small_run.finish(launcher, 60)
                self.assertEqual(75, finished.code, finished.output)
                stopped_after = int(re.search(r"stopped after step (\d+)", finished.output)[1])
                self.assertEqual([stopped_after], self.saved_steps())
                self.assert_nobody_survives(processes)
                resumed = small_run.finish(self.launch(2, "small.yaml", *ENDLESS, "--resume", "--stop-after",
                                                       stopped_after + 2), 60)
                self.assertEqual(75, resumed.code, resumed.output)
                self.assertIn(f"resuming after step {stopped_after}", resumed.output)
                shutil.rmtree(self.run_folder())

    def test_ranks_die_with_the_launcher(self):
        launcher, processes = self.train_on_and_on(2)
        launcher.kill()
        launcher.communicate(timeout=30 * small_run.PATIENCE)
        self.wait_for(lambda: not any(map(alive, processes.values())), "the ranks' end", timeout=5)

    def test_its_own_mistakes_are_usage_errors(self):
        for arguments in ([], ["--nproc", "0", "test"], ["--nproc", "2"], ["--nproc", "two", "test"],
                          ["--grace", "-1", "test"], ["--nproc", "2", "launch", "test"],
                          ["--nproc", "2", "collect", "small.yaml"]):
            finished = self.run_command([ADTRAIN, "launch", *arguments], timeout=30)
            self.assertEqual(2, finished.code, finished.output)
        inside = self.run_command([MPIRUN, "--oversubscribe", "-np", 2, ADTRAIN, "launch", "--nproc", 2, "test"])
        self.assertEqual(3, inside.code, inside.output)
        self.assertIn("starts all ranks itself", inside.output)

    def test_rank_0_keeps_the_terminal(self):
        ours, theirs = pty.openpty()
        launcher = subprocess.Popen([ADTRAIN, "launch", "--nproc", "2", "--logs", "logs", "test", "--largest", "1"],
                                    cwd=self.folder, env=small_run.environment(TERM="xterm"), stdin=theirs,
                                    stdout=theirs, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(theirs)
        self.assertEqual(0, launcher.wait(60 * small_run.PATIENCE))
        self.assertIn(b"\x1b[1madtrain self test", os.read(ours, 65536))  # bold, as on terminals alone
        os.close(ours)


# CUDA's runtime on a host with four GPUs: like the real one, it shows those that the variable names, up to the first that is none.
FOUR_GPUS = """
#include <stdlib.h>
#include <string.h>
int cudaGetDeviceCount(int* count) {
  const char* ids = getenv("CUDA_VISIBLE_DEVICES");
  *count = ids ? 0 : 4;
  for (; ids && *ids; ids += strcspn(ids, ","), ids += *ids == ',') {
    char* end = 0;
    long id = strtol(ids, &end, 10);
    if (end == ids || id < 0 || id > 3) break;
    ++*count;
  }
  return 0;
}
"""

SHOWS_ITS_GPUS = """#!/bin/sh
echo "rank $RANK of $WORLD_SIZE, local rank $LOCAL_RANK, GPUs $CUDA_VISIBLE_DEVICES"
"""


class GpuIds(small_run.SmallRun):
    def setUp(self):
        super().setUp()
        (self.folder / "shows").write_text(SHOWS_ITS_GPUS)
        (self.folder / "shows").chmod(0o755)
        self.library = small_run.preloadable(FOUR_GPUS, self.folder)

    def launch(self, *options, **more_environment):
        """What the ranks wrote, that of rank 0 first; or the launcher's error."""
        finished = self.run_command([ADTRAIN, "launch", "--logs", "logs", *options, "--program", "./shows", "word"],
                                    LD_PRELOAD=self.library, **more_environment)
        return finished.code, self.words_of_ranks(finished)

    def test_one_rank_a_gpu_in_this_order(self):
        code, words = self.launch("--gpu-ids", "2,0,3")
        self.assertEqual(0, code, words)
        self.assertIn("3 ranks, one for each of --gpu-ids 2,0,3", words)
        for rank in range(3):
            self.assertIn(f"rank {rank} of 3, local rank {rank}, GPUs 2,0,3\n", words)

    def test_fewer_ranks_take_the_first_ones(self):
        code, words = self.launch("--gpu-ids", "3,1", "--nproc-per-node", 1)
        self.assertEqual(0, code, words)
        self.assertIn("rank 0 of 1, local rank 0, GPUs 3,1\n", words)

    def test_within_those_that_are_visible(self):
        code, words = self.launch("--gpu-ids", "3", CUDA_VISIBLE_DEVICES="1,3")
        self.assertEqual(0, code, words)
        self.assertIn("local rank 0, GPUs 3\n", words)

    def test_contradictions_start_no_rank(self):
        for expected, message, options, variables in (
                (2, "found 3 ranks for the 2 GPUs of --gpu-ids 0,2", ["--gpu-ids", "0,2", "--nproc", 3], {}),
                (2, "found GPU 1 twice in '1,1'", ["--gpu-ids", "1,1"], {}),
                (2, "found 'first' in 'first'", ["--gpu-ids", "first"], {}),
                (2, "GPU 2 is not in CUDA_VISIBLE_DEVICES='0,1'", ["--gpu-ids", "0,2"], {"CUDA_VISIBLE_DEVICES": "0,1"}),
                (3, "CUDA shows 1 of these 3 GPUs, and stops at 4", ["--gpu-ids", "0,4,1"], {}),
                (3, "CUDA shows none of these GPUs", ["--gpu-ids", "7"], {})):
            with self.subTest(message):
                code, words = self.launch(*options, **variables)
                self.assertEqual(expected, code, words)
                self.assertIn(message, words)
                self.assertNotIn("local rank", words)


@unittest.skipUnless(DEVICE == "cuda", "needs GPUs")
class GpuIdsOfGpus(small_run.SmallRun):
    def uuids(self, *launcher):
        """As the first rank sees its GPUs."""
        report = subprocess.check_output([ADTRAIN, *launcher, "env", "--json"], cwd=self.folder, stderr=subprocess.DEVNULL,
                                         env=small_run.environment())
        return [gpu["uuid"] for gpu in json.loads(report)["gpus"]]

    def assert_tested_on(self, gpu_ids):
        self.assert_done(self.run_command([ADTRAIN, "launch", "--gpu-ids", gpu_ids, "--logs", "logs", "test", "--largest", 1,
                                           "--set", "device=cuda"]))

    def test_one_of_them_by_number_and_by_name(self):
        gpus = self.uuids()
        self.assertEqual([gpus[-1]], self.uuids("launch", "--gpu-ids", str(len(gpus) - 1)))
        self.assertEqual([gpus[-1]], self.uuids("launch", "--gpu-ids", gpus[-1]))
        self.assert_tested_on(gpus[-1])

    def test_cuda_shows_these_in_this_order(self):
        gpus = self.uuids()
        if len(gpus) < 3:
            self.skipTest("needs three GPUs")
        self.assertEqual([gpus[1], gpus[0]], self.uuids("launch", "--gpu-ids", "1,0"))
        self.assert_tested_on("2,0")


class LocalScript(small_run.SmallRun):
    """launch/local.sh."""
    SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "launch" / "local.sh"

    def script(self, *arguments, **variables):
        return self.start(["bash", self.SCRIPT, "small.yaml", *arguments], ADTRAIN=ADTRAIN, RANKS="2", **variables)

    def log(self, name):
        (file,) = self.folder.glob(f"runs/launch-logs/local-*/{name}.log")
        return file.read_text()

    def test_checks_trains_and_logs(self):
        self.collect()
        finished = small_run.finish(self.script(), 120)
        self.assert_done(finished)
        self.assertIn("self test PASSED: 2 ranks on 1 host", finished.output)
        self.assertIn("done: 20 steps", finished.output)
        self.assertIn("done: 20 steps", self.log("training"))
        self.assertIn("self test PASSED", self.log("test"))

    def test_a_signal_saves_and_the_same_command_continues(self):
        self.collect()
        script = self.script(*ENDLESS)
        self.addCleanup(self.end, script)
        metrics = self.run_folder() / "metrics.jsonl"
        self.wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") > 3, "steps of training")
        script.send_signal(signal.SIGUSR1)
        stopped = small_run.finish(script, 60)
        self.assertEqual(75, stopped.code, stopped.output)
        self.assertIn("the same command continues", stopped.output)
        step = re.search(r"stopped after step (\d+)", stopped.output)[1]
        resumed = small_run.finish(self.script(*ENDLESS, "--stop-after", int(step) + 2), 120)
        self.assertEqual(75, resumed.code, resumed.output)
        self.assertIn(f"resuming after step {step}", resumed.output)

    def test_a_run_continues_whose_initial_weights_are_gone(self):
        self.collect()
        self.assert_done(self.run_command([ADTRAIN, "small.yaml", "--set", "run_name=source"]))
        tuned = ["--set", "init_from=runs/source", "--stop-after"]
        begun = small_run.finish(self.script(*tuned, 3), 120)
        self.assertEqual(75, begun.code, begun.output)
        self.assertIn("init_from runs/source: ", begun.output)
        shutil.rmtree(self.run_folder("source"))
        resumed = small_run.finish(self.script(*tuned, 6), 120)
        self.assertEqual(75, resumed.code, resumed.output)
        self.assertIn("resuming after step 3", resumed.output)

    def test_a_mistake_starts_no_rank(self):
        wrong = small_run.finish(self.script("--set", "lr=fast"), 60)
        self.assertEqual(2, wrong.code, wrong.output)
        self.assertFalse((self.folder / "runs").exists())
        no_ids = small_run.finish(self.script(GPUS="first"), 60)
        self.assertEqual(2, no_ids.code, no_ids.output)
        self.assertIn("--gpu-ids: found 'first'", no_ids.output)
        no_gpu = small_run.finish(self.script("--set", "device=cuda", CUDA_VISIBLE_DEVICES=""), 60)
        self.assertEqual(3, no_gpu.code, no_gpu.output)
        self.assertIn("training was not started", no_gpu.output)
        self.assertFalse(self.run_folder().exists())


class SelfTest(small_run.SmallRun):
    LAUNCHERS = {"a single process": (1, []),
                 "adtrain launch": (2, [ADTRAIN, "launch", "--nproc", 2]),
                 "mpirun": (2, [MPIRUN, "--oversubscribe", "--bind-to", "none", "-np", 2, ADTRAIN]),
                 "torchrun": (2, [TORCHRUN, "--no-python", "--standalone", "--nproc-per-node", 2, ADTRAIN])}
    # As each device is shown, and how far the all-reduces go: in sizes, and the largest in MiB.
    SHOWN, SIZES, LARGEST = {"cpu": ("CPU, ", 3, 1), "cuda": (r"NVIDIA .*\(cuda:\d+\)$", 5, 256)}[DEVICE]

    def test_passes_under_every_launcher(self):
        for name, (ranks, launcher) in self.LAUNCHERS.items():
            with self.subTest(name):
                finished = self.run_command([*(launcher or [ADTRAIN]), "test", "--set", f"device={DEVICE}",
                                             "--largest", self.LARGEST])
                self.assert_done(finished)
                self.assertIn(f"launcher       {name}: ", finished.output)
                for rank in range(ranks):
                    self.assertRegex(finished.output, rf"(?m)^ +{rank} +{rank}  {os.uname().nodename} +{self.SHOWN}")
                exact = re.findall(r"(?m)[KM]iB .*  exact$", finished.output)
                self.assertEqual(self.SIZES, len(exact), finished.output)
                self.assertRegex(finished.output, rf"(?m)^self test PASSED: {ranks} ranks? on 1 host")

    def test_shows_its_figures_as_json(self):
        done = subprocess.run([ADTRAIN, "launch", "--nproc", "2", "--logs", "logs", "test", "--json", "--largest", "1"],
                              cwd=self.folder, env=small_run.environment(), capture_output=True,
                              timeout=60 * small_run.PATIENCE, check=True, text=True)
        self.assertIn("self test PASSED: 2 ranks", done.stderr)
        report = json.loads(done.stdout)
        self.assertTrue(report["passed"])
        self.assertEqual([1 << 10, 32 << 10, 1 << 20], [entry["bytes"] for entry in report["all-reduce"]])
        for entry in report["all-reduce"]:
            self.assertTrue(entry["exact"])
            self.assertAlmostEqual(entry["bytes"] / entry["seconds"], entry["algorithm bytes per second"], places=0)
        self.assertEqual(1, len(set(report["training step"]["checksums"])))

    def test_says_what_is_missing(self):
        alone = self.run_command([ADTRAIN, "test", "--set", "rendezvous_timeout_seconds=2"],
                                 **small_run.place(0, 2, small_run.free_port()))
        self.assertEqual(3, alone.code, alone.output)
        self.assertRegex(alone.output, r"self test FAILED at its start: .*for rank 1")
        no_gpu = self.run_command([*self.LAUNCHERS["adtrain launch"][1], "test", "--set", "device=cuda"],
                                  CUDA_VISIBLE_DEVICES="")
        self.assertEqual(3, no_gpu.code, no_gpu.output)
        self.assertRegex(no_gpu.output, r"self test FAILED at its start: .*rank 0 sees no GPU")

    def test_a_lost_rank_fails_it(self):
        output = self.folder / "output"
        with output.open("w") as file:
            launcher = subprocess.Popen([*map(str, self.LAUNCHERS["adtrain launch"][1]), "test", "--set",
                                         f"device={DEVICE}", "--largest", "256"], cwd=self.folder,
                                        env=small_run.environment(), stdin=subprocess.DEVNULL, stdout=file,
                                        stderr=subprocess.STDOUT)
        self.addCleanup(launcher.kill)
        self.wait_for(lambda: "adtrain self test" in output.read_text(), "the first words of the self test")
        os.kill(ranks_of(launcher.pid)[1], signal.SIGKILL)
        self.assertEqual(128 + signal.SIGKILL, launcher.wait(60 * small_run.PATIENCE), output.read_text())
        self.assertIn("adtrain ended: rank 1 of 2 failed first", output.read_text())
        if DEVICE == "cpu":  # a rank that waits for its GPU is ended by its watch, before it can sum up
            self.assertRegex(output.read_text(),
                             r"self test FAILED: 2 ranks on 1 host: (broadcast|all-reduce of .*|training step): ")


if __name__ == "__main__":
    small_run.main()
