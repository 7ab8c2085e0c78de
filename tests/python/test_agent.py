"""Agents in Darkroom: a shipped model learns in context from Python as its card says, and greedily earns what `adtrain
evaluate` measures, episode by episode."""
import dataclasses
import shutil
import unittest

import numpy as np

import adtrain
from adtrain.transitions import Transitions
from adtrain.variants import network_of
from support import ROOT, Darkroom, FolderTest, rollout
from support import adtrain as program

DARKROOM = ROOT / "models/darkroom"
TEST_TASKS = [38, 51, 62, 65, 33, 5, 53, 49]


class Agents(FolderTest):
    def test_a_shipped_model_learns_in_context(self):
        returns = rollout(adtrain.load(DARKROOM, seed=3), Darkroom(TEST_TASKS * 3), 24).mean(0)
        card = {1: 1.09, 5: 5.15, 10: 8.38, 20: 12.57}  # 16 repeats; here are 3
        print("returns", np.round(returns, 1))
        for episode, expected in card.items():
            around = returns[max(0, episode - 3) : episode + 2].mean()
            self.assertLess(abs(around - expected), 3, f"episode {episode}")
        self.assertGreater(returns[-5:].mean(), 10)

    def test_greedy_rollouts_equal_the_programs(self):
        run = self.folder / "darkroom"
        shutil.copytree(DARKROOM, run, symlinks=True)
        program("evaluate", run, settings=["eval_sampling=greedy", "eval_repeats=1", "eval_episodes=12"])
        (measured,) = adtrain.Run(run).evaluations()
        self.assertEqual(measured.tasks.tolist(), TEST_TASKS)
        returns = rollout(adtrain.load(run, greedy=True), Darkroom(TEST_TASKS), 12)
        np.testing.assert_array_equal(returns, measured.returns[:, 0])
        self.assertGreater(returns.max(), 5)

    def test_forgetful_rollouts_equal_the_programs(self):
        run = self.folder / "forgetful"
        shutil.copytree(DARKROOM, run, symlinks=True)
        program("evaluate", run, settings=["eval_sampling=greedy", "eval_repeats=1", "eval_episodes=8",
                                           "eval_forget_unrewarded=2", "eval_tasks=all", "eval_task_limit=16"])
        (measured,) = adtrain.Run(run).evaluations()
        agent = adtrain.Agent(adtrain.Run(run).network(), greedy=True, forget_unrewarded=2)
        returns = rollout(agent, Darkroom(measured.tasks.tolist()), 8)
        np.testing.assert_array_equal(returns, measured.returns[:, 0])
        earned = returns[:, :5].any(1)
        self.assertTrue(earned.any() and not earned.all(), "some forget and some do not")

    def test_runs_that_plan_are_refused_and_networks_that_could_follow_their_policy(self):
        run = self.folder / "planner"
        shutil.copytree(DARKROOM, run, symlinks=True)
        config = run / "config.yaml"
        text = config.read_text().replace("dynamics: false", "dynamics: true")
        config.write_text(text + "planning_horizon: 9\n")
        with self.assertRaisesRegex(adtrain.ConfigurationError, "planning_horizon: 9; expected 0"):
            adtrain.load(run)

        plain = adtrain.Run(DARKROOM).network()
        tensors = adtrain.Run(DARKROOM).checkpoint().weights
        options = dataclasses.replace(plain.options, dynamics=True)
        both = network_of(options, tensors | {"pred_dynamics.hidden.bias": np.zeros(128, np.float32)})
        context, cells = Transitions.zeros(2, 5), np.array([[4, 4], [0, 8]], np.int32)
        np.testing.assert_array_equal(both.predict(context, cells).actions, plain.predict(context, cells).actions)
        with self.assertRaisesRegex(adtrain.CheckpointError, "pred_dynamics.hidden.bias"):
            network_of(plain.options, tensors | {"pred_dynamics.hidden.bias": np.zeros(128, np.float32)})

    def test_an_episodes_end_may_be_told_by_either_observation(self):
        """Environments give the last observation of the episode or the first of the next; the context is the same."""
        chosen = []
        for give_last in (False, True):
            agent, environment = adtrain.load(DARKROOM, seed=1), Darkroom([38, 5])
            for _ in range(50):
                actions = agent.act(environment.states)
                rewards, reached, done = environment.step(actions)
                agent.observe(actions, rewards, reached if give_last else environment.states, done)
                chosen.append(actions)
        np.testing.assert_array_equal(chosen[:50], chosen[50:])

    def test_terminal_observations_where_the_run_wants_them(self):
        network = adtrain.Run(DARKROOM).network()
        shown = []
        for terminal in (False, True):
            agent = adtrain.Agent(network, terminal_observation=terminal)
            agent.act([[3, 4]])
            agent.observe(0, 0, [[4, 5]], True)
            agent.act([[4, 4]])
            shown.append(agent._context._window.next_states[0, 0].tolist())
        self.assertEqual(shown, [[4, 4], [4, 5]])

    def test_a_seed_gives_the_same_actions_and_reset_forgets(self):
        first, second = (adtrain.load(DARKROOM, seed=5) for _ in range(2))
        start = np.full((50, 2), 4)
        drawn = first.act(start)
        np.testing.assert_array_equal(drawn, second.act(start))
        self.assertGreater(len(set(drawn)), 1)
        first.reset()
        self.assertEqual(first.act(start[:3]).shape, (3,))

    def test_draws_follow_the_distribution(self):
        network = adtrain.Run(DARKROOM).network()
        states = np.full((20000, 2), 4)
        for temperature in (1, 0.5):
            agent = adtrain.Agent(network, seed=2, temperature=temperature)
            drawn = np.bincount(agent.act(states), minlength=5) / len(states)
            logits = network.predict(Transitions.zeros(1, 0), states[:1]).actions / temperature
            expected = np.exp(logits[0]) / np.exp(logits[0]).sum()
            np.testing.assert_allclose(drawn, expected, atol=0.02)

    def test_mistakes_are_said(self):
        agent = adtrain.load(DARKROOM)

        def expect(words, call, *arguments):
            with self.assertRaisesRegex(adtrain.AdtrainError, words):
                call(*arguments)

        expect("without a new act", agent.observe, 0, 0, [[4, 4]], False)
        expect(r"shape \(2,\); expected \(environments, 2\)", agent.act, [4, 4])
        expect("from 4 to 9; expected cells, integers from 0 to 8", agent.act, [[4, 9]])
        agent.act([[4, 4]])
        expect("expected integers from 0 to 4", agent.observe, 5, 0, [[4, 4]], False)
        expect(r"rewards of shape \(2,\); expected \(1,\)", agent.observe, 0, [0, 0], [[5, 4]], False)
        for rewards in float("nan"), [float("inf")], [None], "1", 1e39, 10**400:
            expect("found rewards .*; expected finite numbers that float32", agent.observe, 0, rewards, [[5, 4]], False)
        agent.observe(0, 0, [[5, 4]], False)
        expect("without a new act", agent.observe, 0, 0, [[5, 4]], False)
        expect(r"observed in \[5 4\] and acts from \[4 4\], in the same episode", agent.act, [[4, 4]])
        expect("found observations of 2 environments; expected 1", agent.act, [[5, 4], [4, 4]])


if __name__ == "__main__":
    unittest.main(verbosity=2)
