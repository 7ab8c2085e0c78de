#include "cli/Command.h"
#include "run/Evaluate.h"

namespace adtrain {

Command evaluate_command() {
  Command command;
  command.name = "evaluate";
  command.summary = "let a trained model learn tasks in context, and draw its learning curve";
  command.target = "run folder or checkpoint folder";
  command.as_ranks = true;
  command.examples =
      "examples:\n"
      "  adtrain evaluate runs/quickstart\n"
      "  mpirun -np 2 adtrain evaluate runs/quickstart --set eval_repeats=16\n"
      "  adtrain evaluate runs/quickstart/checkpoints/step-2000 --set eval_tasks=train --json\n"
      "  adtrain evaluate runs/quickstart --set eval_tasks=3,30-39\n";
  command.declare = [](cxxopts::OptionAdder& options) {
    declare_overrides(options);
    options("json", "print the summary as JSON");
  };
  command.run = [](const cxxopts::ParseResult& arguments) {
    EvaluateRequest request;
    request.target =
        target_of(arguments, "the folder of a run or of one of its checkpoints, such as runs/quickstart");
    request.overrides = overrides_of(arguments);
    request.json = arguments.count("json") > 0;
    return evaluate(request);
  };
  return command;
}

}  // namespace adtrain
