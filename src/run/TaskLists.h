#pragma once

#include "config/Document.h"

namespace adtrain {

/// Brings the document's lists of tasks (tasks, train_tasks, eval_tasks) into one form, "0-39,50": a list, or
/// a text with commas, of numbers, ranges and names of files. A file is looked up beside the file that names
/// it, then in the working directory, and holds numbers and ranges, one or several with commas a line; what
/// follows a # is a comment. Words of eval_tasks are left. What is none of these becomes an error of the
/// document.
void unfold_task_lists(Document& document);

}  // namespace adtrain
