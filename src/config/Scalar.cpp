#include "config/Scalar.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/Text.h"

namespace adtrain {
namespace {

/// Integers of at most this size are exact as doubles.
constexpr double kLargestExact = 0x1.0p53;

bool is_digit(char letter) {
  return letter >= '0' && letter <= '9';
}

/// The digits as std::from_chars requires them: no "+", no "_" between digits. Nothing where a leading zero
/// makes the number's base ambiguous.
std::optional<std::string> plain_number(std::string_view scalar) {
  std::string number;
  for (size_t i = 0; i < scalar.size(); ++i) {
    const bool separator = scalar[i] == '_' && i > 0 && is_digit(scalar[i - 1]) && i + 1 < scalar.size() &&
                           is_digit(scalar[i + 1]);
    if (!separator) number += scalar[i];
  }
  if (number.starts_with('+') && number.size() > 1 && number[1] != '-') number.erase(0, 1);
  const std::string_view digits = std::string_view(number).substr(number.starts_with('-') ? 1 : 0);
  if (digits.size() > 1 && digits[0] == '0' && is_digit(digits[1])) return std::nullopt;
  return number;
}

/// The whole text as one number, or nothing.
template <class Number>
std::optional<Number> convert(const std::string& text) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return number;
}

bool is_null_word(const std::string& text) {
  return to_lower(text) == "null" || text == "~";
}

/// Whether every YAML reader reads the unquoted text as this same text.
bool safe_unquoted(const std::string& text) {
  if (text.empty() ||
      !(std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '_' || text[0] == '/')) {
    return false;
  }
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 ||
           std::string_view("_./+-").find(static_cast<char>(letter)) != std::string_view::npos;
  });
  const std::string lower = to_lower(text);
  return plain && !is_null_word(text) && !Scalar<bool>::parse(text) && lower != "y" && lower != "n";
}

}  // namespace

std::optional<int64_t> Scalar<int64_t>::parse(std::string_view scalar) {
  const auto number = plain_number(scalar);
  if (!number) return std::nullopt;
  if (const auto whole = convert<int64_t>(*number)) return whole;
  const auto real = convert<double>(*number);
  if (!real || std::trunc(*real) != *real || std::abs(*real) > kLargestExact) return std::nullopt;
  return static_cast<int64_t>(*real);
}

std::string Scalar<int64_t>::write(int64_t value) {
  return fmt::format("{}", value);
}

std::optional<double> Scalar<double>::parse(std::string_view scalar) {
  const auto number = plain_number(scalar);
  if (!number) return std::nullopt;
  const auto real = convert<double>(*number);
  return real && std::isfinite(*real) ? real : std::nullopt;
}

std::string Scalar<double>::write(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find('.') != std::string::npos || !std::isfinite(value)) return text;
  const size_t exponent =
      text.find('e');  // YAML 1.1 reads a number with an exponent as text unless it has a decimal point
  return text.insert(exponent == std::string::npos ? text.size() : exponent, ".0");
}

std::optional<bool> Scalar<bool>::parse(std::string_view scalar) {
  const std::string word = to_lower(scalar);
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  return std::nullopt;
}

std::string Scalar<bool>::write(bool value) {
  return value ? "true" : "false";
}

std::optional<std::string> Scalar<std::string>::parse(std::string_view scalar) {
  return std::string(scalar);
}

std::string Scalar<std::string>::write(const std::string& value) {
  // A JSON string is a double-quoted YAML scalar.
  return safe_unquoted(value) ? value : nlohmann::json(value).dump();
}

bool same_meaning(const std::string& left, const std::string& right) {
  const auto equal = [](const auto& a, const auto& b) { return a && b && *a == *b; };
  return left == right || equal(Scalar<double>::parse(left), Scalar<double>::parse(right)) ||
         equal(Scalar<bool>::parse(left), Scalar<bool>::parse(right));
}

}  // namespace adtrain
