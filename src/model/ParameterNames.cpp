#include "model/ParameterNames.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <system_error>

namespace adtrain {
namespace {

/// Of a block's parameters, up to its number.
constexpr std::string_view kBlocks[] = {"transformer.blocks.", "transformer_encoder.layers.",
                                        "transformer.h.", "blocks."};
constexpr std::string_view kAfterBlocks[] = {"pred_token_type.", "pred_dynamics.", "final_norm.",
                                             "transformer.ln_f."};
/// Beside the blocks, the same for tasks of any spaces.
constexpr std::string_view kForAllSpaces[] = {
    "pos_embedding",        "embed_position.",    "transformer.wpe.",      "transformer.ln_f.", "final_norm.",
    "compress_start_token", "compress_end_token", "token_type_embedding.", "pred_token_type."};

template <size_t N>
bool begins_with_one_of(std::string_view name, const std::string_view (&prefixes)[N]) {
  return std::any_of(std::begin(prefixes), std::end(prefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

/// Also that of one of several groups of spaces: "groups.GROUP.pred_action.weight".
bool is_of_a_head(std::string_view name) {
  const size_t head = name.find("pred_action");
  return head == 0 || (head != std::string_view::npos && name[head - 1] == '.');
}

}  // namespace

std::optional<int64_t> block_number(std::string_view name) {
  for (const std::string_view prefix : kBlocks) {
    if (!name.starts_with(prefix)) continue;
    int64_t number = 0;
    if (std::from_chars(name.data() + prefix.size(), name.data() + name.size(), number).ec == std::errc())
      return number;
  }
  return std::nullopt;
}

bool comes_after_blocks(std::string_view name) {
  return is_of_a_head(name) || begins_with_one_of(name, kAfterBlocks);
}

bool is_of_spaces(std::string_view name) {
  return !block_number(name) && !begins_with_one_of(name, kForAllSpaces);
}

}  // namespace adtrain
