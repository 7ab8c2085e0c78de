#pragma once

#include <set>
#include <string>
#include <vector>

namespace adtrain {

/// The name up to each of its dots, and the whole: "blocks", "blocks.0", "blocks.0.norm_1", ….
std::vector<std::string> beginnings_of(const std::string& name);

/// Those of `names`, of parameters, that `patterns` fit, which are names of parameters, or of modules, with
/// commas between them: "embed_context, blocks.[0-3], *.norm_1". A pattern fits a name as a whole or up to
/// one of its dots; * stands for any letters, dots too, ? for one, [0-3] for one of these. Throws
/// ConfigError, in which `place` names the key, where a pattern fits nothing, with the nearest names.
std::set<std::string> names_that_fit(const std::string& patterns, const std::vector<std::string>& names,
                                     const std::string& place);

}  // namespace adtrain
