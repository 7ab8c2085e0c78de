#include "evaluation/EvaluationOptions.h"

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/NumberRanges.h"
#include "base/Text.h"
#include "environments/TaskOptions.h"
#include "memory/AutoBatchSize.h"

namespace adtrain {
namespace {

template <class Enum>
std::vector<std::pair<std::string, Enum>> spellings(std::initializer_list<Enum> values) {
  std::vector<std::pair<std::string, Enum>> pairs;
  for (const Enum value : values) pairs.emplace_back(name_of(value), value);
  return pairs;
}

}  // namespace

const char* name_of(Sampling sampling) {
  return sampling == Sampling::kGreedy ? "greedy" : "sample";
}

const char* name_of(EvaluationContext context) {
  return context == EvaluationContext::kRolling ? "rolling" : "recompute";
}

const char* name_of(ComputeType type) {
  switch (type) {
    case ComputeType::kFloat32:
      return "fp32";
    case ComputeType::kFloat16:
      return "fp16";
    case ComputeType::kBFloat16:
      return "bf16";
    default:
      return "auto";
  }
}

std::optional<at::ScalarType> EvaluationOptions::chosen_type() const {
  switch (torch_dtype) {
    case ComputeType::kFloat32:
      return at::kFloat;
    case ComputeType::kFloat16:
      return at::kHalf;
    case ComputeType::kBFloat16:
      return at::kBFloat16;
    default:
      return std::nullopt;
  }
}

void EvaluationOptions::declare(Section& section) {
  section.key(
      "eval_protocol", eval_protocol,
      spellings({EvaluationProtocol::kNone, EvaluationProtocol::kXland, EvaluationProtocol::kVintix}),
      "A published evaluation, which sets other eval_ keys as docs/evaluation.md has them; those that stand "
      "beside it, in the same file or on the command line, keep their values.");
  section.key("eval_episodes", eval_episodes, "Episodes that a task is learnt for in context.")
      .unit("episodes")
      .at_least(1)
      .at_most(1e6);
  section
      .key("eval_repeats", eval_repeats,
           "How often each task is learnt anew, from an empty context and with random numbers of its own.")
      .unit("repeats")
      .at_least(1)
      .at_most(1e6);
  section.key(
      "eval_tasks", eval_tasks,
      "Tasks that are evaluated: a side of the split (test for those held out, train, or all), or tasks of "
      "the family, written like tasks.");
  section
      .key(
          "eval_task_limit", eval_task_limit,
          "At most so many of those tasks: of test and train the first in the order of the split, which is a "
          "random one; of all and of tasks named by number the smallest numbers. null for all.")
      .unit("tasks")
      .at_least(1);
  section
      .key("eval_batch", eval_batch,
           "Most environments at once: on a CPU in lock-step in one forward pass, on a GPU side by side, "
           "where it bounds the memory of their contexts. Such groups are dealt to the ranks whole: a "
           "small value spreads few environments over more ranks. auto_batch_size spreads all evenly over "
           "the ranks, as many at once as fit their memory.")
      .unit("environments")
      .or_word(kAutoBatchSizeWord, kAutoBatchSize)
      .at_least(1)
      .at_most(1e6);
  section.key("eval_seed", eval_seed, "Seed of the actions that are sampled.").at_least(0);
  section.key("eval_sampling", eval_sampling, spellings({Sampling::kSample, Sampling::kGreedy}),
              "Draw actions from the model's distribution, or always take the most probable one.");
  section
      .key("eval_temperature", eval_temperature,
           "The logits are divided by this before actions are drawn from them: below 1 probable actions "
           "become more probable. Tasks of a family.")
      .above(0)
      .at_most(1e6);
  section
      .key(
          "eval_forget_unrewarded", eval_forget_unrewarded,
          "Empties a context without any reward after so many whole episodes in which nothing was earned, so "
          "that exploration begins anew instead of repeating what failed. null: contexts lose only what "
          "leaves the window. Tasks of a family, without compressed context or rolling contexts.")
      .unit("episodes")
      .at_least(1)
      .at_most(1e6);
  section
      .key("planning_horizon", planning_horizon,
           "Steps that a network with dynamics looks ahead before each action: beam search for the most "
           "reward that it expects, whose first action is taken. It then shows the network n_transit − "
           "planning_horizon transitions. 0: actions are the policy's. Tasks of a family.")
      .unit("steps")
      .at_least(0)
      .at_most(1000);
  section
      .key("beam_k", beam_k,
           "With planning_horizon: beams, the courses of actions of each environment that go on at each "
           "depth.")
      .unit("beams")
      .at_least(1)
      .at_most(1e5);
  section
      .key("beam_draws", beam_draws,
           "With planning_horizon: different actions that each beam draws from the policy at each depth; all "
           "of them where there are no more.")
      .unit("actions")
      .at_least(1)
      .at_most(1e5);
  section.key(
      "eval_terminal_observation", eval_terminal_observation,
      "Show the model the last state of an episode as its final next state, as the Python projects do at "
      "evaluation, instead of the state after the reset, which is what histories hold.");
  section.key(
      "eval_context", eval_context, spellings({EvaluationContext::kRecompute, EvaluationContext::kRolling}),
      "recompute shows the network the whole window at each step, as in training. rolling keeps the keys and "
      "values of former steps, which is faster by far, on GPUs in the type of mixed_precision; where a "
      "context is longer than n_transit, deeper layers then remember what has left the window, or, where "
      "positions are learned, the whole window is shown as with recompute.");
  section.key(
      "eval_scores", eval_scores,
      "YAML file of what random actions and an expert earn in each task of a worker, by its name, as Vintix "
      "has them: returns are then given on that scale, too, with their interquartile mean. A random score "
      "that is not there is measured by env_random_episodes. null: of tasks of your own what their histories "
      "say.");
  section.key(
      "torch_dtype", torch_dtype,
      spellings({ComputeType::kAuto, ComputeType::kFloat32, ComputeType::kFloat16, ComputeType::kBFloat16}),
      "The type in which adtrain evaluate and adtrain score compute, on GPUs and CPUs: weights and what "
      "passes between layers; probabilities are fp32. auto: fp32, but with rolling contexts on GPUs "
      "that of mixed_precision. float32, float16 and bfloat16 are understood, too, and set "
      "mixed_precision beside it, as in files for Transformers.");
  section.all_free_on_resume();
}

void EvaluationOptions::check(Findings& findings, const EnvironmentOptions& environment,
                              bool in_worker) const {
  check_chosen_tasks(findings, "eval_tasks", eval_tasks, environment, in_worker);
  if (eval_scores && !in_worker) {
    findings.add("eval_scores",
                 "found a file without env_worker; the bounds of our own families' returns are known: "
                 "expected null, or environments of your own");
  }
  if (eval_temperature != 1 && environment.has_own_tasks()) {
    findings.add("eval_temperature",
                 fmt::format("found {} with tasks of your own; it is for a family's tasks: "
                             "expected 1",
                             eval_temperature));
  }
  if (eval_forget_unrewarded && environment.has_own_tasks()) {
    findings.add("eval_forget_unrewarded",
                 fmt::format("found {} with tasks of your own; it is for a family's "
                             "tasks: expected null",
                             *eval_forget_unrewarded));
  }
  if (eval_terminal_observation && environment.has_own_tasks()) {
    findings.add("eval_terminal_observation",
                 "found true with tasks of your own, whose networks see no next states; "
                 "expected false");
  }
  if (eval_sampling == Sampling::kGreedy && eval_repeats > 1 && !in_worker) {
    findings.add(
        "eval_repeats",
        fmt::format("eval_repeats is {} with eval_sampling greedy, which would repeat the same run; set "
                    "eval_repeats: 1, or eval_sampling: sample.",
                    eval_repeats));
  }
}

bool names_a_side(const std::string& eval_tasks) {
  return eval_tasks == "test" || eval_tasks == "train" || eval_tasks == "all";
}

void check_chosen_tasks(Findings& findings, const std::string& key, const std::string& text,
                        const EnvironmentOptions& environment, bool in_worker) {
  if (names_a_side(text)) return;
  if (NumberRanges::parse(text)) {
    if (!in_worker) check_task_numbers(findings, key, text, environment);
    return;
  }
  const std::string nearest = nearest_name(text, {"test", "train", "all"});
  findings.add(key, fmt::format("found '{}'; expected test, train, all, or numbers of tasks{} and ranges of "
                                "them with commas between, such as 0-3,5{}",
                                abridged(text), in_worker ? " in the worker's TASKS" : "",
                                nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest)));
}

}  // namespace adtrain
