#include "framework/BroadcastBytes.h"

#include <c10/core/GradMode.h>

namespace adtrain {

void broadcast_bytes(Communicator& communicator, const at::Tensor& tensor) {
  if (communicator.world_size() == 1 || tensor.numel() == 0) return;
  const at::AutoGradMode no_gradients(false);
  const at::Tensor dense = tensor.detach().contiguous();
  at::Tensor bytes = dense.view({-1}).view(at::kByte);
  communicator.broadcast(bytes, 0);
  // A copy was sent where the tensor itself is not contiguous.
  if (!dense.is_alias_of(tensor)) tensor.detach().copy_(dense);
}

}  // namespace adtrain
