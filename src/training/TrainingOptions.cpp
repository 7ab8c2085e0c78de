#include "training/TrainingOptions.h"

#include <fmt/format.h>

#include "base/Error.h"
#include "memory/MemoryMeter.h"

namespace adtrain {
namespace {

/// Sequences; far more than any device's memory holds.
constexpr int64_t kLargestMicroBatch = 1'000'000;
constexpr const char* kSameGlobalBatch = ", as long as the global batch stays the same";

/// The multiple of `divisor`, above 0, that is nearest to `number`: of two that are as near the lower one.
int64_t nearest_multiple(int64_t number, int64_t divisor) {
  const int64_t below = number / divisor * divisor, above = below + divisor;
  return below > 0 && number - below <= above - number ? below : above;
}

}  // namespace

void TrainingOptions::declare(Section& section) {
  section.key("train_timesteps", train_timesteps, "Length of the run.")
      .unit("optimizer steps")
      .at_least(1)
      .at_most(1e12)
      .free_on_resume();
  section
      .key("train_batch_size", train_batch_size,
           "Micro-batch of each rank; the global batch is this × ranks × gradient_accumulation_steps. "
           "auto_batch_size finds what fits the GPUs' memory; where global_batch_size is given, that stays, "
           "and the accumulation steps follow.")
      .unit("sequences")
      .at_least(1)
      .at_most(kLargestMicroBatch)
      .or_word(kAutoBatchSizeWord, kAutoBatchSize)
      .free_on_resume(kSameGlobalBatch);
  section
      .key(
          "global_batch_size", global_batch_size,
          "Fixes the global batch instead: each rank's micro-batch is its share, so every step sees the same "
          "samples on any number of ranks.")
      .unit("sequences")
      .at_least(1)
      .at_most(1e9)
      .free_on_resume(kSameGlobalBatch);
  section.key("test_batch_size", test_batch_size, "Batch of each rank for the held-out loss.")
      .unit("sequences")
      .at_least(1)
      .at_most(kLargestMicroBatch)
      .or_word(kAutoBatchSizeWord, kAutoBatchSize)
      .free_on_resume();
  section
      .key("gradient_accumulation_steps", gradient_accumulation_steps,
           "Micro-batches a rank takes before one optimizer step; only the last one communicates.")
      .unit("micro-batches")
      .at_least(1)
      .at_most(1e6)
      .free_on_resume(kSameGlobalBatch);
  section.key("batch_size_limit", batch_size_limit, "auto_batch_size: the largest batch size that is tried.")
      .unit("sequences")
      .at_least(1)
      .at_most(kLargestMicroBatch)
      .free_on_resume();
  section
      .key("batch_size_safety_margin", batch_size_safety_margin,
           "auto_batch_size: the share of the free memory of the tightest GPU that may be used. Lower is "
           "safer.")
      .above(0)
      .at_most(1)
      .free_on_resume();
  section
      .key("batch_size_prefer", batch_size_prefer,
           {{"memory", BatchSizePreference::kMemory}, {"throughput", BatchSizePreference::kThroughput}},
           "auto_batch_size: the largest batch that fits, or the smallest that is within 2% of the most "
           "sequences a second.")
      .free_on_resume();
  section
      .key("batch_size_cache", batch_size_cache,
           "auto_batch_size: take what was found before for the same model, shapes, precision, GPUs and "
           "ranks, from runs_dir/batch_sizes.")
      .free_on_resume();
  section
      .key("cpu_memory_limit_gb", cpu_memory_limit_gb,
           "auto_batch_size on the CPU: what a rank may have resident; null for its share of what the host "
           "has available.")
      .unit("GB")
      .above(0)
      .free_on_resume();
  section.key("loss_positions", loss_positions,
              {{"last", LossPositions::kLast}, {"all", LossPositions::kAll}},
              "Where the loss is read: at the last position of a window, as published, or exactly at every "
              "prefix of it (the same model and checkpoints; learns far more from each window).");

  section.key("lr", lr, "Peak learning rate.").above(0).free_on_resume();
  section
      .key("num_warmup_steps", num_warmup_steps,
           "The rate rises linearly from 0 over these, then falls to 0 by a cosine.")
      .unit("optimizer steps")
      .at_least(0)
      .free_on_resume();
  section.key("beta1", beta1, "AdamW: decay of the mean of gradients.").at_least(0).below(1);
  section.key("beta2", beta2, "AdamW: decay of the mean of squared gradients.").at_least(0).below(1);
  section.key("adam_epsilon", adam_epsilon, "AdamW: added to the root of the second moment.").above(0);
  section.key("weight_decay", weight_decay, "AdamW: decoupled decay of all parameters.")
      .at_least(0)
      .free_on_resume();
  section
      .key("max_grad_norm", max_grad_norm,
           "Gradients are scaled down to this norm; 0 leaves them as they are.")
      .at_least(0)
      .free_on_resume()
      .also_called("grad_clip")
      .also_called("clip_grad_norm");

  section
      .key("mixed_precision", mixed_precision,
           {{"no", Precision::kFloat32}, {"fp16", Precision::kFloat16}, {"bf16", Precision::kBFloat16}},
           "Arithmetic of forward and backward on GPUs; CPU ranks compute in fp32 whatever is asked for.")
      .free_on_resume();
  section
      .key("tf32", tf32,
           "Lets GPUs round the factors of fp32 matrix products to 10 bits of mantissa: faster, and as exact "
           "as bf16 and fp16 are anyway.")
      .free_on_resume();
  section
      .key(
          "cuda_graph", cuda_graph,
          {{"auto", CudaGraphUse::kAuto}, {"on", CudaGraphUse::kOn}, {"off", CudaGraphUse::kOff}},
          "Whether GPUs capture an optimizer step in a CUDA graph and replay it: the same arithmetic without "
          "the host's delays. auto does unless deterministic is set.")
      .free_on_resume();
  section.key("seed", seed, "Decides initial weights, sample order and dropout.").at_least(0);
  section.key("deterministic", deterministic, "Use only algorithms whose results repeat bit for bit.")
      .free_on_resume();

  section
      .key(
          "init_from", init_from,
          "Fine-tuning: a new run begins with the weights of this run (its newest checkpoint), checkpoint's "
          "folder or .safetensors file. Encoders and heads are new where the tasks' spaces differ, which the "
          "log says; all else must agree. The optimizer starts anew, at step 0. A run that is continued has "
          "its own weights and does not read it.")
      .free_on_resume();
  section
      .key("freeze", freeze,
           "Fine-tuning: parameters that do not train: names of parameters or modules, or patterns (*, ?, "
           "[0-3]), a list or with commas between them, such as embed_context,transformer.blocks.[0-3]. They "
           "get no gradients, no moments, no weight decay, and nothing of them is communicated.")
      .free_on_resume();

  section.key("summary_interval", summary_interval, "Between two lines of figures.")
      .unit("optimizer steps")
      .at_least(1)
      .free_on_resume();
  section.key("eval_interval", eval_interval, "Between two measurements of the held-out loss; 0 for none.")
      .unit("optimizer steps")
      .at_least(0)
      .free_on_resume();
  section
      .key("ckpt_interval", ckpt_interval,
           "Between two checkpoints; the last step always makes one, and so does each step of "
           "return_interval.")
      .unit("optimizer steps")
      .at_least(1)
      .free_on_resume();
  section.key("keep_checkpoints", keep_checkpoints, "How many of the newest checkpoints are kept.")
      .unit("checkpoints")
      .at_least(2)
      .free_on_resume();
  section
      .key("keep_best", keep_best,
           "Keep the checkpoint with the best in-context return on held-out tasks (return_interval) as well, "
           "however old it is: checkpoints/best points to it.")
      .free_on_resume();
  returns.declare(section);
  profile.declare(section);
}

void TrainingOptions::check(Findings& findings) const {
  if (keep_best && returns.interval == 0) {
    findings.add("keep_best",
                 fmt::format("found true with return_interval 0, which measures nothing; expected a "
                             "return_interval, such as {} (ckpt_interval), or keep_best: false",
                             ckpt_interval));
  }
  profile.check(findings, train_timesteps);
  if (num_warmup_steps > train_timesteps) {
    findings.add("num_warmup_steps",
                 fmt::format("found {}, longer than the run; expected at most train_timesteps ({})",
                             num_warmup_steps, train_timesteps));
  }
  if (train_batch_size == kAutoBatchSize && global_batch_size && gradient_accumulation_steps != 1) {
    findings.add(
        "gradient_accumulation_steps",
        fmt::format("found {}; expected 1, the default: with auto_batch_size and a global_batch_size it "
                    "follows from both",
                    gradient_accumulation_steps));
  }
  if (global_batch_size && *global_batch_size % gradient_accumulation_steps != 0) {
    findings.add(
        "global_batch_size",
        fmt::format(
            "found {}, which does not divide into gradient_accumulation_steps = {}; nearest multiple: {}",
            *global_batch_size, gradient_accumulation_steps,
            nearest_multiple(*global_batch_size, gradient_accumulation_steps)));
  }
}

std::optional<int64_t> TrainingOptions::share_of_global_batch(int64_t world_size) const {
  if (!global_batch_size) return std::nullopt;
  if (*global_batch_size % world_size != 0) {
    throw ConfigError(fmt::format(
        "global_batch_size: {} sequences do not divide over {} ranks; expected a multiple of {}, the nearest "
        "of which is {}",
        *global_batch_size, world_size, world_size, nearest_multiple(*global_batch_size, world_size)));
  }
  return *global_batch_size / world_size;
}

std::optional<int64_t> TrainingOptions::cpu_memory_limit() const {
  if (!cpu_memory_limit_gb) return std::nullopt;
  return static_cast<int64_t>(*cpu_memory_limit_gb * kBytesOfGigabyte);
}

int64_t TrainingOptions::micro_batch(int64_t world_size) const {
  if (!global_batch_size) return train_batch_size;
  const int64_t shares = world_size * gradient_accumulation_steps;
  if (*global_batch_size % shares != 0) {
    throw ConfigError(
        fmt::format("global_batch_size: {} sequences do not divide over {} ranks × {} accumulation steps; "
                    "expected a multiple of {}, the nearest of which is {}",
                    *global_batch_size, world_size, gradient_accumulation_steps, shares,
                    nearest_multiple(*global_batch_size, shares)));
  }
  const int64_t share = *global_batch_size / shares;
  if (share > kLargestMicroBatch) {
    throw ConfigError(fmt::format(
        "global_batch_size: {} sequences are micro-batches of {} on {} ranks with {} accumulation steps; "
        "expected at most {} each: raise gradient_accumulation_steps or lower global_batch_size",
        *global_batch_size, share, world_size, gradient_accumulation_steps, kLargestMicroBatch));
  }
  return share;
}

BatchShare TrainingOptions::share(int64_t rank, int64_t world_size) const {
  return {.rank = rank,
          .world_size = world_size,
          .micro_batch = micro_batch(world_size),
          .accumulation = gradient_accumulation_steps};
}

at::ScalarType TrainingOptions::compute_type(at::Device device) const {
  if (device.is_cpu() || mixed_precision == Precision::kFloat32) return at::kFloat;
  return mixed_precision == Precision::kFloat16 ? at::kHalf : at::kBFloat16;
}

}  // namespace adtrain
