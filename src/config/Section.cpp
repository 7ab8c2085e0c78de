#include "config/Section.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "base/Text.h"
#include "config/Scalar.h"

namespace adtrain {
namespace {

/// The index of the choice that `scalar` spells, in any case; `choices.size()` where there is none.
size_t find_choice(const std::vector<std::string>& choices, const std::string& scalar) {
  const auto same = [wanted = to_lower(scalar)](const std::string& choice) {
    return to_lower(choice) == wanted;
  };
  return static_cast<size_t>(std::find_if(choices.begin(), choices.end(), same) - choices.begin());
}

std::string listed(const std::vector<std::string>& choices) {
  if (choices.size() == 1) return choices.front();
  const std::vector<std::string> all_but_last(choices.begin(), choices.end() - 1);
  return join(all_but_last, ", ") + " or " + choices.back();
}

}  // namespace

Key& Key::unit(std::string name) {
  unit_ = std::move(name);
  return *this;
}

Key& Key::at_least(double bound) {
  at_least_ = bound;
  return *this;
}

Key& Key::at_most(double bound) {
  at_most_ = bound;
  return *this;
}

Key& Key::above(double bound) {
  above_ = bound;
  return *this;
}

Key& Key::below(double bound) {
  below_ = bound;
  return *this;
}

Key& Key::one_of(std::vector<std::string> choices) {
  choices_ = std::move(choices);
  return *this;
}

Key& Key::also_called(std::string alias) {
  aliases_.push_back(std::move(alias));
  return *this;
}

Key& Key::or_word(std::string word, int64_t value, std::vector<std::string> synonyms) {
  words_ = std::move(synonyms);
  words_.insert(words_.begin(), std::move(word));
  word_value_ = Scalar<int64_t>::write(value);
  default_text_ = value_text();
  return *this;
}

std::string Key::value_text() const {
  std::string text = write_();
  return !words_.empty() && text == word_value_ ? words_.front() : text;
}

Key& Key::free_on_resume(std::string proviso) {
  free_on_resume_ = true;
  proviso_on_resume_ = std::move(proviso);
  return *this;
}

std::string Key::bounds() const {
  std::vector<std::string> parts;
  if (at_least_) parts.push_back(fmt::format("at least {}", *at_least_));
  if (above_) parts.push_back(fmt::format("above {}", *above_));
  if (at_most_) parts.push_back(fmt::format("at most {}", *at_most_));
  if (below_) parts.push_back(fmt::format("below {}", *below_));
  return join(parts, " and ");
}

std::string Key::allowed() const {
  std::string words;
  switch (type_) {
    case Type::kInteger:
      words = "a whole number";
      break;
    case Type::kReal:
      words = "a number";
      break;
    case Type::kBoolean:
      words = "true or false";
      break;
    case Type::kText:
      words = choices_.empty() ? "a text" : listed(choices_);
      break;
  }
  if (!unit_.empty()) words += " of " + unit_;
  if (const std::string limits = bounds(); !limits.empty()) words += ", " + limits;
  if (!words_.empty()) words += ", or " + words_.front();
  return optional_ ? words + ", or null" : words;
}

bool Key::accepts_number(const std::string& scalar) const {
  const auto whole = Scalar<int64_t>::parse(scalar);
  if (type_ == Type::kInteger && !whole) return false;
  const auto number = Scalar<double>::parse(scalar);
  return number && !(at_least_ && *number < *at_least_) && !(above_ && *number <= *above_) &&
         !(at_most_ && *number > *at_most_) && !(below_ && *number >= *below_);
}

/// The scalar to store (a choice in its own spelling), or nothing where it is not allowed.
std::optional<std::string> Key::checked(const std::string& scalar) const {
  bool fine = true;
  switch (type_) {
    case Type::kInteger:
    case Type::kReal:
      if (std::ranges::find(words_, to_lower(scalar)) != words_.end()) return word_value_;
      fine = accepts_number(scalar);
      break;
    case Type::kBoolean:
      fine = Scalar<bool>::parse(scalar).has_value();
      break;
    case Type::kText: {
      if (choices_.empty()) {
        fine = is_utf8(scalar) && scalar.find('\0') == std::string::npos;
        break;
      }
      const size_t chosen = find_choice(choices_, scalar);
      return chosen < choices_.size() ? std::optional(choices_[chosen]) : std::nullopt;
    }
  }
  return fine ? std::optional(scalar) : std::nullopt;
}

std::optional<std::string> Key::assign(const std::string& scalar, bool is_null) {
  if (is_null) {
    if (!optional_) return fmt::format("found null; expected {}", allowed());
    store_("", true);
    return std::nullopt;
  }
  if (const auto accepted = checked(scalar)) {
    store_(*accepted, false);
    return std::nullopt;
  }
  if (type_ == Type::kText && choices_.empty()) {
    return fmt::format("found '{}', which is not UTF-8; expected a text in UTF-8 without null bytes",
                       abridged(scalar));
  }
  std::vector<std::string> words = choices_;
  if (!words_.empty()) words.push_back(words_.front());
  const std::string nearest = nearest_name(scalar, words);
  return fmt::format("found '{}'; expected {}{}", abridged(scalar), allowed(),
                     nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

Key& Section::add(Key key, std::string name, Key::Type type, std::string sentence) {
  key.name_ = std::move(name);
  key.sentence_ = std::move(sentence);
  key.type_ = type;
  key.default_text_ = key.write_();
  return keys_.emplace_back(std::move(key));
}

template <class Value>
Key& Section::required(std::string name, Key::Type type, Value& member, std::string sentence) {
  Key key;
  key.store_ = [&member](const std::string& scalar, bool) { member = *Scalar<Value>::parse(scalar); };
  key.write_ = [&member] { return Scalar<Value>::write(member); };
  return add(std::move(key), std::move(name), type, std::move(sentence));
}

template <class Value>
Key& Section::nullable(std::string name, Key::Type type, std::optional<Value>& member, std::string sentence) {
  Key key;
  key.optional_ = true;
  key.store_ = [&member](const std::string& scalar, bool is_null) {
    member = is_null ? std::nullopt : Scalar<Value>::parse(scalar);
  };
  key.write_ = [&member] { return member ? Scalar<Value>::write(*member) : std::string("null"); };
  return add(std::move(key), std::move(name), type, std::move(sentence));
}

Key& Section::key(std::string name, int64_t& member, std::string sentence) {
  return required(std::move(name), Key::Type::kInteger, member, std::move(sentence));
}

Key& Section::key(std::string name, double& member, std::string sentence) {
  return required(std::move(name), Key::Type::kReal, member, std::move(sentence));
}

Key& Section::key(std::string name, bool& member, std::string sentence) {
  return required(std::move(name), Key::Type::kBoolean, member, std::move(sentence));
}

Key& Section::key(std::string name, std::string& member, std::string sentence) {
  return required(std::move(name), Key::Type::kText, member, std::move(sentence));
}

Key& Section::key(std::string name, std::optional<int64_t>& member, std::string sentence) {
  return nullable(std::move(name), Key::Type::kInteger, member, std::move(sentence));
}

Key& Section::key(std::string name, std::optional<double>& member, std::string sentence) {
  return nullable(std::move(name), Key::Type::kReal, member, std::move(sentence));
}

Key& Section::key(std::string name, std::optional<std::string>& member, std::string sentence) {
  return nullable(std::move(name), Key::Type::kText, member, std::move(sentence));
}

Key& Section::enumeration(std::string name, std::vector<std::string> choices, std::string sentence,
                          std::function<void(size_t)> choose, std::function<std::string()> spelling) {
  Key key;
  key.store_ = [choices, choose = std::move(choose)](const std::string& scalar, bool) {
    choose(find_choice(choices, scalar));
  };
  key.write_ = [spelling = std::move(spelling)] { return Scalar<std::string>::write(spelling()); };
  return add(std::move(key), std::move(name), Key::Type::kText, std::move(sentence))
      .one_of(std::move(choices));
}

void Section::ignore(std::string name, std::string reason) {
  ignored_.emplace_back(std::move(name), std::move(reason));
}

void Section::all_free_on_resume(const std::vector<std::string>& but) {
  for (Key& key : keys_) {
    if (std::ranges::find(but, key.name()) == but.end()) key.free_on_resume_ = true;
  }
}

std::vector<Section*> pointers_to(std::vector<Section>& sections) {
  std::vector<Section*> list;
  for (Section& section : sections) list.push_back(&section);
  return list;
}

}  // namespace adtrain
