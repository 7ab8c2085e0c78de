#include "environments/Space.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <regex>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/Error.h"
#include "base/Text.h"

namespace adtrain {
namespace {

using nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kMostElements = int64_t{1} << 24;
constexpr int kMostAxes = 64;  ///< as NumPy has

[[noreturn]] void refuse(const std::string& origin, const std::string& why, const std::string& text) {
  throw DataError(fmt::format(
      "{} describes no space that adtrain knows: {}; found {}; expected JSON as Minari writes it: "
      R"({{"type": "Discrete", "n": 6}}, {{"type": "MultiDiscrete", "nvec": [5, 5]}} or )"
      R"({{"type": "Box", "dtype": "float32", "shape": [3], "low": [...], "high": [...]}})",
      origin, why, abridged(text)));
}

/// Of all extents; where that is more than kMostElements, more than that.
int64_t product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, [](int64_t so_far, int64_t extent) {
    return extent > 0 && so_far > kMostElements / extent ? kMostElements + 1 : so_far * extent;
  });
}

/// One number for all elements, or one of each.
template <class Number>
std::vector<Number> for_each_element(std::vector<Number> numbers, int64_t elements) {
  const bool for_all = numbers.size() == 1 && elements >= 1 && elements <= kMostElements;
  if (for_all) numbers.resize(static_cast<size_t>(elements), numbers.front());
  return numbers;
}

/// Python's json module writes Infinity and -Infinity, which JSON lacks: here they become texts.
std::string with_infinity_as_text(const std::string& text) {
  static const std::regex kBare("-?Infinity");
  return std::regex_replace(text, kBare, "\"$&\"");
}

template <class Number>
Number number_of(const json& value);
/// Throws std::range_error where it is none: the conversion of such a number is undefined.
template <>
int64_t number_of(const json& value) {
  constexpr double kMostExact = 0x1p53;
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  bool whole = true;
  if (value.is_number_float()) {
    const double number = value;
    whole = std::abs(number) <= kMostExact && number == std::floor(number);
  } else if (value.is_number_unsigned()) {
    whole = value.get<uint64_t>() <= kMost;
  }
  if (!whole) throw std::range_error(abridged(value.dump()) + " is no whole number of 64 bits");
  return value.get<int64_t>();
}
template <>
double number_of(const json& value) {
  if (value == "Infinity") return kInfinity;
  return value == "-Infinity" ? -kInfinity : value.get<double>();
}

/// The numbers of arrays within arrays, in C order. Deeper ones could exhaust the stack.
template <class Number>
void flatten(const json& value, int axes, std::vector<Number>& numbers) {
  if (value.is_array() && axes > 0) {
    for (const json& element : value) flatten(element, axes - 1, numbers);
  } else {
    numbers.push_back(number_of<Number>(value));
  }
}

template <class Number>
std::vector<Number> flat(const json& value, int axes = kMostAxes) {
  std::vector<Number> numbers;
  flatten(value, axes, numbers);
  return numbers;
}

std::vector<int64_t> shape_of(const json& value) {
  std::vector<int64_t> shape;
  for (const json* level = &value; level->is_array(); level = &level->front()) {
    shape.push_back(static_cast<int64_t>(level->size()));
    if (level->empty()) break;
  }
  return shape;
}

}  // namespace

Space Space::discrete(int64_t values) {
  Space space;
  space.values = {values};
  space.start = {0};
  return space;
}

Space Space::multi_discrete(std::vector<int64_t> shape, std::vector<int64_t> values) {
  Space space;
  space.kind = Kind::kMultiDiscrete;
  const int64_t elements = product(shape);
  space.shape = std::move(shape);
  space.values = for_each_element(std::move(values), elements);
  space.start.assign(static_cast<size_t>(elements), 0);
  return space;
}

Space Space::box(std::vector<int64_t> shape, std::vector<double> low, std::vector<double> high,
                 ElementType type) {
  Space space;
  space.kind = Kind::kBox;
  space.type = type;
  const int64_t elements = product(shape);
  space.shape = std::move(shape);
  space.low = for_each_element(std::move(low), elements);
  space.high = for_each_element(std::move(high), elements);
  return space;
}

Space Space::from_json(const std::string& text, const std::string& origin) {
  try {
    const json read = json::parse(with_infinity_as_text(text));
    const std::string type = read.at("type");
    const ElementType usual = type == "Box" ? ElementType::kFloat32 : ElementType::kInt64;
    const std::string dtype = read.value("dtype", name_of(usual));
    const std::optional<ElementType> element = element_type_of(dtype);
    if (!element) {
      refuse(origin, fmt::format("dtype is '{}', none of {}", dtype, join(element_type_names(), ", ")), text);
    }
    Space space;
    if (type == "Discrete") {
      space = discrete(number_of<int64_t>(read.at("n")));
      if (read.contains("start")) space.start = {number_of<int64_t>(read.at("start"))};
    } else if (type == "MultiDiscrete") {
      space = multi_discrete(shape_of(read.at("nvec")), flat<int64_t>(read.at("nvec")));
      if (read.contains("start")) space.start = flat<int64_t>(read.at("start"));
    } else if (type == "Box") {
      space = box(flat<int64_t>(read.at("shape").get<json::array_t>(), 1), flat<double>(read.at("low")),
                  flat<double>(read.at("high")));
    } else {
      refuse(origin, fmt::format("type is '{}', none of Discrete, MultiDiscrete and Box", type), text);
    }
    space.type = *element;
    if (const std::string why = space.contradiction(); !why.empty()) refuse(origin, why, text);
    return space;
  } catch (const std::range_error& error) {
    refuse(origin, error.what(), text);
  } catch (const json::exception& error) {
    const std::string why = error.what();  // after the library's own number of the error, in brackets
    refuse(origin, why.substr(why.find(' ') + 1), text);
  }
}

std::string Space::contradiction() const {
  if (std::ranges::any_of(shape, [](int64_t extent) { return extent < 1; })) {
    return fmt::format("the shape ({}) has an extent below 1", fmt::join(shape, ", "));
  }
  if (size() > kMostElements) return fmt::format("it has more than {} elements", kMostElements);
  const auto elements = static_cast<size_t>(size());
  if (kind == Kind::kBox) {
    if (low.size() != elements || high.size() != elements) {
      return fmt::format("{} lower and {} upper bounds for {} elements", low.size(), high.size(), elements);
    }
    for (size_t i = 0; i < elements; ++i) {
      if (!(low[i] <= high[i])) return fmt::format("bounds {} to {} of element {}", low[i], high[i], i);
    }
    return "";
  }
  if (values.size() != elements || start.size() != elements) {
    return fmt::format("{} numbers of values and {} starts for {} elements", values.size(), start.size(),
                       elements);
  }
  const auto none = std::ranges::find_if(values, [](int64_t count) { return count < 1; });
  return none == values.end() ? "" : fmt::format("an element that may take {} values", *none);
}

std::string Space::to_json() const {
  const auto nested = [this](const std::vector<int64_t>& numbers) {
    json array = json::array();
    for (const int64_t number : numbers) array.push_back(number);
    for (size_t axis = shape.size(); axis-- > 1;) {
      json outer = json::array();
      const auto extent = static_cast<size_t>(shape[axis]);
      for (size_t first = 0; first < array.size(); first += extent) {
        outer.push_back(json(array.begin() + static_cast<std::ptrdiff_t>(first),
                             array.begin() + static_cast<std::ptrdiff_t>(first + extent)));
      }
      array = std::move(outer);
    }
    return array.dump();
  };
  // Those of an image are the same thousands of times; one number stands for all of them.
  constexpr size_t kManyBounds = 1024;
  const auto bounds = [](std::vector<double> numbers) {
    const bool equal = std::ranges::adjacent_find(numbers, std::not_equal_to<>()) == numbers.end();
    if (equal && numbers.size() >= kManyBounds) numbers.resize(1);
    std::vector<std::string> texts;
    for (const double number : numbers) {
      texts.push_back(std::isinf(number) ? (number < 0 ? "-Infinity" : "Infinity") : json(number).dump());
    }
    return join(texts, ", ");
  };
  switch (kind) {
    case Kind::kDiscrete:
      return fmt::format(R"({{"type": "Discrete", "dtype": "{}", "start": {}, "n": {}}})", name_of(type),
                         start.front(), values.front());
    case Kind::kMultiDiscrete:
      return fmt::format(R"({{"type": "MultiDiscrete", "dtype": "{}", "nvec": {}, "start": {}}})",
                         name_of(type), nested(values), nested(start));
    case Kind::kBox:
      break;
  }
  return fmt::format(R"({{"type": "Box", "dtype": "{}", "shape": [{}], "low": [{}], "high": [{}]}})",
                     name_of(type), fmt::join(shape, ", "), bounds(low), bounds(high));
}

int64_t Space::size() const {
  return product(shape);
}

std::string Space::text() const {
  constexpr size_t kShown = 6;
  const std::string extents = fmt::format("({}{})", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  switch (kind) {
    case Kind::kDiscrete:
      return fmt::format("Discrete({})", values.front());
    case Kind::kMultiDiscrete: {
      if (std::ranges::adjacent_find(values, std::not_equal_to<>()) == values.end()) {
        return fmt::format("MultiDiscrete({}, {} values)", extents, values.front());
      }
      const auto shown = static_cast<std::ptrdiff_t>(std::min(values.size(), kShown));
      return fmt::format("MultiDiscrete({}, values {}{})", extents,
                         fmt::join(values.begin(), values.begin() + shown, ", "),
                         values.size() > kShown ? ", …" : "");
    }
    case Kind::kBox:
      break;
  }
  return fmt::format("Box({}, {})", extents, name_of(type));
}

bool Space::fits(const Space& trained) const {
  if (kind != trained.kind || shape != trained.shape || values != trained.values || start != trained.start ||
      is_whole(type) != is_whole(trained.type)) {
    return false;
  }
  for (size_t i = 0; i < trained.low.size(); ++i) {
    if (std::isfinite(trained.low[i]) && low[i] != trained.low[i]) return false;
    if (std::isfinite(trained.high[i]) && high[i] != trained.high[i]) return false;
  }
  return true;
}

}  // namespace adtrain
