#pragma once

#include <cstdint>

namespace adtrain {

/// The types of tokens in compressed context: rows of the type embedding and columns of the token-type
/// logits.
enum TokenType : int64_t {
  kTransition = 0,  ///< a transition; as a prediction: an action follows
  kCompress = 1,    ///< <compress>; never predicted, as it always follows the end of a region
  kEndCompress = 2  ///< </compress>; as a prediction: the region ends here
};

}  // namespace adtrain
