#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace adtrain {

/// One configuration key: the member that takes its value, its allowed values, and its documentation. Made by
/// `Section::key`; the value that the member holds at that moment is the default.
class Key {
 public:
  enum class Type { kInteger, kReal, kBoolean, kText };

  Key& unit(std::string name);                    ///< "steps", "transitions"; shown by --explain
  Key& at_least(double bound);                    ///< inclusive; numbers only
  Key& at_most(double bound);                     ///< inclusive; numbers only
  Key& above(double bound);                       ///< exclusive; numbers only
  Key& below(double bound);                       ///< exclusive; numbers only
  Key& one_of(std::vector<std::string> choices);  ///< texts only; enumerations set it by themselves
  Key& also_called(std::string alias);  ///< another spelling that means the same (the Python projects')

  /// Whole numbers only: the text `word` is allowed, too, and stands for `value`, which bounds do not
  /// concern. So do `synonyms`, which the documentation leaves out.
  Key& or_word(std::string word, int64_t value, std::vector<std::string> synonyms = {});

  /// A run may be continued with another value, as this does not invalidate what was learnt. Other keys are
  /// fixed. `proviso` continues "May change on --resume", as in ", as long as …".
  Key& free_on_resume(std::string proviso = "");

  const std::string& name() const { return name_; }
  const std::string& sentence() const { return sentence_; }
  const std::string& default_text() const { return default_text_; }
  const std::string& unit_name() const { return unit_; }
  const std::vector<std::string>& choices() const { return choices_; }
  const std::vector<std::string>& aliases() const { return aliases_; }
  Type type() const { return type_; }
  bool is_optional() const { return optional_; }
  bool is_free_on_resume() const { return free_on_resume_; }
  const std::string& proviso_on_resume() const { return proviso_on_resume_; }

  /// "a whole number of steps, at least 1": the allowed values in words.
  std::string allowed() const;
  /// Parses a YAML scalar and stores it in the member. Returns an error message (nothing if it is valid): the
  /// caller knows file and line. A key that is not optional refuses null.
  std::optional<std::string> assign(const std::string& scalar, bool is_null);
  /// The member's current value as a YAML scalar ("null" for an empty optional).
  std::string value_text() const;

 private:
  friend class Section;
  std::optional<std::string> checked(const std::string& scalar) const;
  bool accepts_number(const std::string& scalar) const;
  std::string bounds() const;

  std::string name_, sentence_, unit_, default_text_, proviso_on_resume_;
  Type type_ = Type::kText;
  bool optional_ = false, free_on_resume_ = false;
  std::optional<double> at_least_, at_most_, above_, below_;
  std::vector<std::string> choices_, aliases_;
  std::vector<std::string> words_;  ///< of or_word, its synonyms last
  std::string word_value_;          ///< the whole number that they stand for
  std::function<void(const std::string& scalar, bool is_null)> store_;  ///< the scalar has been checked
  std::function<std::string()> write_;
};

/// A group of configuration keys that one component owns: its defaults, bounds, units and documentation in
/// one place, from which reading, checking, `adtrain validate --explain` and the saved resolved configuration
/// all follow.
///
///     struct CollectionOptions {
///       int64_t n_stream = 100;
///       void declare(Section& section) {
///         section.key("n_stream", n_stream, "Parallel copies of each task.").unit("streams").at_least(1);
///       }
///       void check(Findings& findings) const;  // what concerns several keys at once
///     };
///
/// Keys are one flat namespace over all sections. The bound members must outlive the section, and the
/// reference that `key` returns is for chaining only: the next `key` may move it.
class Section {
 public:
  explicit Section(std::string title) : title_(std::move(title)) {}

  Key& key(std::string name, int64_t& member, std::string sentence);
  Key& key(std::string name, double& member, std::string sentence);
  Key& key(std::string name, bool& member, std::string sentence);
  Key& key(std::string name, std::string& member, std::string sentence);
  Key& key(std::string name, std::optional<int64_t>& member, std::string sentence);
  Key& key(std::string name, std::optional<double>& member, std::string sentence);
  Key& key(std::string name, std::optional<std::string>& member, std::string sentence);

  /// An enumeration: `names` pairs each spelling with its value; compared without regard to case.
  template <class Enum, class = std::enable_if_t<std::is_enum_v<Enum>>>
  Key& key(const std::string& name, Enum& member, std::vector<std::pair<std::string, Enum>> names,
           const std::string& sentence) {
    std::vector<std::string> choices;
    for (const auto& [spelling, value] : names) choices.push_back(spelling);
    return enumeration(
        name, std::move(choices), sentence,
        [&member, names](size_t chosen) { member = names[chosen].second; },
        [&member, names] {
          for (const auto& [spelling, value] : names) {
            if (value == member) return spelling;
          }
          return std::string();
        });
  }

  /// A key that the Python projects' files hold and that means nothing here: accepted, with the reason why it
  /// is ignored.
  void ignore(std::string name, std::string reason);

  /// Makes all keys that have been declared so far free_on_resume, except these.
  void all_free_on_resume(const std::vector<std::string>& but = {});

  const std::string& title() const { return title_; }
  std::vector<Key>& keys() { return keys_; }
  const std::vector<Key>& keys() const { return keys_; }
  const std::vector<std::pair<std::string, std::string>>& ignored() const { return ignored_; }

 private:
  Key& enumeration(std::string name, std::vector<std::string> choices, std::string sentence,
                   std::function<void(size_t)> choose, std::function<std::string()> spelling);
  template <class Value>
  Key& required(std::string name, Key::Type type, Value& member, std::string sentence);
  template <class Value>
  Key& nullable(std::string name, Key::Type type, std::optional<Value>& member, std::string sentence);
  Key& add(Key key, std::string name, Key::Type type, std::string sentence);

  std::string title_;
  std::vector<Key> keys_;
  std::vector<std::pair<std::string, std::string>> ignored_;
};

/// Pointers to sections, as functions over several sections take them. The sections must not move.
std::vector<Section*> pointers_to(std::vector<Section>& sections);

/// Collects the errors of a configuration, so that all are reported together. `check` functions name the key
/// at fault; the object's owner knows its file and line.
class Findings {
 public:
  struct Finding {
    std::string key;
    std::string message;  ///< found, expected, and what to do
  };
  void add(std::string key, std::string message) {
    findings_.push_back({std::move(key), std::move(message)});
  }
  const std::vector<Finding>& all() const { return findings_; }
  bool empty() const { return findings_.empty(); }

 private:
  std::vector<Finding> findings_;
};

}  // namespace adtrain
