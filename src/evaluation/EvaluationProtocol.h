#pragma once

namespace adtrain {

class Document;

/// Published ways to evaluate, each of which chooses values of other eval_ keys. xland: XLand-100B
/// (arXiv:2406.08973; dunnolab/xland-minigrid-datasets). vintix: Vintix (arXiv:2501.19400; dunnolab/vintix),
/// whose results are scores on the scale of EvaluationOptions::eval_scores.
enum class EvaluationProtocol { kNone, kXland, kVintix };

/// As the configuration spells it.
const char* name_of(EvaluationProtocol protocol);

/// Where the document has an eval_protocol, puts in the keys that it stands for, each unless it is set beside
/// it or later. A protocol that is not known is left to those who read the key.
void unfold_eval_protocol(Document& document);

}  // namespace adtrain
