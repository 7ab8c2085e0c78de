#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace adtrain {

/// A named parameter with what its values take in the type in which they are kept, quantised or not.
struct SizedParameter {
  std::string name;
  int64_t bytes;
  /// The name of an earlier parameter whose memory this one shares, which counts them; empty for none.
  std::string shared_with = {};
  bool is_behind_blocks = false;  ///< though it comes before theirs
};

/// What a device map puts on one device as a whole: a transformer block, all modules before the blocks
/// ("embeddings"), or all behind them ("head"). A value.
struct PlacedModule {
  std::string name;
  int64_t bytes = 0;  ///< of its parameters
  int64_t kept = 0;   ///< what it keeps on the device that computes it beside them: keys and values
  std::vector<size_t> parameters = {};  ///< their places in the network's order
  bool is_block = false;
  std::vector<std::string> parts;   ///< names of the modules in it, as parameters' names begin
  std::vector<int64_t> layers;      ///< bytes of each layer with parameters of its own
  std::vector<size_t> shares_with;  ///< places of modules that hold tensors of this one, too
};

/// The network's modules in the order in which a forward pass uses them, from parameters in that order but
/// for those that say otherwise.
/// Blocks are those called "blocks.N", "transformer.blocks.N", "transformer_encoder.layers.N" or
/// "transformer.h.N". A network without blocks is one module.
std::vector<PlacedModule> placed_modules(const std::vector<SizedParameter>& parameters);

/// Of all modules' parameters.
int64_t total_bytes(const std::vector<PlacedModule>& modules);
/// What all modules keep beside them.
int64_t total_kept(const std::vector<PlacedModule>& modules);

}  // namespace adtrain
