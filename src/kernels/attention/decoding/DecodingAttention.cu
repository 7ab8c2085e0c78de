#include "base/Launch.cuh"
#include "kernels/attention/decoding/DecodingAttention.h"
#include "kernels/attention/decoding/DecodingHead.cuh"
#include "kernels/primitives/EarlyStart.cuh"

/// A thread block takes a share of a head's keys, the newest first. One warp norms the newest token's query
/// and key and finds how many keys are to be read, while the others load their first keys. Where several
/// thread blocks share a head, the last of them to end adds up what all have found, in their order. As many
/// take part as there are chunks of keys to be read.
namespace adtrain::kernels {
namespace {

constexpr int kWarps = 4;  ///< of a thread block

/// Where the warps of a thread block meet: shared memory.
template <int HeadSize>
struct DecodingMemory {
  NewestToken<HeadSize> newest;
  float values[kWarps][HeadSize], totals[kWarps], maxima[kWarps];
  int is_last;
};

/// The work of one thread.
template <class Short, int HeadSize>
class Decoding {
  using Head = DecodingHead<Short, HeadSize>;
  static constexpr int kChunk = kWarps * Head::kKeys;  ///< keys at once
  /// Keys for which there is another split: to read as many takes as long as for splits to meet.
  static constexpr int kOfSplit = 4 * kChunk;

 public:
  using Memory = DecodingMemory<HeadSize>;

  __device__ Decoding(const DecodingAttention& job, Memory& memory)
      : job_(job),
        memory_(memory),
        ring_(static_cast<int>(blockIdx.x) / job.splits),
        split_(static_cast<int>(blockIdx.x) % job.splits),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        head_(job, ring_) {}

  /// What needs no newest token. The kernels ahead may not have ended: the count of tokens may be an older
  /// one.
  __device__ void prepare() {
    head_.count_tokens();
    if (takes_newest()) head_.load_norms();
  }

  /// Once the kernels ahead have ended.
  __device__ void run() {
    typename Head::Newest newest = {};
    if (takes_newest()) newest = head_.load_newest();
    head_.count_tokens();
    if (split_ >= splits_of(head_.count())) return;
    if (takes_newest()) head_.take(newest, /*keeps=*/split_ == 0, memory_.newest);
    const int first = first_key();
    head_.load(first, head_.count());
    __syncthreads();
    const int read = memory_.newest.read;
    const int splits = splits_of(read);
    if (split_ >= splits) return;
    head_.attend_from(first, read, splits * kChunk, memory_.newest);
    meet_warps(min(kWarps, (read - split_ * kChunk + Head::kKeys - 1) / Head::kKeys), splits);
  }

 private:
  /// The last warp, which has no keys to load while contexts are short.
  __device__ bool takes_newest() const { return warp_ == kWarps - 1; }
  /// The age of the warp's first key.
  __device__ int first_key() const { return split_ * kChunk + warp_ * Head::kKeys; }
  /// How many thread blocks share so many keys.
  __device__ int splits_of(int keys) const { return min(job_.splits, (keys + kOfSplit - 1) / kOfSplit); }

  /// Adds up what the first `warps` warps found, and stores it: a thread has a feature.
  __device__ void meet_warps(int warps, int splits) const {
    const Found& found = head_.found();
    if (warp_ < warps && Head::group() == 0) {
#pragma unroll
      for (int i = 0; i < kVectorWidth; ++i)
        memory_.values[warp_][kVectorWidth * Head::lane() + i] = found.values.at[i];
    }
    if (threadIdx.x % kWarp == 0) {
      memory_.totals[warp_] = found.total;
      memory_.maxima[warp_] = found.greatest;
    }
    __syncthreads();
    const int feature = static_cast<int>(threadIdx.x);
    float total = 0.0f, value = 0.0f, greatest = kLowest;
    if (feature < HeadSize) {
#pragma unroll 4
      for (int other = 0; other < warps; ++other) greatest = fmaxf(greatest, memory_.maxima[other]);
#pragma unroll 4
      for (int other = 0; other < warps; ++other) {
        const float factor = exp2_of(memory_.maxima[other] - greatest);
        total = fmaf(factor, memory_.totals[other], total);
        value = fmaf(factor, memory_.values[other][feature], value);
      }
    }
    if (splits == 1) return store(feature, value / total);
    if (feature < HeadSize) {
      float* const part = part_of(split_);
      part[feature] = value;
      if (feature == 0) {
        part[HeadSize] = greatest;
        part[HeadSize + 1] = total;
      }
    }
    if (is_last_of(splits)) add_up(splits, feature);
  }

  __device__ void store(int feature, float value) const {
    if (feature < HeadSize)
      static_cast<Short*>(job_.output)[int64_t{ring_} * HeadSize + feature] = rounded<Short>(value);
  }
  __device__ float* part_of(int split) const {
    return job_.parts + (int64_t{ring_} * job_.splits + split) * (HeadSize + 2);
  }

  /// Whether all other thread blocks of the ring have stored their parts, which are visible then.
  __device__ bool is_last_of(int splits) const {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      const unsigned last = static_cast<unsigned>(splits) - 1;
      memory_.is_last = atomicInc(job_.arrivals + ring_, last) == last ? 1 : 0;
      __threadfence();
    }
    __syncthreads();
    return memory_.is_last != 0;
  }
  __device__ void add_up(int splits, int feature) const {
    if (feature >= HeadSize) return;
    float greatest_of_all = kLowest, total_of_all = 0.0f, sum = 0.0f;
#pragma unroll 8
    for (int split = 0; split < splits; ++split) {
      const float* const part = part_of(split);
      const float value = __ldcg(part + feature), greatest = __ldcg(part + HeadSize),
                  total = __ldcg(part + HeadSize + 1);
      const float new_greatest = fmaxf(greatest_of_all, greatest);
      const float kept = exp2_of(greatest_of_all - new_greatest), added = exp2_of(greatest - new_greatest);
      greatest_of_all = new_greatest;
      total_of_all = fmaf(added, total, kept * total_of_all);
      sum = fmaf(added, value, kept * sum);
    }
    store(feature, sum / total_of_all);
  }

  const DecodingAttention& job_;
  Memory& memory_;
  const int ring_, split_, warp_;
  Head head_;
};

/// At most 64 registers a thread: loads of many threads hide the memory's latency.
template <class Short, int HeadSize>
__global__ void __launch_bounds__(kWarps* kWarp, 32 / kWarps)
    decoding_kernel(const __grid_constant__ DecodingAttention job) {
  __shared__ DecodingMemory<HeadSize> memory;
  let_next_kernel_start();
  Decoding<Short, HeadSize> decoding(job, memory);
  decoding.prepare();
  await_kernels_ahead();
  decoding.run();
}

template <class Short, int HeadSize>
void launch(const DecodingAttention& job, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(job.shape.rings() * job.splits);
  launch_early("decoding_kernel", decoding_kernel<Short, HeadSize>, blocks, kWarps * kWarp, 0, stream, job);
}

}  // namespace

void decoding_attention(const DecodingAttention& attention, cudaStream_t stream) {
  with_decoding_head(attention.shape, [&](auto type, auto head_size) {
    launch<decltype(type), head_size()>(attention, stream);
  });
}

}  // namespace adtrain::kernels
