"""Runs that the program has just made, of every variant: metrics, evaluations, checkpoints, and greedy rollouts that earn
what `adtrain evaluate` measured, episode by episode."""
import json
import shutil
import unittest

import numpy as np

import adtrain
from support import Darkroom, FolderTest, rollout
from support import adtrain as program

CONFIG = """\
env: darkroom
grid_size: 5
train_env_ratio: 0.8
horizon: 10
n_stream: 8
n_steps: 20
total_source_timesteps: 3200
batch_size: 40
n_epochs: 5
tf_n_embd: 32
tf_n_layer: 2
tf_n_head: 2
n_transit: 36
compress_interval: 16
train_timesteps: 80
num_warmup_steps: 10
lr: 0.005
global_batch_size: 16
train_source_timesteps: 400
train_n_stream: 8
loss_positions: all
ckpt_interval: 40
eval_interval: 40
summary_interval: 20
eval_episodes: 12
eval_repeats: 1
eval_tasks: all
eval_sampling: greedy
"""
VARIANTS = {
    "pre_norm": ["transformer_block=pre_norm"],
    "post_norm": ["transformer_block=post_norm"],
    "compressed": ["use_compressed_context=true", "compress_interval=10", "token_type_weight=1.0", "train_timesteps=200"],
    "gpt2": ["model=GPT2"],
    "xland": ["transformer_block=xland"],
}


class Runs(FolderTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "config.yaml").write_text(CONFIG)
        program("collect", "config.yaml", cwd=cls.folder)
        for name, settings in VARIANTS.items():
            program("config.yaml", settings=[*settings, f"run_name={name}"], cwd=cls.folder)
        # Where regions may be longer than in training, the network ends them itself.
        config = cls.folder / "runs/compressed/config.yaml"
        config.write_text(config.read_text().replace("compress_interval: 10\n", "compress_interval: 16\n"))
        cls.run_folder = cls.folder / "runs/pre_norm"
        program("evaluate", "runs/pre_norm", settings=["eval_sampling=sample", "eval_repeats=3", "eval_episodes=2"],
                cwd=cls.folder)

    def copied(self, name):
        return shutil.copytree(self.run_folder, self.folder / name, symlinks=True)

    def test_greedy_rollouts_equal_the_programs(self):
        for name in VARIANTS:
            with self.subTest(variant=name):
                path = self.folder / "runs" / name
                program("evaluate", path, cwd=self.folder)
                measured = next(e for e in adtrain.Run(path).evaluations() if e.summary["eval_sampling"] == "greedy")
                agent = adtrain.load(path)
                found = rollout(agent, Darkroom(range(25), 5, 10), 12)
                np.testing.assert_array_equal(found, measured.returns[measured.tasks.argsort(), 0])
                self.assertGreater(len(np.unique(found)), 2)  # else any actions would be right
                if name == "compressed":
                    self.assertLess(agent._context._previous.min(), 16)  # else only full regions have ended

    def test_metrics(self):
        metrics = adtrain.Run(self.run_folder).metrics()
        lines = [json.loads(line) for line in (self.run_folder / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual(metrics["step"].tolist(), [20, 40, 60, 80])
        self.assertEqual(metrics["loss"].tolist(), [line["loss"] for line in lines if "loss" in line])
        self.assertEqual(np.isnan(metrics["test_loss"]).tolist(), [True, False, True, False])
        self.assertEqual(metrics["peak_memory"].shape, (4, 1))
        self.assertEqual(metrics["memory_parts.parameters"][0].tolist(), lines[0]["memory_parts"]["parameters"])
        self.assertLess(metrics["loss"][-1], metrics["loss"][0])

    def test_metrics_that_are_not_finite_and_a_last_line_that_is_not_complete(self):
        path = self.folder / "odd.jsonl"
        path.write_text('{"step":1,"loss":null,"non_finite":{"loss":"inf"}}\n'
                        '{"step":2,"loss":3.5,"per_rank":[1,2],"texts":["a"]}\n'
                        '{"step":3,"lo')
        metrics = adtrain.Metrics.read(path)
        self.assertEqual(metrics["loss"].tolist(), [float("inf"), 3.5])
        self.assertEqual(metrics["per_rank"][1].tolist(), [1, 2])
        self.assertEqual(list(metrics.frame().columns), ["step", "loss", "per_rank.0", "per_rank.1"])
        self.assertNotIn("accuracy", metrics)
        with self.assertRaisesRegex(KeyError, "found the figure 'accuracy'; expected one of .*: step, loss, per_rank"):
            metrics["accuracy"]
        path.write_text("nothing\n")
        with self.assertRaisesRegex(adtrain.AdtrainError, "odd.jsonl:1: found 'nothing'; expected a JSON object"):
            adtrain.Metrics.read(path)

    def test_evaluations(self):
        found = next(e for e in adtrain.Run(self.run_folder).evaluations() if e.summary["repeats"] == 3)
        self.assertEqual(found.returns.shape, (25, 3, 2))
        np.testing.assert_allclose(found.learning_curve, found.summary["mean"], atol=1e-5)
        frame = found.frame()
        self.assertEqual(list(frame.columns), ["task", "repeat", "episode", "return"])
        newest = adtrain.Run(self.run_folder).evaluation()
        self.assertEqual(newest.folder, self.run_folder / "evaluation" / (self.run_folder / "evaluation/latest").readlink())
        self.assertIn(newest.summary, [e.summary for e in adtrain.Run(self.run_folder).evaluations()])
        row = frame[(frame.task == found.tasks[7]) & (frame.repeat == 2) & (frame.episode == 1)]
        self.assertEqual(row["return"].tolist(), [found.returns[7, 2, 0]])

    def test_evaluations_of_an_earlier_adtrain(self):
        run = self.copied("earlier")
        found = adtrain.Run(run).evaluation()
        shutil.move(run / "evaluation" / found.folder.resolve().name, run / "moved")
        shutil.rmtree(run / "evaluation")
        shutil.copytree(run / "moved", run / "evaluation")
        shutil.move(run / "moved", run / "evaluation-train-step-80-1x12")
        names = [e.folder.name for e in adtrain.Run(run).evaluations()]
        self.assertEqual(names, ["evaluation", "evaluation-train-step-80-1x12"])
        np.testing.assert_array_equal(adtrain.Run(run).evaluations()[0].returns, found.returns)
        self.assertEqual(adtrain.Run(run).evaluation().folder, run / "evaluation")
        self.assertEqual(adtrain.Run(run).evaluation(names[1]).folder, run / names[1])
        shutil.rmtree(run / "evaluation")
        self.assertEqual(adtrain.Run(run).evaluation().folder, run / names[1])  # the only one
        shutil.copytree(run / names[1], run / "evaluation-all")
        with self.assertRaisesRegex(adtrain.AdtrainError, "known to be the newest; .*: evaluation-all, evaluation-train"):
            adtrain.Run(run).evaluation()
        with self.assertRaisesRegex(adtrain.AdtrainError, "has no evaluation 'nowhere'"):
            adtrain.Run(run).evaluation("nowhere")

    def test_the_newest_checkpoint_that_verifies_is_used(self):
        run = self.copied("damaged")
        self.assertEqual(adtrain.Run(run).checkpoint().step, 80)
        weights = run / "checkpoints/step-80/model.safetensors"
        content = bytearray(weights.read_bytes())
        content[-5] ^= 1
        weights.write_bytes(content)
        with self.assertWarnsRegex(UserWarning, "step-80/model.safetensors has the checksum .* its content is damaged"):
            self.assertEqual(adtrain.Run(run).checkpoint().step, 40)
        with self.assertRaisesRegex(adtrain.CheckpointError, "its content is damaged"):
            adtrain.load(run / "checkpoints/step-80")
        weights.write_bytes(content[:-1])
        with self.assertRaisesRegex(adtrain.CheckpointError, "it was truncated or replaced"):
            adtrain.load(run / "checkpoints/step-80")
        (run / "checkpoints/step-40/optimizer.safetensors").unlink()
        with self.assertRaisesRegex(adtrain.CheckpointError, "(?s)no usable checkpoint .*truncated.*step-40 is incomplete"):
            adtrain.Run(run).checkpoint()

    def test_a_checkpoint_may_be_named(self):
        for name, step in (("step-40", 40), ("latest", 80)):
            run = adtrain.Run(self.run_folder / "checkpoints" / name)
            self.assertEqual(run.checkpoint().step, step)
            self.assertEqual(run.configuration["grid_size"], 5)

    def test_a_checkpoint_with_another_steps_name_is_passed_over(self):
        checkpoints = self.copied("renamed") / "checkpoints"
        shutil.copytree(checkpoints / "step-40", checkpoints / "step-900")
        shutil.copytree(checkpoints / "step-40", checkpoints / "step-0950")  # no name of a step, as the program writes none so
        shutil.copytree(checkpoints / "step-40", checkpoints / "kept")
        with self.assertWarnsRegex(UserWarning, "step-900 is named after step 900, and its manifest.json says step 40; .*"
                                                "rename it back to step-40, or move it out of .*/renamed/checkpoints"):
            self.assertEqual(adtrain.Run(checkpoints.parent).checkpoint().step, 80)
        (checkpoints / "latest").unlink()
        (checkpoints / "latest").symlink_to("step-900")
        for name in ("step-900", "latest"):
            with self.assertRaisesRegex(adtrain.CheckpointError, "step-900 is named after step 900"):
                adtrain.load(checkpoints / name)
        self.assertEqual(adtrain.Run(checkpoints / "kept").checkpoint().step, 40)

    def test_a_changed_manifest_is_refused(self):
        run = self.copied("forged")
        manifest = run / "checkpoints/step-80/manifest.json"
        manifest.write_text(manifest.read_text().replace('"world_size": 1', '"world_size": 2'))
        with self.assertRaisesRegex(adtrain.CheckpointError, "has the checksum .* it says .* itself: it is damaged"):
            adtrain.load(run / "checkpoints/step-80")
        manifest.write_text("{")
        with self.assertRaisesRegex(adtrain.CheckpointError, "manifest.json is damaged"):
            adtrain.load(run / "checkpoints/step-80")

    def test_what_is_no_run_is_said(self):
        with self.assertRaisesRegex(adtrain.CheckpointError, "nowhere is neither a run nor one of its checkpoints"):
            adtrain.load("nowhere")
        with self.assertRaisesRegex(adtrain.CheckpointError, "is neither a run"):
            adtrain.load(self.folder / "histories")
        run = self.copied("edited")
        shutil.copy(self.folder / "config.yaml", run)
        with self.assertRaisesRegex(adtrain.ConfigurationError, "has no model, transformer_block"):
            adtrain.load(run)
        (run / "config.yaml").write_text("include:\n  - base.yaml\n")
        with self.assertRaisesRegex(adtrain.ConfigurationError, "config.yaml:1: found 'include:'; expected `key: value`"):
            adtrain.load(run)


if __name__ == "__main__":
    unittest.main(verbosity=2)
