#include "environments/Space.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/Error.h"

namespace adtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Space read(const std::string& text) {
  return Space::from_json(text, "mine.hdf5, attribute action-space");
}

TEST(Space, IsReadAsMinariWritesIt) {
  EXPECT_EQ(read(R"({"type": "Discrete", "dtype": "int64", "start": 0, "n": 6})"), Space::discrete(6));
  EXPECT_EQ(
      read(
          R"({"type": "MultiDiscrete", "dtype": "int64", "nvec": [[2, 3], [4, 5]], "start": [[0, 0], [0, 0]]})"),
      Space::multi_discrete({2, 2}, {2, 3, 4, 5}));
  const Space box = read(
      R"({"type":"Box","dtype":"float64","shape":[3],"low":[-1.5, -Infinity, 0],"high":[1.5,Infinity,0]})");
  EXPECT_EQ(box, Space::box({3}, {-1.5, -kInfinity, 0}, {1.5, kInfinity, 0}, ElementType::kFloat64));
  EXPECT_EQ(box.size(), 3);
}

TEST(Space, IsWrittenAndReadBack) {
  for (const Space& space :
       {Space::discrete(4), Space::multi_discrete({5, 5, 2}, {9}), Space::multi_discrete({2}, {13, 12}),
        Space::box({2, 2}, {-kInfinity}, {0.1}, ElementType::kFloat16), Space::box({}, {0}, {1})}) {
    EXPECT_EQ(read(space.to_json()), space) << space.to_json();
  }
}

TEST(Space, ManyEqualBoundsAreWrittenOnce) {
  const Space image = Space::box({84, 84, 3}, {0}, {255}, ElementType::kUint8);
  EXPECT_LT(image.to_json().size(), 200U);
  EXPECT_EQ(read(image.to_json()), image);
  Space other = image;
  other.high.back() = 254;
  EXPECT_EQ(read(other.to_json()), other);
}

TEST(Space, SaysWhatItIs) {
  EXPECT_EQ(Space::discrete(6).text(), "Discrete(6)");
  EXPECT_EQ(Space::multi_discrete({2}, {9}).text(), "MultiDiscrete((2,), 9 values)");
  EXPECT_EQ(Space::multi_discrete({2, 2, 2}, {13, 12, 13, 12, 13, 12, 13, 12}).text(),
            "MultiDiscrete((2, 2, 2), values 13, 12, 13, 12, 13, 12, …)");
  EXPECT_EQ(Space::box({39}, {-1}, {1}).text(), "Box((39,), float32)");
}

TEST(Space, AnythingElseIsRefusedWithItsOriginAndWhatWasFound) {
  const auto refuses = [](const std::string& text, const std::string& why) {
    EXPECT_THAT([&] { read(text); },
                ThrowsMessage<DataError>(AllOf(HasSubstr("mine.hdf5, attribute action-space"), HasSubstr(why),
                                               HasSubstr("Minari"))))
        << text;
  };
  refuses("", "parse error");
  refuses("[]", "type");
  refuses(R"({"type": "Dict"})", "type is 'Dict'");
  refuses(R"({"type": "Discrete", "n": "six"})", "number");
  refuses(R"({"type": "Discrete", "n": 0})", "0 values");
  refuses(R"({"type": "Discrete", "n": 6, "start": 1e300})", "1e+300 is no whole number of 64 bits");
  refuses(R"({"type": "Discrete", "n": 2.5})", "2.5 is no whole number");
  refuses(R"({"type": "MultiDiscrete", "nvec": [5, 9223372036854775808]})", "9223372036854775808 is no");
  refuses(R"({"type": "Box", "shape": [1e19], "low": [0], "high": [1]})", "is no whole number");
  refuses(R"({"type": "Box", "shape": 2, "low": [0], "high": [1]})", "must be array");
  refuses(R"({"type": "Box", "shape": [[2]], "low": [0], "high": [1]})", "must be number");
  refuses(R"({"type": "Discrete", "n": 6, "dtype": "int65"})", "dtype is 'int65'");
  refuses(R"({"type": "MultiDiscrete", "nvec": [5, 5], "start": [0]})", "1 starts for 2");
  refuses(R"({"type": "MultiDiscrete", "nvec": [[], []]})", "extent below 1");
  refuses(R"({"type": "Box", "shape": [2], "low": [0, 0, 0], "high": [1]})", "3 lower");
  refuses(R"({"type": "Box", "shape": [2]})", "knows: key '");
  refuses(R"({"type": "Box", "shape": [2], "low": [2], "high": [1]})", "bounds 2 to 1");
  refuses(R"({"type": "Box", "shape": [-1], "low": [2], "high": [1]})", "extent below 1");
  refuses(R"({"type": "Box", "shape": [99999999], "low": [0], "high": [1]})", "more than");
  const std::string deep(200'000, '[');
  refuses(
      R"({"type": "Box", "shape": [1], "low": )" + deep + std::string(deep.size(), ']') + R"(, "high": [1]})",
      "number");
}

}  // namespace
}  // namespace adtrain
