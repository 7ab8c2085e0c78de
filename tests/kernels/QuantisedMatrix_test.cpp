#include <map>
#include <random>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include "checkpoint/Safetensors.h"
#include "kernels/quantised/CodeMaps.h"
#include "kernels/quantised/Dequantise.h"
#include "kernels/quantised/OutlierProduct.h"
#include "kernels/quantised/Quantise.h"
#include "kernels/quantised/WeightProduct.h"
#include "support/Process.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using kernels::dequantised;
using kernels::quantised_4bit;
using kernels::quantised_rows;

/// Equal in type, shape and every byte.
void expect_bytes(const at::Tensor& found, const at::Tensor& expected, const std::string& name) {
  ASSERT_EQ(found.scalar_type(), expected.scalar_type()) << name;
  ASSERT_EQ(found.sizes(), expected.sizes()) << name;
  const auto as_bytes = [](const at::Tensor& tensor) {
    return tensor.contiguous().flatten().view(at::kByte);
  };
  const int64_t different = as_bytes(found).ne(as_bytes(expected)).sum().item<int64_t>();
  EXPECT_EQ(different, 0) << name;
}

/// Equal in type and every value; a zero may have another sign.
void expect_values(const at::Tensor& found, const at::Tensor& expected, const std::string& name) {
  ASSERT_EQ(found.scalar_type(), expected.scalar_type()) << name;
  EXPECT_TRUE(at::equal(found, expected)) << name;
}

/// Random weights with what is hard: blocks and rows of zeros, of one value, of tiny ones; an odd count. None
/// are so large that their products leave the range of fp16.
at::Tensor random_weights(int64_t rows, int64_t columns, at::ScalarType type) {
  at::Tensor weights = at::randn({rows, columns}) * at::exp((2 * at::randn({rows, 1})).clamp_max(4));
  weights.flatten().narrow(0, 0, std::min<int64_t>(weights.numel(), 70)).zero_();
  if (rows > 4) {
    weights[rows - 1].zero_();
    weights[rows - 2].fill_(-3);
    weights[rows - 3].mul_(1e-30);
    weights[rows - 4][0] = 1000;
  }
  return weights.to(type);
}

std::map<std::string, at::Tensor> by_name(const SafetensorsFile& file) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : file.tensors) tensors.emplace(name, tensor);
  return tensors;
}

struct Case {
  at::Tensor weights, rows, bias;
};

void expect_equal(const Case& given, const std::string& number,
                  const std::map<std::string, at::Tensor>& peer) {
  const std::vector<std::pair<std::string, QuantisedCode>> codes = {{"nf4", QuantisedCode::nf4},
                                                                    {"fp4", QuantisedCode::fp4}};
  for (const auto& [kind, code] : codes) {
    for (const bool nested : {false, true}) {
      const std::string name = number + "." + kind + (nested ? ".nested" : "");
      const QuantisedMatrix matrix = quantised_4bit(given.weights, code, nested);
      expect_bytes(matrix.codes, peer.at(name + ".codes"), name + ".codes");
      expect_bytes(matrix.absmax, peer.at(name + ".absmax"), name + ".absmax");
      expect_bytes(matrix.code_map, peer.at(name + ".code_map"), name + ".code_map");
      if (nested) {
        expect_bytes(matrix.nested_absmax, peer.at(name + ".nested_absmax"), name + ".nested_absmax");
        expect_bytes(matrix.nested_map, peer.at(name + ".nested_map"), name + ".nested_map");
        EXPECT_EQ(matrix.nested_offset, peer.at(name + ".nested_offset").item<float>()) << name;
      }
      expect_values(dequantised(matrix, at::kFloat), peer.at(name + ".values.float32"), name);
      expect_values(dequantised(matrix, at::kBFloat16), peer.at(name + ".values.bfloat16"), name);
      expect_values(dequantised(matrix, at::kHalf), peer.at(name + ".values.float16"), name);
    }
  }
  const std::string name = number + ".int8";
  const QuantisedMatrix matrix = quantised_rows(given.weights);
  expect_bytes(matrix.codes, peer.at(name + ".codes"), name + ".codes");
  expect_bytes(matrix.absmax, peer.at(name + ".absmax"), name + ".absmax");
  expect_values(dequantised(matrix, at::kFloat), peer.at(name + ".values.float32"), name);

  // Results of fp16, of which its own 1 / 127² has two wrong digits.
  const auto expect_near = [&](const at::Tensor& product, const std::string& of_peer) {
    const at::Tensor expected = peer.at(number + of_peer).to(at::kFloat);
    const at::Tensor difference = (product.to(at::kFloat) - expected).abs();
    const at::Tensor allowed = 1e-3 * expected.abs() + 1e-3 * expected.abs().amax();
    EXPECT_TRUE(difference.le(allowed).all().item<bool>())
        << number << of_peer << ": " << difference.max().item<float>();
  };
  const at::Tensor rows = given.rows.to(at::kHalf);
  expect_near(kernels::outlier_product(rows, matrix, given.bias, 6.0), ".product");
  expect_near(kernels::weight_product(rows, matrix, given.bias), ".weight_product");
}

TEST(QuantisedMatrix, IsByteForByteWhatBitsandbytesStores) {
  const std::vector<std::tuple<int64_t, int64_t, at::ScalarType>> shapes = {
      {192, 256, at::kFloat}, {192, 64, at::kBFloat16}, {70, 190, at::kHalf}, {33, 77, at::kFloat},
      {5, 13, at::kBFloat16}, {1, 1, at::kFloat},       {513, 65, at::kHalf}};
  std::vector<Case> cases;
  std::vector<NamedTensor> inputs;
  for (const auto& [rows, columns, type] : shapes) {
    Case made = {random_weights(rows, columns, type), at::randn({9, columns}), at::randn({rows})};
    made.rows.select(1, columns / 2).mul_(8);  // a column of outliers
    made.rows[3].zero_();
    const std::string number = std::to_string(cases.size());
    inputs.push_back({number + ".w", made.weights});
    inputs.push_back({number + ".x", made.rows});
    inputs.push_back({number + ".b", made.bias.to(at::kHalf)});
    made.bias = made.bias.to(at::kHalf);
    cases.push_back(made);
  }
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "from.safetensors", inputs);
  const Finished python = run_shell(quoted(ADTRAIN_PYTHON) + " " +
                                    quoted(ADTRAIN_SOURCE_DIR "/tests/kernels/quantise_by_bitsandbytes.py") +
                                    " " + quoted(folder.path() / "from.safetensors") + " " +
                                    quoted(folder.path() / "to.safetensors") + " 2>&1");
  if (python.exit_code == 77) GTEST_SKIP() << python.output;
  ASSERT_EQ(python.exit_code, 0) << python.output;
  const auto peer = by_name(read_safetensors(folder.path() / "to.safetensors"));
  for (size_t i = 0; i < cases.size(); ++i) expect_equal(cases[i], std::to_string(i), peer);
}

TEST(QuantisedMatrix, OfEveryCodeIsNearItsWeightsAndTakesWhatItsShapeSays) {
  const at::Tensor weights = at::randn({96, 130});
  const double norm = weights.norm().item<double>();
  struct Kind {
    QuantisedMatrix matrix, shape;
    double error;  ///< relative, of normally distributed weights
  };
  std::vector<Kind> kinds = {
      {quantised_rows(weights), kernels::quantised_shape(QuantisedCode::int8, false, 96, 130), 0.01}};
  for (const bool nested : {false, true}) {
    for (const QuantisedCode code : {QuantisedCode::nf4, QuantisedCode::fp4}) {
      kinds.push_back({quantised_4bit(weights, code, nested), kernels::quantised_shape(code, nested, 96, 130),
                       code == QuantisedCode::nf4 ? 0.1 : 0.14});
    }
  }
  for (const Kind& kind : kinds) {
    const at::Tensor values = dequantised(kind.matrix, at::kFloat);
    EXPECT_LT((values - weights).norm().item<double>() / norm, kind.error);
    const auto tensors = [](const QuantisedMatrix& matrix) {
      return std::vector<at::Tensor>{matrix.codes, matrix.absmax, matrix.code_map, matrix.nested_absmax,
                                     matrix.nested_map};
    };
    for (size_t i = 0; i < tensors(kind.matrix).size(); ++i) {
      const at::Tensor kept = tensors(kind.matrix)[i], shape = tensors(kind.shape)[i];
      ASSERT_EQ(kept.defined(), shape.defined());
      if (!kept.defined()) continue;
      EXPECT_EQ(kept.sizes(), shape.sizes());
      EXPECT_EQ(kept.scalar_type(), shape.scalar_type());
    }
    // The plain product is that of the weights that it stands for.
    const at::Tensor x = at::randn({7, 130}), bias = at::randn({96});
    EXPECT_TRUE(at::equal(kernels::weight_product(x, kind.matrix, bias), at::linear(x, values, bias)));
    EXPECT_TRUE(at::equal(kernels::weight_product(x.to(at::kBFloat16), kind.matrix, {}),
                          at::linear(x.to(at::kBFloat16), values.to(at::kBFloat16))));
  }
}

TEST(QuantisedMatrix, OfFourBitsDoesNotDependOnThreads) {
  const at::Tensor weights = at::randn({1024, 2304});  // enough blocks for libtorch to sum them by threads
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const QuantisedMatrix one = quantised_4bit(weights, QuantisedCode::nf4, true);
  at::set_num_threads(3);
  const QuantisedMatrix three = quantised_4bit(weights, QuantisedCode::nf4, true);
  EXPECT_EQ(at::get_num_threads(), 3);
  at::set_num_threads(threads);
  EXPECT_EQ(one.nested_offset, three.nested_offset);
  expect_bytes(three.absmax, one.absmax, "absmax");
  expect_bytes(three.codes, one.codes, "codes");
}

TEST(QuantisedMatrix, ProductWithOutliersIsThatOfTheWeightsToThePrecisionOfEightBits) {
  const QuantisedMatrix matrix = quantised_rows(at::randn({40, 96}));
  at::Tensor x = at::randn({11, 96}).clamp(-5, 5);
  x.select(1, 7).mul_(0).add_(50);  // alone it would leave the others few of the 127 steps
  const at::Tensor bias = at::randn({40});
  const at::Tensor expected = at::linear(x, dequantised(matrix, at::kFloat), bias);
  const auto error_of = [&](double threshold) {
    const at::Tensor found = kernels::outlier_product(x, matrix, bias, threshold);
    return ((found - expected).norm() / (expected - expected.mean()).norm()).item<double>();
  };
  EXPECT_LT(error_of(6.0), 2e-3);
  EXPECT_GT(error_of(100.0), 1e-2) << "the outlier is none by then";
}

/// Of more rows than are multiplied at once, which outliers of any of them concern.
TEST(QuantisedMatrix, ProductWithOutliersOfManyRowsIsThatOfEach) {
  const QuantisedMatrix matrix = quantised_rows(at::randn({24, 32}));
  at::Tensor x = at::randn({5000, 32}).clamp(-5, 5);
  x.select(0, 4999).select(0, 3).fill_(50);
  const at::Tensor found = kernels::outlier_product(x, matrix, {}, 6.0);
  const at::Tensor last_of_few = kernels::outlier_product(x.narrow(0, 4000, 1000), matrix, {}, 6.0);
  EXPECT_TRUE(at::allclose(found.narrow(0, 4000, 1000), last_of_few, 1e-5, 1e-5));
  EXPECT_FALSE(at::allclose(found.narrow(0, 0, 4000),
                            kernels::outlier_product(x.narrow(0, 0, 4000), matrix, {}, 6.0), 1e-5, 1e-5))
      << "the last row's outlier takes its column apart for these, too";
}

/// libtorch's own product of bytes leaves that of one column unwritten on a CPU.
TEST(QuantisedMatrix, ProductWithOutliersOfOneColumnIsThatOfTheWeights) {
  const QuantisedMatrix matrix = quantised_rows(at::randn({40, 1}));
  const at::Tensor rows = at::randn({11, 1}).clamp(0.25, 0.5).to(at::kHalf).to(at::kFloat);
  const at::Tensor bias = at::randn({40});
  for (const double factor : {1.0, 32.0}) {  // by which the column is no outlier, and one
    const at::Tensor x = factor * rows;
    EXPECT_TRUE(at::allclose(kernels::outlier_product(x, matrix, bias, 6.0),
                             at::linear(x, dequantised(matrix, at::kFloat), bias), 1e-4, 1e-4))
        << factor;
  }
}

}  // namespace
}  // namespace adtrain
