"""The job scripts of launch/slurm on a SLURM cluster of two virtual nodes that this test starts."""
import array
import json
import os
import pathlib
import signal
import struct
import time

import slurm_cluster
import small_run

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "launch" / "slurm"

STEPS = 40
LONGER = ["--set", f"train_timesteps={STEPS}", "--set", "eval_interval=20", "--set", "ckpt_interval=20"]
# The first rank sleeps eight seconds from step 12 on: the job is in its midst when something happens to it.
LINGER = {"ADTRAIN_FAULT": "slow@0:12-15"}
ENDLESS = ["--set", "train_timesteps=1000000", "--set", "eval_interval=0", "--set", "ckpt_interval=1000000"]

# Takes the place of the program: every rank but the first leaves two seconds late, as where a GPU is slow to let go.
LEAVES_LATE = """#!/usr/bin/env bash
trap : USR1
"$ADTRAIN_ITSELF" "$@" &
wait $! && status=0 || status=$?
if ((status > 128)); then wait $! && status=0 || status=$?; fi
if ((${SLURM_PROCID:-0} > 0)); then sleep 2; fi
exit $status
"""


def floats(weights):
    """All numbers of a safetensors file of 32-bit floats."""
    header = struct.unpack("<Q", weights[:8])[0]
    return array.array("f", weights[8 + header:])


class SlurmTest(small_run.SmallRun):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(slurm_cluster.SlurmCluster())

    def setUp(self):
        super().setUp()
        self.collect()

    def submit(self, script, *arguments, ranks_per_node=2, tasks_per_node=2, options=(), **environment):
        """Two GPUs, as SLURM believes, and two ranks a node; the configuration says that they train on the CPU."""
        options = [*options, f"--ntasks-per-node={tasks_per_node}", "--cpus-per-task=1", "--time=5", f"--chdir={self.folder}"]
        if not any(option.startswith("--gres") for option in options):
            options.append(f"--gpus-per-node={ranks_per_node}")
        programs = {"ADTRAIN": small_run.ADTRAIN, "TORCHRUN": small_run.TORCHRUN}
        job = self.cluster.command("sbatch", "--parsable", *options, SCRIPTS / script, "small.yaml", *arguments,
                                   **(programs | environment)).strip()
        self.addCleanup(self.cluster.command, "scancel", "--signal=KILL", "--full", job, check=False)
        return job

    def log(self, job):
        """The job's log, and what its tasks wrote to theirs."""
        files = [self.folder / f"adtrain-{job}.log", *sorted(self.folder.glob(f"adtrain-{job}/*.log"))]
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')}" for file in files if file.exists())

    def await_end(self, job, timeout=90):
        """What SLURM says of the job that has ended."""
        try:
            self.wait_for(lambda: self.cluster.has_ended(job), f"the end of job {job}", timeout)
        except self.failureException as late:
            self.fail(f"{late}\n{self.cluster.job(job)}\n{self.log(job)}\n{self.cluster.logs()}")
        return self.cluster.job(job)

    def assert_completed(self, job, restarts=0, log=None):
        end = self.await_end(job)
        self.assertEqual((end["JobState"], end["ExitCode"], end["Restarts"]), ("COMPLETED", "0:0", str(restarts)),
                         self.log(log or job))

    def steps_done(self, name="small"):
        metrics = self.run_folder(name) / "metrics.jsonl"
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        return max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=0)

    def await_training(self, job):
        def trains():
            self.assertFalse(self.cluster.has_ended(job), self.log(job))
            return self.steps_done() > 5
        self.wait_for(trains, f"job {job} trains")

    def uninterrupted(self):
        """The weights after the last step of four ranks that nothing disturbs."""
        if not hasattr(SlurmTest, "reference"):
            job = self.submit("several_nodes.sbatch", *LONGER, "--set", "run_name=reference")
            self.assert_completed(job)
            SlurmTest.reference = self.weights(STEPS, "reference")
        return SlurmTest.reference

    def signal_until_gone(self, processes):
        """`processes` are file descriptors of theirs, so that nobody else is hit; all are closed."""
        def gone(process):
            try:
                signal.pidfd_send_signal(process, signal.SIGUSR1)
                return False
            except ProcessLookupError:
                return True
        deadline = time.monotonic() + 30
        while not all([gone(process) for process in processes]):
            self.assertLess(time.monotonic(), deadline, "ranks did not end within 30 s of a signal")
            time.sleep(0.001)
        for process in processes:
            os.close(process)

    def newest_step(self):
        return max(int(folder.name.removeprefix("step-"))
                   for folder in (self.run_folder() / "checkpoints").glob("step-*"))


class Training(SlurmTest):
    def test_two_nodes_train_as_mpirun_does(self):
        self.assert_done(self.run_command([small_run.MPIRUN, "-np", "4", "--oversubscribe", small_run.ADTRAIN,
                                           "small.yaml", *LONGER]))
        expected, found = floats(self.weights(STEPS)), floats(self.uninterrupted())
        self.assertEqual(len(found), len(expected))
        self.assertLess(max(abs(a - b) for a, b in zip(found, expected)), 1e-3)

    def test_a_log_a_rank_and_the_first_ones_in_the_jobs(self):
        job = self.submit("several_nodes.sbatch")
        self.assert_completed(job)
        logs = {file.name: file.read_text() for file in (self.folder / f"adtrain-{job}").iterdir()}
        self.assertEqual(sorted(logs), [f"rank-{rank}.log" for rank in range(4)])
        self.assertIn("on nodes n[01-02]", logs["rank-0.log"])
        self.assertIn("done: 20 steps", logs["rank-0.log"])
        self.assertIn(logs["rank-0.log"], (self.folder / f"adtrain-{job}.log").read_text())

    def test_one_node(self):
        job = self.submit("one_node.sbatch")
        self.assert_completed(job)
        self.assertIn("processes              2 (2 on this host)", self.log(job))

    def test_gpus_and_memory_by_the_options_that_clusters_want(self):
        """`--gres` and `--mem`, beside the script's own line."""
        job = self.submit("one_node.sbatch", options=["--gres=gpu:2", "--mem=500M"])
        self.assert_completed(job)
        self.assertIn("processes              2 (2 on this host)", self.log(job))

    def test_modules_and_a_file_of_settings_come_first(self):
        modules = self.folder / "modules" / "init"
        modules.mkdir(parents=True)
        # As environment modules define it: unset variables and errors must not end the script.
        (modules / "bash").write_text('module() { [ "$1" = load ] && shift; echo "loaded $* $UNSET" >>"$LOADED"; '
                                      'case "$*" in *missing*) return 1 ;; esac; false; return 0; }\n')
        settings = self.folder / "settings.sh"
        settings.write_text(f'export ADTRAIN={small_run.ADTRAIN}\necho "sourced $UNSET" >>"$LOADED"\n')
        loaded = self.folder / "loaded"
        variables = {"MODULESHOME": str(modules.parent), "LOADED": str(loaded), "ADTRAIN": "",
                     "ADTRAIN_ENVIRONMENT": str(settings)}
        job = self.submit("one_node.sbatch", ADTRAIN_MODULES="cuda/13 openmpi", **variables)
        self.assert_completed(job)
        self.assertEqual(["loaded cuda/13 openmpi ", "sourced "], loaded.read_text().splitlines())
        job = self.submit("one_node.sbatch", ADTRAIN_MODULES="missing/1", **variables)
        self.assertEqual(self.await_end(job)["ExitCode"], "2:0", self.log(job))
        self.assertIn("`module load missing/1` (ADTRAIN_MODULES) ended with exit code 1", self.log(job))

    def test_ranks_that_each_have_a_device_map_score_as_one_process_does(self):
        self.assert_done(self.run_command([small_run.ADTRAIN, "small.yaml", "--set", "train_timesteps=4", "--set",
                                           "num_warmup_steps=1", "--set", "ckpt_interval=4"]))
        score = [small_run.ADTRAIN, "score", "runs/small", "--set", "score_tasks=all", "--set", "max_samples=13", "--set",
                 "batch_size=2"]
        self.assert_done(self.run_command([*score, "--set", "output_dir=one"]))
        output = self.cluster.command("srun", "--nodes=2", "--ntasks-per-node=2", f"--chdir={self.folder}", *score,
                                      "--set", "output_dir=ranks", "--set",
                                      "device_map={embeddings: 0, blocks: 1, head: 1}")
        self.assertIn("4, SLURM", output)
        self.assertIn("2 stages, logical devices on the CPU", output)
        for file in ("scores.npy", "scores.csv"):
            self.assertEqual((self.folder / "ranks" / file).read_bytes(), (self.folder / "one" / file).read_bytes())

    def test_a_step_within_an_interactive_job_is_one_run(self):
        output = self.cluster.command("salloc", "--job-name=interactive", "--nodes=1", "--ntasks=4", "srun", "--ntasks=2",
                                      f"--chdir={self.folder}", small_run.ADTRAIN, "small.yaml")
        self.assertIn("processes              2 (2 on this host)", output)
        self.assertIn("done: 20 steps", output)

    def test_a_bad_configuration_ends_the_job_before_its_ranks_start(self):
        job = self.submit("one_node.sbatch", "--set", "lr=fast")
        self.assertEqual(self.await_end(job)["ExitCode"], "2:0", self.log(job))
        self.assertIn("fast", self.log(job))
        self.assertFalse((self.folder / f"adtrain-{job}").exists())


class Stopping(SlurmTest):
    def test_a_warning_ahead_of_the_time_limit_requeues_once_and_the_run_resumes_exactly(self):
        job = self.submit("several_nodes.sbatch", *LONGER, **LINGER)
        self.await_training(job)
        ranks = [os.pidfd_open(rank) for rank in self.cluster.processes(job, "adtrain")]
        self.cluster.command("scancel", "--signal=USR1", job)
        self.signal_until_gone(ranks)  # nodes hear it at different times, so it may also come while a rank leaves
        self.assert_completed(job, restarts=1)
        log = self.log(job)
        self.assertRegex(log, r"stopped after step \d+ of")
        self.assertRegex(log, r"resuming after step \d+")
        self.assertIn("restart 1 of at most 20", log)
        self.assertEqual(self.weights(STEPS), self.uninterrupted())

    def test_torchrun_passes_the_warning_on_although_only_the_task_hears_it(self):
        job = self.submit("several_nodes_torchrun.sbatch", *LONGER, tasks_per_node=1, **LINGER)
        self.await_training(job)
        # As with proctrack/cgroup, which signals a step's tasks and not what they have started.
        tasks = self.cluster.processes(job, "torchrun_task.sh")
        self.assertEqual(len(tasks), 2)
        for task in tasks:
            os.kill(task, signal.SIGUSR1)
        self.assert_completed(job, restarts=1)
        self.assertRegex(self.log(job), r"resuming after step \d+")
        self.assertEqual(self.weights(STEPS), self.uninterrupted())

    def test_of_a_job_array_only_the_task_that_stopped_is_requeued(self):
        array = self.submit("one_node.sbatch", *LONGER, "--set", "run_name=task-%a", options=["--array=1-2"], **LINGER)
        jobs = {}

        def both_train():
            jobs.update({task: self.cluster.job(f"{array}_{task}")["JobId"] for task in (1, 2)})
            return all(self.steps_done(f"task-{task}") > 5 for task in (1, 2))
        self.wait_for(both_train, "both tasks train")
        # One of the tasks has the array's own number, by which SLURM would requeue both.
        stopped = next(task for task, job in jobs.items() if job == array)
        self.cluster.command("scancel", "--signal=USR1", f"{array}_{stopped}")
        for task, job in jobs.items():
            self.assert_completed(f"{array}_{task}", restarts=int(task == stopped), log=job)
            self.assertEqual(STEPS, self.steps_done(f"task-{task}"))
        self.assertRegex(self.log(jobs[stopped]), r"resuming after step \d+")

    def test_a_rank_that_is_killed_for_anothers_early_leave_hides_no_checkpoint(self):
        late = self.folder / "leaves_late"
        late.write_text(LEAVES_LATE)
        late.chmod(0o755)
        job = self.submit("several_nodes.sbatch", *ENDLESS, ADTRAIN=str(late), ADTRAIN_ITSELF=small_run.ADTRAIN,
                          ADTRAIN_MAX_REQUEUES="0")
        self.await_training(job)
        self.cluster.command("scancel", "--signal=USR1", job)
        end = self.await_end(job)
        self.assertEqual((end["JobState"], end["ExitCode"], end["Restarts"]), ("FAILED", "75:0", "0"), self.log(job))
        self.assertIn("no more are allowed", self.log(job))
        self.assertGreater(self.newest_step(), 5)

    def test_a_cancelled_job_saves_and_stays_cancelled(self):
        job = self.submit("several_nodes.sbatch", *ENDLESS)
        self.await_training(job)
        self.cluster.command("scancel", job)
        end = self.await_end(job)
        self.wait_for(lambda: not self.cluster.processes(job, "adtrain"), "all ranks have left", 30)
        self.assertEqual((end["JobState"], end["Restarts"]), ("CANCELLED", "0"), self.log(job))
        self.assertGreater(self.newest_step(), 5, self.log(job))


class Failing(SlurmTest):
    def test_a_killed_rank_ends_the_job_and_leaves_no_survivor(self):
        job = self.submit("several_nodes.sbatch", *ENDLESS)
        self.await_training(job)
        ranks = self.cluster.processes(job, "adtrain")
        self.assertEqual(len(ranks), 4)
        victim = next(process for process, variables in ranks.items() if variables["SLURM_PROCID"] == "3")
        os.kill(victim, signal.SIGKILL)
        end = self.await_end(job, timeout=30)
        self.assertEqual((end["JobState"], end["Restarts"]), ("FAILED", "0"), self.log(job))
        self.assertNotEqual(end["ExitCode"], "0:0")
        self.assertEqual(self.cluster.processes(job, "adtrain"), {})
        self.assertIn("n02: task 3: Killed", self.log(job))

    def test_ranks_that_mpi_started_one_by_one_say_so(self):
        output = self.cluster.command("srun", "--nodes=1", "--ntasks=2", f"--chdir={self.folder}", small_run.MPIRUN,
                                      "-np", "1", small_run.ADTRAIN, "small.yaml", check=False)
        self.assertIn("SLURM_NTASKS=2 but OMPI_COMM_WORLD_SIZE=1", output)
        self.assertIn("Exited with exit code 3", output)


if __name__ == "__main__":
    if reason := slurm_cluster.obstacle():
        small_run.skip(reason)
    small_run.main()
