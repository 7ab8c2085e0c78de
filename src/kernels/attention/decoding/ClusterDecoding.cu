#include "kernels/attention/decoding/DecodingAttention.h"
#include "kernels/attention/decoding/DecodingHead.cuh"
#include "kernels/primitives/EarlyStart.cuh"
#include "kernels/primitives/TransferInstructions.cuh"

/// With few heads it is latency that counts. A cluster of thread blocks has a head, so that many keys are
/// loaded at once; its warps take turns, the first thread block's first. In each thread block one warp norms
/// the newest token's query and key and finds how many keys are to be read. What thread blocks have found
/// they send to the first one.
namespace adtrain::kernels {
namespace {

constexpr int kWarps = 8;

/// What some of a head's keys give its query.
template <int HeadSize>
struct FoundPart {
  float4 values[HeadSize / 4];
  float4 sums;  ///< the greatest exponent, and the weights' total
};

/// Where a thread block's warps and a cluster's thread blocks meet: shared memory.
template <int HeadSize>
struct ClusterMemory {
  NewestToken<HeadSize> newest;
  FoundPart<HeadSize> of_warps[kWarps];
  FoundPart<HeadSize> of_blocks[kMostOfCluster];  ///< in the first thread block
  TransferBarrier arrived;                        ///< of `of_blocks`
};

/// The work of one thread.
template <class Short, int HeadSize>
class ClusterDecoding {
  using Head = DecodingHead<Short, HeadSize>;
  using Part = FoundPart<HeadSize>;
  static constexpr int kChunk = kWarps * Head::kKeys;  ///< keys of a thread block at once
  static constexpr int kFours = HeadSize / 4;          ///< of features: one a lane

 public:
  using Memory = ClusterMemory<HeadSize>;

  __device__ ClusterDecoding(const DecodingAttention& job, Memory& memory)
      : job_(job),
        memory_(memory),
        ring_(static_cast<int>(blockIdx.x) / job.splits),
        block_(static_cast<int>(blockIdx.x) % job.splits),
        warp_(static_cast<int>(threadIdx.x) / kWarp),
        head_(job, ring_) {}

  /// What needs no newest token. The kernels ahead may not have ended: the count of tokens may be an older
  /// one, and no key is used. When this returns, the cluster is there.
  __device__ void prepare() {
    if (block_ == 0 && threadIdx.x == 0) memory_.arrived.set_up(1);
    show_barriers_to_copies();
    meet_in_cluster();
    head_.count_tokens();
    if (takes_newest()) head_.load_norms();
    for (int first = first_key(); first < min(head_.count(), job_.early_keys); first += job_.splits * kChunk)
      head_.prefetch_keys(first);
  }

  /// Once the kernels ahead have ended.
  __device__ void run() {
    typename Head::Newest newest = {};
    if (takes_newest()) newest = head_.load_newest();
    head_.count_tokens();
    if (takes_newest()) head_.take(newest, /*keeps=*/block_ == 0, memory_.newest);
    head_.load(first_key(), head_.count());
    __syncthreads();
    const int read = memory_.newest.read, blocks = blocks_of(read);
    if (block_ >= blocks) return;
    attend(read);
    __syncthreads();
    if (warp_ == 0) meet(read, blocks);
  }

 private:
  /// The last warp, which has no keys to load while contexts are short.
  __device__ bool takes_newest() const { return warp_ == kWarps - 1; }
  /// The age of the warp's first key.
  __device__ int first_key() const { return block_ * kChunk + warp_ * Head::kKeys; }
  /// How many thread blocks share so many keys.
  __device__ int blocks_of(int keys) const { return min(job_.splits, (keys + kChunk - 1) / kChunk); }

  /// Leaves in shared memory what the warp's keys give the query.
  __device__ void attend(int read) {
    const int first = first_key();
    if (first >= read) return;
    const Found& found = head_.attend_from(first, read, job_.splits * kChunk, memory_.newest);
    Part& part = memory_.of_warps[warp_];
    if (Head::group() == 0) {
      const float(&at)[kVectorWidth] = found.values.at;
      part.values[2 * Head::lane()] = {at[0], at[1], at[2], at[3]};
      part.values[2 * Head::lane() + 1] = {at[4], at[5], at[6], at[7]};
    }
    if (threadIdx.x % kWarp == 0) part.sums = {found.greatest, found.total, 0.0f, 0.0f};
  }

  /// Adds up what has been found. The first thread block stores it, others send it to that one. By one warp:
  /// a lane has four features.
  __device__ void meet(int read, int blocks) {
    const int lane = static_cast<int>(threadIdx.x);
    const int warps = min(kWarps, (read - block_ * kChunk + Head::kKeys - 1) / Head::kKeys);
    Four all = added(memory_.of_warps, warps, lane);
    if (block_ > 0) return send(all, lane);
    if (blocks > 1) {
      if (lane == 0) {
        memory_.arrived.expect((blocks - 1) * static_cast<int>(sizeof(Part)));
        memory_.arrived.arrive();
        memory_.of_blocks[0].sums = {all.greatest, all.total, 0.0f, 0.0f};
      }
      if (lane < kFours) memory_.of_blocks[0].values[lane] = all.values;
      __syncwarp();
      memory_.arrived.await(0);
      all = added(memory_.of_blocks, blocks, lane);
    }
    if (lane >= kFours) return;
    const float whole = 1.0f / all.total;
    static_cast<uint2*>(job_.output)[int64_t{ring_} * kFours + lane] = {
        packed<Short>(all.values.x * whole, all.values.y * whole),
        packed<Short>(all.values.z * whole, all.values.w * whole)};
  }

  /// Four features of what has been found.
  struct Four {
    float greatest, total;
    float4 values;
  };
  /// The sum of so many parts, in their order. Lanes without features have the last ones'.
  __device__ static Four added(const Part* parts, int count, int lane) {
    Four sum = {kLowest, 0.0f, {0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll 4
    for (int i = 0; i < count; ++i) sum.greatest = fmaxf(sum.greatest, parts[i].sums.x);
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      const float factor = exp2_of(parts[i].sums.x - sum.greatest);
      const float4 values = parts[i].values[min(lane, kFours - 1)];
      sum.total = fmaf(factor, parts[i].sums.y, sum.total);
      sum.values = {fmaf(factor, values.x, sum.values.x), fmaf(factor, values.y, sum.values.y),
                    fmaf(factor, values.z, sum.values.z), fmaf(factor, values.w, sum.values.w)};
    }
    return sum;
  }
  __device__ void send(const Four& found, int lane) {
    Part& place = memory_.of_blocks[block_];
    const float4& values = found.values;
    if (lane == 0)
      start_store(&place.sums, {{found.greatest, found.total, 0.0f, 0.0f}}, memory_.arrived, /*block=*/0);
    if (lane < kFours)
      start_store(&place.values[lane], {{values.x, values.y, values.z, values.w}}, memory_.arrived, 0);
  }

  const DecodingAttention& job_;
  Memory& memory_;
  const int ring_, block_, warp_;
  Head head_;
};

/// `kOfProcessor`: how many thread blocks of it a multiprocessor has registers for.
template <class Short, int HeadSize, int kOfProcessor>
__global__ void __launch_bounds__(kWarps* kWarp, kOfProcessor)
    cluster_decoding_kernel(const __grid_constant__ DecodingAttention job) {
  using Decoding = ClusterDecoding<Short, HeadSize>;
  let_next_kernel_start();
  Decoding decoding(job, *reinterpret_cast<typename Decoding::Memory*>(aligned_shared_memory()));
  decoding.prepare();
  await_kernels_ahead();
  decoding.run();
}

template <class Short, int HeadSize>
void launch(const DecodingAttention& job, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(job.shape.rings() * job.splits);
  // Where a multiprocessor has one, more registers leave its loads more time. With two of these the product
  // that follows has no room to bring its weights, which costs more while contexts are short.
  const auto kernel = static_cast<int>(blocks) <= job.processors
                          ? cluster_decoding_kernel<Short, HeadSize, 2>
                          : cluster_decoding_kernel<Short, HeadSize, 4>;
  launch_early_in_clusters("cluster_decoding_kernel", kernel, blocks, kWarps * kWarp,
                           static_cast<int>(sizeof(ClusterMemory<HeadSize>)), job.splits, stream, job);
}

}  // namespace

void decoding_in_clusters(const DecodingAttention& attention, cudaStream_t stream) {
  with_decoding_head(attention.shape, [&](auto type, auto head_size) {
    launch<decltype(type), head_size()>(attention, stream);
  });
}

}  // namespace adtrain::kernels
