#include "config/OtherNames.h"

#include <algorithm>

#include "base/Text.h"

namespace adtrain {

const std::map<std::string, std::string, std::less<>>& other_names() {
  // As PyTorch, Hugging Face's Trainer and accelerate, Lightning, Stable-Baselines3, nanoGPT and Vintix call
  // them.
  static const std::map<std::string, std::string, std::less<>> kKeys = {
      {"learning_rate", "lr"},
      {"max_lr", "lr"},
      {"batchsize", "train_batch_size"},
      {"micro_batch_size", "train_batch_size"},
      {"per_device_train_batch_size", "train_batch_size"},
      {"per_device_eval_batch_size", "test_batch_size"},
      {"total_batch_size", "global_batch_size"},
      {"effective_batch_size", "global_batch_size"},
      {"accumulate_grad_batches", "gradient_accumulation_steps"},
      {"grad_accum", "gradient_accumulation_steps"},
      {"grad_accum_steps", "gradient_accumulation_steps"},
      {"accumulation_steps", "gradient_accumulation_steps"},
      {"epochs", "train_timesteps"},
      {"num_epochs", "train_timesteps"},
      {"max_epochs", "train_timesteps"},
      {"num_train_epochs", "train_timesteps"},
      {"max_steps", "train_timesteps"},
      {"max_iters", "train_timesteps"},
      {"num_steps", "train_timesteps"},
      {"train_steps", "train_timesteps"},
      {"iterations", "train_timesteps"},
      {"warmup", "num_warmup_steps"},
      {"warmup_steps", "num_warmup_steps"},
      {"warmup_iters", "num_warmup_steps"},
      {"clip_grad", "max_grad_norm"},
      {"grad_clip", "max_grad_norm"},
      {"gradient_clip_val", "max_grad_norm"},
      {"clip_grad_norm", "max_grad_norm"},
      {"adam_beta1", "beta1"},
      {"adam_beta2", "beta2"},
      {"eps", "adam_epsilon"},
      {"precision", "mixed_precision"},
      {"dtype", "mixed_precision"},
      {"amp", "mixed_precision"},
      {"fp16", "mixed_precision"},
      {"bf16", "mixed_precision"},
      {"d_model", "tf_n_embd"},
      {"hidden_size", "tf_n_embd"},
      {"n_embd", "tf_n_embd"},
      {"embed_dim", "tf_n_embd"},
      {"layers", "tf_n_layer"},
      {"n_layer", "tf_n_layer"},
      {"n_layers", "tf_n_layer"},
      {"num_layers", "tf_n_layer"},
      {"num_hidden_layers", "tf_n_layer"},
      {"heads", "tf_n_head"},
      {"n_head", "tf_n_head"},
      {"n_heads", "tf_n_head"},
      {"num_heads", "tf_n_head"},
      {"num_attention_heads", "tf_n_head"},
      {"dim_feedforward", "tf_n_inner"},
      {"intermediate_size", "tf_n_inner"},
      {"dropout", "tf_dropout"},
      {"attention_dropout", "tf_attn_dropout"},
      {"attn_dropout", "tf_attn_dropout"},
      {"context_length", "n_transit"},
      {"seq_len", "n_transit"},
      {"block_size", "n_transit"},
      {"max_seq_len", "n_transit"},
      {"log_dir", "runs_dir"},
      {"logdir", "runs_dir"},
      {"output_dir", "runs_dir"},
      {"out_dir", "runs_dir"},
      {"save_dir", "runs_dir"},
      {"exp_name", "run_name"},
      {"experiment_name", "run_name"},
      {"data_dir", "traj_dir"},
      {"dataset_config_paths", "histories"},
      {"groups", "histories"},
      {"context_len", "n_transit"},
      {"trajectory_sparsity", "window_stride"},
      {"last_frac", "last_fraction"},
      {"logging_steps", "summary_interval"},
      {"log_interval", "summary_interval"},
      {"log_every_n_steps", "summary_interval"},
      {"eval_steps", "eval_interval"},
      {"eval_every", "eval_interval"},
      {"save_steps", "ckpt_interval"},
      {"save_interval", "ckpt_interval"},
      {"checkpoint_interval", "ckpt_interval"},
      {"save_total_limit", "keep_checkpoints"},
      {"save_best_only", "keep_best"},
      {"load_best_model_at_end", "keep_best"},
      {"dataloader_num_workers", "num_workers"},
      {"model_name_or_path", "init_from"},
      {"pretrained_model", "init_from"},
      {"pretrained_path", "init_from"},
      {"init_checkpoint", "init_from"},
      {"load_from", "init_from"},
      {"freeze_layers", "freeze"},
      {"frozen_layers", "freeze"},
      {"frozen_parameters", "freeze"},
      {"random_seed", "seed"},
      {"environment", "env"},
      {"env_name", "env"},
      {"env_id", "env"},
  };
  return kKeys;
}

std::string key_called(std::string_view name) {
  std::string plain = to_lower(std::string(name));
  std::replace(plain.begin(), plain.end(), '-', '_');
  const auto found = other_names().find(plain);
  return found == other_names().end() ? "" : found->second;
}

}  // namespace adtrain
