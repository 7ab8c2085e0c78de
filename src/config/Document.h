#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "config/Entry.h"

namespace adtrain {

/// A flat map of configuration keys, composed of YAML files and of assignments on the command line; later
/// values override earlier ones. Errors in the files are collected for `Binder`, never thrown.
///
/// A file names the files that it builds on by `include: base.yaml` or a list of them. They are read first,
/// in that order, and the including file overrides them. A name is looked up beside the including file, then
/// in the working directory, as the Python projects write it. A file that two others include takes effect in
/// both places. `IncludeTree` reads them.
class Document {
 public:
  void read_file(const std::filesystem::path& file);
  /// "key=value", the value being a YAML scalar. `source` is where it was written, for messages.
  void set(const std::string& assignment, const std::string& source = "command line");

  /// Of a key whose value is a list of texts, or texts with colons between them: these. None where the key is
  /// not there, null, or anything else.
  std::vector<std::string> texts_of(const std::string& key) const;
  /// Whether the key is there, and where it was written.
  const Entry* find(const std::string& key) const;
  /// Puts the pairs of a nested map, where that is the key's value, in the place of the map, where they
  /// override earlier values and are overridden by later ones: each under the name that `names` has for it,
  /// else as `key.name`. A key that the map's own file sets elsewhere to another value is an error.
  void unfold(const std::string& key, const std::map<std::string, std::string>& names);
  /// Those that unfold() had for the pairs of this map; none where it was not there.
  std::vector<std::string> names_in(const std::string& map) const;
  /// Puts in a key that is not there yet, with a text.
  void add(const std::string& key, const std::string& text, Origin origin);
  /// Gives a key that is there another name and text, in its own place. It yields to a key of that name in
  /// the same file.
  void rename(const std::string& key, const std::string& to, const std::string& text);
  /// Puts in a key where another one is that is there, which so chooses it: it overrides earlier values and
  /// yields to later ones, and to one that stands beside the other in the same file, or also on the command
  /// line.
  void put_beside(const std::string& chooser, const std::string& key, const std::string& text);
  /// Takes a key out, where it is there.
  void drop(const std::string& key);
  /// Takes a key out that is there, and records what is wrong with it as an error.
  void refuse(const std::string& key, const std::string& fault);
  /// Gives a key that is there another text, written where it was.
  void replace(const std::string& key, const std::string& text);

  /// Each key once, in the order in which the values took effect.
  const std::vector<Entry>& entries() const { return entries_; }
  /// One line a fault: "file:line: what was found; what was expected".
  const std::vector<std::string>& errors() const { return errors_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  void put(Entry entry);
  /// Puts an entry where `key` is, which is there, unless a later entry overrides it.
  void put_before(const std::string& key, Entry entry);
  /// Records that one file sets a key twice: an error where the values differ. `name` is what the file calls
  /// the second.
  void compare(const Entry& first, const Entry& second, const std::string& name);

  std::vector<Entry> entries_;
  std::map<std::string, std::vector<std::string>> names_in_maps_;
  std::vector<std::string> errors_, warnings_;
};

}  // namespace adtrain
