"""The real `accelerate launch`: its ranks, its flags and its default_config.yaml."""
import json
import os
import pathlib
import sys

import small_run
from small_run import ADTRAIN

ACCELERATE = os.environ.get("ACCELERATE") or str(pathlib.Path(sys.executable).parent / "accelerate")

# As `accelerate config` writes it.
DEFAULT_CONFIG = """compute_environment: LOCAL_MACHINE
debug: false
distributed_type: MULTI_GPU
downcast_bf16: 'no'
enable_cpu_affinity: false
gpu_ids: all
machine_rank: 0
main_process_port: 0
main_training_function: main
mixed_precision: fp16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
use_cpu: false
"""


class AccelerateLaunch(small_run.SmallRun):
    def setUp(self):
        super().setUp()
        self.collect()

    def launch(self, *flags, adtrain=(), **variables):
        """`accelerate launch`, with no configuration of its own but the test's."""
        finished = self.run_command([ACCELERATE, "launch", *flags, "--no_python", ADTRAIN, "small.yaml", *adtrain],
                                    HF_HOME=str(self.folder / "cache"), **variables)
        self.assert_done(finished)
        return finished.output

    def setting(self, key, name="small"):
        """Of the run's resolved configuration."""
        lines = (self.run_folder(name) / "config.yaml").read_text().splitlines()
        return next(line.partition(": ")[2] for line in lines if line.startswith(f"{key}: "))

    def test_starts_its_ranks_and_its_flags_count_where_the_file_is_silent(self):
        output = self.launch("--multi_gpu", "--num_processes", 2, "--main_process_port", 0, "--mixed_precision", "bf16",
                             ACCELERATE_GRADIENT_ACCUMULATION_STEPS="2")
        self.assertIn("processes              2 (2 on this host)", output)
        self.assertIn("mixed_precision: bf16 is what accelerate asks for (ACCELERATE_MIXED_PRECISION)", output)
        self.assertEqual(("bf16", "2"), (self.setting("mixed_precision"), self.setting("gradient_accumulation_steps")))
        self.assertIn("done: 20 steps", output)
        # Ranks and accumulation share the global batch: the same losses as one process has.
        self.assert_done(self.run_command([ADTRAIN, "small.yaml", "--set", "run_name=alone"]))
        losses = [self.last_loss(name) for name in ("small", "alone")]
        self.assertAlmostEqual(*losses, places=4)

    def last_loss(self, name):
        lines = [json.loads(line) for line in (self.run_folder(name) / "metrics.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if "loss" in line][-1]

    def test_the_file_wins_with_a_word(self):
        output = self.launch("--multi_gpu", "--num_processes", 2, "--main_process_port", 0, "--mixed_precision", "fp16",
                             adtrain=["--set", "mixed_precision=bf16"])
        self.assertIn("mixed_precision: bf16 counts, and not what accelerate asks for (ACCELERATE_MIXED_PRECISION=fp16)", output)
        self.assertEqual("bf16", self.setting("mixed_precision"))

    def test_its_default_config_counts(self):
        folder = self.folder / "cache" / "accelerate"
        folder.mkdir(parents=True)
        (folder / "default_config.yaml").write_text(DEFAULT_CONFIG)
        output = self.launch()
        self.assertIn("processes              2 (2 on this host)", output)
        self.assertEqual("fp16", self.setting("mixed_precision"))

    def test_on_the_cpu(self):
        config = self.folder / "small.yaml"
        config.write_text(config.read_text().replace("device: cpu\n", "device: auto\n"))
        output = self.launch("--cpu", "--num_processes", 1)
        self.assertRegex(output, r"small.yaml:\d+: device: cpu is what accelerate asks for \(ACCELERATE_USE_CPU\)")
        self.assertEqual("cpu", self.setting("device"))


if __name__ == "__main__":
    if not os.access(ACCELERATE, os.X_OK):
        small_run.skip(f"{ACCELERATE} is not there")
    small_run.main()
