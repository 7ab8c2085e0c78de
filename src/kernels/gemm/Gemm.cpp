#include "kernels/gemm/Gemm.h"

#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <cublasLt.h>
#include <fmt/format.h>

#include "base/Error.h"
#include "kernels/primitives/KernelOperation.h"

namespace adtrain::kernels {
namespace {

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw EnvironmentError(fmt::format("{} failed: {}.", what, cublasLtGetStatusString(status)));
}

/// y (rows, out) = x (rows, in) · W + beta · c + bias. W is (in, out), or (out, in) where `transposed`.
/// cuBLASLt is column-major, so for it this is yᵀ = Wᵀ xᵀ.
struct Shape {
  int64_t rows, in, out;
  bool transposed, biased, adds;
  int alignment;  ///< of all addresses, in bytes
  at::ScalarType type;
  int device;

  bool operator<(const Shape& other) const { return tied() < other.tied(); }

 private:
  std::tuple<int64_t, int64_t, int64_t, bool, bool, bool, at::ScalarType, int, int> tied() const {
    return {rows, in, out, transposed, biased, adds, type, alignment, device};
  }
};

struct Operands {
  const void *x, *weight, *bias;  ///< bias null where there is none
  const void* c;                  ///< the summand; y where nothing is added
  void* y;
};

template <class Handle, cublasStatus_t (*Destroy)(Handle)>
struct Destroyer {
  using pointer = Handle;
  void operator()(Handle handle) const { Destroy(handle); }
};
template <class Handle, cublasStatus_t (*Destroy)(Handle)>
using Owned = std::unique_ptr<Handle, Destroyer<Handle, Destroy>>;

/// A product as cuBLASLt's descriptor and layouts.
class Description {
 public:
  explicit Description(const Shape& shape) : shape_(shape) {
    cublasLtMatmulDesc_t product = nullptr;
    check(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    product_.reset(product);
    set(CUBLASLT_MATMUL_DESC_TRANSA, shape.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (shape.biased) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    weight_ = shape.transposed ? layout(shape.in, shape.out) : layout(shape.out, shape.in);
    x_ = layout(shape.in, shape.rows);
    y_ = layout(shape.out, shape.rows);
  }

  /// The algorithms that need no reduction over split sums, in cuBLASLt's order of expected speed.
  std::vector<cublasLtMatmulAlgo_t> algorithms() const {
    cublasLtMatmulPreference_t created = nullptr;
    check(cublasLtMatmulPreferenceCreate(&created), "cublasLtMatmulPreferenceCreate");
    const Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference(created);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, uint32_t value) {
      check(cublasLtMatmulPreferenceSetAttribute(created, attribute, &value, sizeof value),
            "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_NONE);
    for (const auto operand :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(operand, static_cast<uint32_t>(shape_.alignment));
    }
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results = {};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        at::cuda::getCurrentCUDABlasLtHandle(), product_.get(), weight_.get(), x_.get(), y_.get(), y_.get(),
        created, kCandidates, results.data(), &found);
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return algorithms;
    check(status, "cublasLtMatmulAlgoGetHeuristic");
    for (int i = 0; i < found; ++i) {
      if (results[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(results[i].algo);
    }
    return algorithms;
  }

  cublasStatus_t run(const cublasLtMatmulAlgo_t& algorithm, const Operands& operands) {
    if (shape_.biased) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
    const float alpha = 1, beta = shape_.adds ? 1 : 0;
    return cublasLtMatmul(at::cuda::getCurrentCUDABlasLtHandle(), product_.get(), &alpha, operands.weight,
                          weight_.get(), operands.x, x_.get(), &beta, operands.c, y_.get(), operands.y,
                          y_.get(), &algorithm, nullptr, 0, current_stream());
  }

 private:
  static constexpr int kCandidates = 16;
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    check(cublasLtMatmulDescSetAttribute(product_.get(), attribute, &value, sizeof value),
          "cublasLtMatmulDescSetAttribute");
  }
  Layout layout(int64_t rows, int64_t columns) const {
    cublasLtMatrixLayout_t layout = nullptr;
    const cudaDataType_t type = shape_.type == at::kHalf ? CUDA_R_16F : CUDA_R_16BF;
    check(cublasLtMatrixLayoutCreate(&layout, type, rows, columns, rows), "cublasLtMatrixLayoutCreate");
    return Layout(layout);
  }

  Shape shape_;
  Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> product_;
  Layout weight_, x_, y_;
};

/// Returns the time of one run in milliseconds, or nothing where the algorithm does not run. The runs follow
/// each other without a pause, as in a training step. A GPU at its power limit is slower than a cool one, and
/// the factor differs between algorithms.
std::optional<float> duration(Description& product, const cublasLtMatmulAlgo_t& algorithm,
                              const Operands& operands) {
  constexpr int kRuns = 10;
  at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
  if (product.run(algorithm, operands) != CUBLAS_STATUS_SUCCESS) return std::nullopt;
  begin.record();
  for (int run = 0; run < kRuns; ++run) product.run(algorithm, operands);
  end.record();
  end.synchronize();
  return begin.elapsed_time(end) / kRuns;
}

/// Whether comparing with this result is meaningful: any algorithm returns zeros or non-finite values alike.
bool is_telling(const at::Tensor& result) {
  const float norm = result.norm(2, at::kFloat).item<float>();
  return norm > 0 && std::isfinite(norm);
}

/// Returns the fastest of the algorithms whose results are equal, or nothing where these operands make the
/// comparison meaningless. `y` gives sizes and type and is not written.
std::optional<cublasLtMatmulAlgo_t> fastest(Description& product,
                                            const std::vector<cublasLtMatmulAlgo_t>& algorithms,
                                            Operands operands, const at::Tensor& y) {
  const at::Tensor result = at::empty_like(y);
  operands.y = result.data_ptr();
  cublasLtMatmulAlgo_t best = algorithms.front();
  std::optional<float> shortest = duration(product, best, operands);
  if (!shortest || !is_telling(result)) return std::nullopt;
  const at::Tensor expected = result.clone();
  for (size_t i = 1; i < algorithms.size(); ++i) {
    const auto taken = duration(product, algorithms[i], operands);
    if (taken && *taken < *shortest && at::equal(result, expected)) shortest = taken, best = algorithms[i];
  }
  return best;
}

/// The chosen algorithm of each shape.
class Choices {
 public:
  /// Returns nothing where cuBLASLt has no algorithm. `y`: see fastest().
  std::optional<cublasLtMatmulAlgo_t> of(const Shape& shape, Description& product, const Operands& operands,
                                         const at::Tensor& y, Autotuning autotuning) {
    const std::lock_guard lock(mutex_);
    const auto known = chosen_.find(shape);
    if (known != chosen_.end() && (known->second.searched || !may_search(autotuning))) {
      return known->second.algorithm;
    }
    const std::vector<cublasLtMatmulAlgo_t> algorithms = product.algorithms();
    Choice choice;
    if (!algorithms.empty()) choice.algorithm = algorithms.front();
    if (may_search(autotuning) && !algorithms.empty()) {
      if (const auto found = found_by(product, algorithms, operands, y)) choice = {found, true};
    }
    return (chosen_[shape] = choice).algorithm;
  }

 private:
  struct Choice {
    std::optional<cublasLtMatmulAlgo_t> algorithm;
    bool searched = false;  ///< else it is cuBLASLt's first proposal
  };

  static bool may_search(Autotuning autotuning) {
    return autotuning == Autotuning::kAllowed &&
           c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None;
  }
  static std::optional<cublasLtMatmulAlgo_t> found_by(Description& product,
                                                      const std::vector<cublasLtMatmulAlgo_t>& algorithms,
                                                      const Operands& operands, const at::Tensor& y) {
    try {
      return fastest(product, algorithms, operands, y);
    } catch (const c10::OutOfMemoryError&) {  // for the results to compare; the step itself may fit
      return std::nullopt;
    }
  }

  std::mutex mutex_;
  std::map<Shape, Choice> chosen_;
};

int alignment_of(std::initializer_list<const void*> addresses) {
  constexpr uintptr_t kMost = 256;
  uintptr_t bits = kMost;
  for (const void* address : addresses) bits |= reinterpret_cast<uintptr_t>(address);
  return static_cast<int>(bits & (~bits + 1));
}

/// y = x · weight + bias + c; see Shape. `bias` and `c` may be undefined, and `c` may be `y`. Returns false
/// where libtorch must compute it.
bool multiplied(const at::Tensor& x, const at::Tensor& weight, bool transposed, const at::Tensor& bias,
                const at::Tensor& c, const at::Tensor& y, Autotuning autotuning = Autotuning::kAllowed) {
  constexpr double kLarge = 1e9;  // smaller products take a few microseconds, too little to search
  const auto operations = 2.0 * static_cast<double>(x.numel()) * static_cast<double>(y.size(1));
  if (!y.is_cuda() || operations < kLarge || !weight.is_contiguous()) return false;
  const c10::cuda::CUDAGuard on_device(y.device());
  const Operands operands = {x.data_ptr(), weight.data_ptr(), bias.defined() ? bias.data_ptr() : nullptr,
                             c.defined() ? c.data_ptr() : y.data_ptr(), y.data_ptr()};
  const int alignment = alignment_of({operands.x, operands.weight, operands.bias, operands.c, operands.y});
  const Shape shape = {x.size(0),   x.size(1), y.size(1),       transposed,    bias.defined(),
                       c.defined(), alignment, y.scalar_type(), y.get_device()};
  static Choices choices;
  Description product(shape);
  const auto algorithm = choices.of(shape, product, operands, y, autotuning);
  return algorithm && product.run(*algorithm, operands) == CUBLAS_STATUS_SUCCESS;
}

at::Tensor with_width(const at::Tensor& x, const at::Tensor& y) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = y.size(1);
  return y.view(sizes);
}

}  // namespace

at::Tensor matrix(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)}).contiguous();
}

at::Tensor product(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                   Autotuning autotuning) {
  const at::Tensor rows = matrix(x), y = at::empty({rows.size(0), weight.size(0)}, rows.options());
  if (multiplied(rows, weight, /*transposed=*/true, bias, /*c=*/{}, y, autotuning)) return with_width(x, y);
  return at::linear(x, weight, bias);
}

at::Tensor sum_with_product(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias, Autotuning autotuning) {
  const at::Tensor rows = matrix(x), c = matrix(sum), y = at::empty_like(c);
  if (multiplied(rows, weight, /*transposed=*/true, bias, c, y, autotuning)) return y.view(sum.sizes());
  return at::addmm(bias.defined() ? c + bias : c, rows, weight.t()).view(sum.sizes());
}

void add_product(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                 Autotuning autotuning) {
  const at::Tensor rows = matrix(x), sums = sum.view({-1, sum.size(-1)});
  if (multiplied(rows, weight, /*transposed=*/true, bias, sums, sums, autotuning)) return;
  if (bias.defined()) sums.add_(bias);
  sums.addmm_(rows, weight.t());
}

at::Tensor input_gradient(const at::Tensor& d_y, const at::Tensor& weight) {
  const at::Tensor rows = matrix(d_y), d_x = at::empty({rows.size(0), weight.size(1)}, rows.options());
  if (multiplied(rows, weight, /*transposed=*/false, {}, /*c=*/{}, d_x)) return with_width(d_y, d_x);
  return with_width(d_y, at::mm(rows, weight));
}

void add_input_gradient(const at::Tensor& d_y, const at::Tensor& weight, const at::Tensor& d_x) {
  const at::Tensor rows = matrix(d_y), sums = d_x.view({-1, d_x.size(-1)});
  if (!multiplied(rows, weight, /*transposed=*/false, {}, sums, sums)) sums.addmm_(rows, weight);
}

void add_weight_gradient(const at::Tensor& d_y, const at::Tensor& x, at::Tensor d_weight, Addend held) {
  if (held == Addend::kZero)
    at::mm_out(d_weight, matrix(d_y).t(), matrix(x), at::kFloat);
  else
    at::addmm_out(d_weight, d_weight, matrix(d_y).t(), matrix(x), at::kFloat);
}

at::Tensor products_in_fp32(const at::Tensor& a, const at::Tensor& b) {
  return at::bmm(a, b, at::kFloat);
}

void add_products(const at::Tensor& a, const at::Tensor& b, at::Tensor sums) {
  at::baddbmm_out(sums, sums, a, b, at::kFloat);
}

}  // namespace adtrain::kernels
