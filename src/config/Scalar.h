#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace adtrain {

/// How a value of one type is read from a YAML scalar, and written as one that both this program and Python's
/// yaml (YAML 1.1) read back as the same value. `parse` returns nothing where the scalar is not of this type.
template <class Value>
struct Scalar;

template <>
struct Scalar<int64_t> {
  /// "512", "-3", "100_000", and "1e5" or "100000.0", which are exactly whole. "010" is refused: eight in
  /// YAML 1.1, ten in YAML 1.2.
  static std::optional<int64_t> parse(std::string_view scalar);
  static std::string write(int64_t value);
};

template <>
struct Scalar<double> {
  /// Finite numbers only; also "1e-3", which Python's yaml reads as text.
  static std::optional<double> parse(std::string_view scalar);
  static std::string write(double value);
};

template <>
struct Scalar<bool> {
  /// true, yes and on, or false, no and off, in any case.
  static std::optional<bool> parse(std::string_view scalar);
  static std::string write(bool value);
};

template <>
struct Scalar<std::string> {
  static std::optional<std::string> parse(std::string_view scalar);
  /// In double quotes wherever the unquoted text could be read as another value.
  static std::string write(const std::string& value);
};

/// Whether two scalars are the same text, the same number or the same truth value.
bool same_meaning(const std::string& left, const std::string& right);

}  // namespace adtrain
