"""Logits of the Python package's networks, compared with those of the C++ networks on random contexts."""
import json
import math
import os
import pathlib
import unittest

import numpy as np

from adtrain import CheckpointError, ConfigurationError, Run
from adtrain.configuration import ModelOptions, read_configuration
from adtrain.variants import network_of
from adtrain.transitions import Transitions
from support import ROOT, FolderTest, run

TOLERANCE = 1e-5
COMPOSED = ("xland", "vintix", "pre_norm_previous", "pre_norm_pieces", "xland_transition", "vintix_rotary",
            "xland_without_positions")
MODELS = [str(path.parent) for path in sorted((ROOT / "models").glob("*/config.yaml"))]


class Networks(FolderTest):
    largest_error = 0.0

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addClassCleanup(lambda: print(f"largest error / largest logit: {cls.largest_error:.1e}"))
        run(os.environ["MODEL_DUMP"], cls.folder, *MODELS)
        cls.index = json.loads(pathlib.Path(cls.folder, "model.json").read_text())
        cls.values = pathlib.Path(cls.folder, "model.bin").read_bytes()

    def read(self, entry):
        count = math.prod(entry["shape"])
        return np.frombuffer(self.values, entry["type"], count, entry["offset"]).reshape(entry["shape"])

    def batch(self, section):
        batch = {name: self.read(entry) for name, entry in section["batch"].items()}
        return batch, Transitions(*(batch[name] for name in ("states", "actions", "rewards", "next_states")))

    def network(self, name):
        section = self.index[name]
        if name in COMPOSED:
            path = self.folder / f"{name}.yaml"
            path.write_text("".join(f"{key}: {text}\n" for key, text in section["settings"].items()))
            options = ModelOptions.of(read_configuration(path) | {"grid_size": 9, "num_actions": 5}, path)
            return network_of(options, {key: self.read(entry) for key, entry in section["parameters"].items()})
        options = ModelOptions(
            model="GPT2" if name == "gpt2" else "AD",
            transformer_block="auto" if name in ("gpt2", "compressed") else name,
            tf_n_embd=section["width"], tf_n_layer=section["layers"], tf_n_head=section["heads"], tf_n_inner=None,
            n_transit=section["n_transit"], use_compressed_context=name == "compressed", compress_interval=4,
            grid_size=9, num_actions=5)
        return network_of(options, {key: self.read(entry) for key, entry in section["parameters"].items()})

    def assert_equal(self, found, expected):
        error = np.abs(found - expected).max() / np.abs(expected).max()
        self.assertLess(error, TOLERANCE)
        Networks.largest_error = max(self.largest_error, error)

    def check_every_prefix(self, network, section):
        """Of a window: recomputed, and with keys and values that are kept while it grows."""
        batch, window = self.batch(section)
        expected = self.read(section["actions"])
        cache = network.new_cache()
        for length in range(window.length):
            states = batch["states"][:, length]
            with self.subTest(length=length):
                prefix = window.part(slice(None), slice(0, length))
                self.assert_equal(network.predict(prefix, states).actions, expected[:, length])
                new = window.part(slice(None), slice(max(0, length - 1), length))
                self.assert_equal(network.predict(new, states, cache).actions, expected[:, length])

    def test_plain_variants(self):
        for name in ("pre_norm", "post_norm", "gpt2", *COMPOSED):
            with self.subTest(variant=name):
                self.check_every_prefix(self.network(name), self.index[name]["all"])

    def test_compressed_context_with_rows_of_all_lengths(self):
        network, section = self.network("compressed"), self.index["compressed"]["last"]
        batch, regions = self.batch(section)
        self.assertEqual(len(set(zip(batch["previous"], batch["current"]))), 5)
        found = network.predict(regions, batch["previous"], batch["current"], batch["query_state"])
        self.assert_equal(found.actions, self.read(section["actions"])[:, 0])
        self.assert_equal(found.token_types, self.read(section["token_types"])[:, 0])

    def test_compressed_context_at_every_query(self):
        network, section = self.network("compressed"), self.index["compressed"]["all"]
        batch, regions = self.batch(section)
        rows = np.arange(len(regions))
        for current in range(5):
            states = batch["query_state"] if current == 4 else regions.states[rows, batch["previous"] + current]
            found = network.predict(regions, batch["previous"], np.full(len(rows), current), states)
            self.assert_equal(found.actions, self.read(section["actions"])[:, current])
            self.assert_equal(found.token_types, self.read(section["token_types"])[:, current])

    def test_shipped_models(self):
        self.assertGreaterEqual(len(MODELS), 3)
        for model in MODELS:
            with self.subTest(model=model):
                self.check_every_prefix(Run(model).network(), self.index[model])

    def test_a_batch_in_parts_equals_its_rows(self):
        """A large batch is passed on in parts of several rows."""
        network = self.network("post_norm")
        _, window = self.batch(self.index["post_norm"]["all"])
        many = window.part(np.arange(1000) % len(window))
        states = many.states[:, -1]
        context = many.part(slice(None), slice(0, -1))
        found = network.predict(context, states).actions
        self.assert_equal(found, self.read(self.index["post_norm"]["all"]["actions"])[np.arange(1000) % len(window), -1])

    def test_weights_of_another_network_are_refused(self):
        section = self.index["pre_norm"]
        options = self.network("pre_norm").options
        tensors = {key: self.read(entry) for key, entry in section["parameters"].items()}
        with self.assertRaisesRegex(CheckpointError, "no tensor pred_action.bias"):
            network_of(options, {key: value for key, value in tensors.items() if key != "pred_action.bias"})
        with self.assertRaisesRegex(CheckpointError, r"embed_context.weight of shape \(16, 9\); expected \(16, 10\)"):
            network_of(options, tensors | {"embed_context.weight": np.zeros((16, 9), np.float32)})
        with self.assertRaisesRegex(CheckpointError, "not the network's: odd"):
            network_of(options, tensors | {"odd": np.zeros(1, np.float32)})

    def test_networks_of_plugins_are_refused(self):
        configuration = Run(MODELS[0]).configuration | {"model": "average"}
        with self.assertRaisesRegex(ConfigurationError, "model: average; expected AD, CompressedAD or GPT2"):
            network_of(ModelOptions.of(configuration, ROOT), {})

    def test_networks_over_other_spaces_are_refused(self):
        configuration = Run(MODELS[0]).configuration | {"observation_space": '{"type": "Discrete", "n": 3}'}
        with self.assertRaisesRegex(ConfigurationError, "observation_space: .*Discrete.*; expected a run of a grid family"):
            network_of(ModelOptions.of(configuration, ROOT), {})


if __name__ == "__main__":
    unittest.main(verbosity=2)
