#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace adtrain {

/// A YAML file that maps names of tasks to what is said of each, as Vintix has them, one for each domain
/// (dunnolab/vintix, arXiv:2501.19400):
///
///     Ant-v4: {path: ant_v4, group: mujoco, reward_scale: 0.1, random_score: -60.2, expert_score: 6300.5}
///
/// Readers take the fields that they know. Every error of theirs is a DataError that names file and line.
/// Immutable.
class TaskTable {
 public:
  /// What is said of one task. A field that is null counts as one that is not there.
  class Row {
   public:
    const std::string& name() const { return name_; }
    /// In order of their names.
    std::vector<std::string> fields() const;
    /// A field's text, a number's as it is written. Throws where it is a list or a map.
    std::optional<std::string> text(const std::string& field) const;
    /// Throws where it is no finite number.
    std::optional<double> number(const std::string& field) const;
    /// Throws where it is no list of finite numbers.
    std::optional<std::vector<double>> numbers(const std::string& field) const;
    /// Whether it is there, and no list or map.
    bool is_text(const std::string& field) const;
    /// Where the field is written, else the task: "mujoco.yaml:12: 'Ant-v4'".
    std::string place(const std::string& field) const;
    /// Throws a DataError that says the field's place and `fault`.
    [[noreturn]] void refuse(const std::string& field, const std::string& fault) const;

   private:
    friend class TaskTable;
    struct Field {
      bool is_scalar;
      std::vector<std::string> texts;  ///< one of a scalar; of a list of scalars each; of others none
      int64_t line;
    };
    const Field* find(const std::string& field) const;

    std::string file_, name_;
    int64_t line_ = 0;
    std::map<std::string, Field> fields_;
  };

  /// `expected` ends the message where the file is no such map: "expected …". Throws DataError there, where
  /// the file cannot be read, and where it names a task twice.
  static TaskTable read(const std::filesystem::path& file, const std::string& expected);

  /// In the order of the file.
  const std::vector<Row>& rows() const { return rows_; }

 private:
  std::vector<Row> rows_;
};

}  // namespace adtrain
