#include "evaluation/EvaluationProtocol.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/Text.h"
#include "config/Document.h"
#include "evaluation/EvaluationOptions.h"

namespace adtrain {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

/// The 1024 rulesets of XLand's paper are unseen ones. Vintix's numbers of episodes are those of its domains,
/// so they are left to the user.
const std::map<std::string, Settings>& settings_by_protocol() {
  static const std::map<std::string, Settings> kSettings = {
      {name_of(EvaluationProtocol::kXland),
       {{"eval_episodes", "500"},
        {"eval_repeats", "1"},
        {"eval_tasks", "test"},
        {"eval_task_limit", "1024"},
        {"eval_sampling", name_of(Sampling::kGreedy)},
        {"eval_context", name_of(EvaluationContext::kRolling)}}},
      {name_of(EvaluationProtocol::kVintix),
       {{"eval_sampling", name_of(Sampling::kGreedy)},
        {"eval_context", name_of(EvaluationContext::kRolling)}}}};
  return kSettings;
}

}  // namespace

const char* name_of(EvaluationProtocol protocol) {
  switch (protocol) {
    case EvaluationProtocol::kXland:
      return "xland";
    case EvaluationProtocol::kVintix:
      return "vintix";
    case EvaluationProtocol::kNone:
      break;
  }
  return "none";
}

void unfold_eval_protocol(Document& document) {
  constexpr const char* kProtocol = "eval_protocol";
  const Entry* const found = document.find(kProtocol);
  if (found == nullptr || found->kind != Entry::Kind::kScalar) return;
  const auto protocol = settings_by_protocol().find(to_lower(found->text));
  if (protocol == settings_by_protocol().end()) return;
  for (const auto& [key, value] : protocol->second) document.put_beside(kProtocol, key, value);
}

}  // namespace adtrain
