#include "launch/LaunchContext.h"

#include <charconv>
#include <cstdlib>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/Error.h"
#include "base/Text.h"
#include "launch/SlurmNotation.h"

namespace adtrain {
namespace {

int64_t whole_number(const std::string& name, const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw EnvironmentError(
        fmt::format("The environment variable {} is '{}', and a whole number was expected; unset it or let "
                    "the launcher set it.",
                    name, text));
  }
  return number;
}

/// Reads environment variables as typed values.
class Environment {
 public:
  explicit Environment(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  bool has(const std::string& name) const { return lookup_(name).has_value(); }
  std::string text(const std::string& name) const { return lookup_(name).value_or(""); }
  std::optional<int64_t> number(const std::string& name) const {
    const std::optional<std::string> found = lookup_(name);
    return found ? std::optional(whole_number(name, *found)) : std::nullopt;
  }
  /// For variables that belong together: returns whether all are set. Throws where only some are, naming the
  /// missing ones.
  bool has_all_or_none(const std::string& owner, const std::vector<std::string>& names) const {
    std::vector<std::string> present, missing;
    for (const std::string& name : names) (has(name) ? present : missing).push_back(name);
    if (!present.empty() && !missing.empty()) {
      throw EnvironmentError(fmt::format(
          "{}'s environment is incomplete: {} is set, {} is not; start with {}, or unset all of them.", owner,
          join(present, ", "), join(missing, ", "), owner));
    }
    return missing.empty();
  }

 private:
  const EnvironmentLookup& lookup_;
};

void check_within(const LaunchContext& context, const char* what, int64_t index, const char* of_what,
                  int64_t count) {
  if (count < 1 || index < 0 || index >= count) {
    throw EnvironmentError(
        fmt::format("{}: {} {} and {} {} contradict each other; the {} counts from 0 to the {} minus 1.",
                    context.evidence, what, index, of_what, count, what, of_what));
  }
}

LaunchContext checked(LaunchContext context) {
  check_within(context, "rank", context.rank, "world size", context.world_size);
  check_within(context, "local rank", context.local_rank, "local world size", context.local_world_size);
  if (context.local_world_size > context.world_size) {
    throw EnvironmentError(fmt::format(
        "{}: local world size {} and world size {} contradict each other; one host cannot hold more ranks "
        "than there are.",
        context.evidence, context.local_world_size, context.world_size));
  }
  if (!context.master_address.empty() && (context.master_port < 1 || context.master_port > 65535)) {
    throw EnvironmentError(
        fmt::format("MASTER_PORT is {}; a port from 1 to 65535 that is free on {} was expected.",
                    context.master_port, context.master_address));
  }
  return context;
}

std::optional<LaunchContext> from_flags(const LaunchFlags& flags) {
  if (!flags.rank && !flags.world_size && !flags.local_rank && !flags.local_world_size &&
      !flags.master_address && !flags.master_port) {
    return std::nullopt;
  }
  const bool several = flags.world_size.value_or(1) > 1;
  if (!flags.rank || !flags.world_size ||
      flags.local_rank.has_value() != flags.local_world_size.has_value() ||
      (several && (!flags.master_address || !flags.master_port))) {
    throw EnvironmentError(
        "The flags that place this process are incomplete: rank and world size belong together, so do local "
        "rank and local world size, and two or more ranks need the master's address and port; give all of "
        "them, or none and let mpirun, torchrun or srun place it.");
  }
  LaunchContext context;
  context.rank = *flags.rank;
  context.world_size = *flags.world_size;
  context.local_rank = flags.local_rank.value_or(context.rank);
  context.local_world_size = flags.local_world_size.value_or(context.world_size);
  context.launcher = Launcher::kFlags;
  context.master_address = flags.master_address.value_or("");
  context.master_port = flags.master_port.value_or(0);
  context.evidence = fmt::format("The command line says rank {} of {}", context.rank, context.world_size);
  return checked(context);
}

std::optional<LaunchContext> from_torchrun(const Environment& environment) {
  // MASTER_ADDR and MASTER_PORT alone mean nothing: job scripts export them for other purposes too.
  if (!environment.has("RANK") && !environment.has("WORLD_SIZE") && !environment.has("LOCAL_RANK") &&
      !environment.has("LOCAL_WORLD_SIZE")) {
    return std::nullopt;
  }
  environment.has_all_or_none(
      "torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"});
  LaunchContext context;
  context.rank = *environment.number("RANK");
  context.world_size = *environment.number("WORLD_SIZE");
  context.local_rank = *environment.number("LOCAL_RANK");
  context.local_world_size = *environment.number("LOCAL_WORLD_SIZE");
  const bool local = environment.text("ADTRAIN_LAUNCHER") == "local";
  context.launcher = local ? Launcher::kLocal : Launcher::kTorchrun;
  context.master_address = environment.text("MASTER_ADDR");
  context.master_port = *environment.number("MASTER_PORT");
  context.agent_store = environment.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  context.run_id = environment.text("TORCHELASTIC_RUN_ID");
  context.restart_count = environment.number("TORCHELASTIC_RESTART_COUNT").value_or(0);
  context.evidence =
      fmt::format("RANK={}, WORLD_SIZE={}, LOCAL_RANK={}, LOCAL_WORLD_SIZE={} are set by {}", context.rank,
                  context.world_size, context.local_rank, context.local_world_size,
                  local                    ? "adtrain launch"
                  : context.run_id.empty() ? "hand"
                                           : "torchrun");
  return checked(context);
}

std::optional<LaunchContext> from_mpi(const Environment& environment) {
  if (environment.number("OMPI_COMM_WORLD_SIZE").value_or(1) <= 1) return std::nullopt;
  environment.has_all_or_none("mpirun", {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
                                         "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"});
  LaunchContext context;
  context.rank = *environment.number("OMPI_COMM_WORLD_RANK");
  context.world_size = *environment.number("OMPI_COMM_WORLD_SIZE");
  context.local_rank = *environment.number("OMPI_COMM_WORLD_LOCAL_RANK");
  context.local_world_size = *environment.number("OMPI_COMM_WORLD_LOCAL_SIZE");
  context.launcher = Launcher::kMpi;
  context.evidence = fmt::format("OMPI_COMM_WORLD_RANK={} and OMPI_COMM_WORLD_SIZE={} are set by mpirun",
                                 context.rank, context.world_size);
  return checked(context);
}

bool named_as_interactive(const Environment& environment) {
  const std::string job_name = environment.text("SLURM_JOB_NAME");
  return job_name == "bash" || job_name == "interactive";
}

/// The shell of `srun --pty bash`: it is the step's first task, and the others have ended at once. The steps
/// that are started from it inherit its variables, but have other numbers.
bool is_shell_of_srun(const Environment& environment) {
  return environment.has("SLURM_PTY_PORT") && environment.number("SLURM_STEP_ID") == 0 &&
         environment.text("SLURM_JOB_NAME") == "bash";
}

/// SLURM_NTASKS alone does not say that there are others: the job script has it too, and so has the shell of
/// `salloc`, which may be a step of one task. Nor does the job's name, which passes to the steps that `srun`
/// starts from such a shell. Only where the step does not say how many tasks it has does the name decide.
bool in_slurm_step(const Environment& environment) {
  if (environment.number("SLURM_NTASKS").value_or(1) <= 1 || !environment.has("SLURM_STEP_NODELIST"))
    return false;
  const std::optional<int64_t> tasks_of_step = environment.number("SLURM_STEP_NUM_TASKS");
  if (!tasks_of_step) return !named_as_interactive(environment);
  return *tasks_of_step > 1 && !is_shell_of_srun(environment);
}

/// 15000 + the job id's last four digits: jobs that share a host meet at different ports.
int64_t slurm_port(const Environment& environment) {
  return 15000 + environment.number("SLURM_JOB_ID").value_or(0) % 10000;
}

int64_t slurm_local_world_size(const Environment& environment) {
  if (const std::string tasks = environment.text("SLURM_STEP_TASKS_PER_NODE"); !tasks.empty()) {
    return tasks_on_node(tasks, environment.number("SLURM_NODEID").value_or(0));
  }
  return environment.number("SLURM_NTASKS_PER_NODE").value_or(1);
}

std::optional<LaunchContext> from_slurm(const Environment& environment) {
  if (!in_slurm_step(environment)) return std::nullopt;
  environment.has_all_or_none("srun",
                              {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NODELIST"});
  LaunchContext context;
  context.rank = *environment.number("SLURM_PROCID");
  context.world_size = *environment.number("SLURM_NTASKS");
  if (environment.number("OMPI_COMM_WORLD_SIZE") == 1) {
    throw EnvironmentError(
        fmt::format("SLURM_NTASKS={} but OMPI_COMM_WORLD_SIZE=1: SLURM started {} processes and MPI takes "
                    "each for a run of its own; start them either with mpirun or with `srun --mpi=none`.",
                    context.world_size, context.world_size));
  }
  context.local_rank = *environment.number("SLURM_LOCALID");
  context.local_world_size = slurm_local_world_size(environment);
  context.launcher = Launcher::kSlurm;
  const std::string nodes = environment.text("SLURM_STEP_NODELIST");
  context.master_address =
      environment.has("MASTER_ADDR") ? environment.text("MASTER_ADDR") : first_host(nodes);
  context.master_port = environment.number("MASTER_PORT").value_or(slurm_port(environment));
  context.run_id =
      fmt::format("slurm-{}.{}", environment.text("SLURM_JOB_ID"), environment.text("SLURM_STEP_ID"));
  context.restart_count = environment.number("SLURM_RESTART_COUNT").value_or(0);
  context.evidence = fmt::format("SLURM_PROCID={} and SLURM_NTASKS={} are set by srun, on nodes {}",
                                 context.rank, context.world_size, nodes);
  return checked(context);
}

LaunchContext single(const Environment& environment) {
  if (const int64_t processes = environment.number("PMI_SIZE").value_or(1); processes > 1) {
    throw EnvironmentError(
        fmt::format("PMI_SIZE={} but OMPI_COMM_WORLD_SIZE is not set: another MPI's launcher started {} "
                    "processes, which would not know of each other; start them with Open MPI's mpirun, "
                    "torchrun or srun.",
                    processes, processes));
  }
  LaunchContext context;
  context.evidence =
      "Neither torchrun, nor mpirun with several processes, nor a SLURM step has set its variables";
  if (const int64_t tasks = environment.number("SLURM_NTASKS").value_or(1); tasks > 1) {
    const bool interactive = named_as_interactive(environment) || environment.has("SLURM_STEP_NODELIST");
    context.evidence = fmt::format("SLURM_NTASKS={}, but this process {}; srun would start all tasks", tasks,
                                   interactive ? "belongs to an interactive job" : "is in no SLURM step");
  }
  return context;
}

/// Flags and variables may be set by hand. Then every process may have the same ones by mistake.
bool stated_by_hand(const LaunchContext& context) {
  return context.launcher == Launcher::kFlags ||
         (context.launcher == Launcher::kTorchrun && context.run_id.empty());
}

/// A launcher may start scripts that start the ranks, so it may count fewer processes than there are ranks.
/// It cannot count more, nor as many and number them differently.
void refuse_contradiction(const LaunchContext& chosen, const LaunchContext& other) {
  if (other.world_size < chosen.world_size) return;
  if (other.world_size == chosen.world_size && other.rank == chosen.rank) return;
  throw EnvironmentError(fmt::format("{}, but {}: these contradict each other; unset one of the two.",
                                     chosen.evidence, other.evidence));
}

}  // namespace

std::string launcher_name(Launcher launcher) {
  switch (launcher) {
    case Launcher::kFlags:
      return "explicit flags";
    case Launcher::kTorchrun:
      return "torchrun";
    case Launcher::kLocal:
      return "adtrain launch";
    case Launcher::kMpi:
      return "mpirun";
    case Launcher::kSlurm:
      return "SLURM";
    case Launcher::kSingle:
      break;
  }
  return "a single process";
}

std::optional<std::string> process_environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

LaunchContext LaunchContext::detect(const LaunchFlags& flags, const EnvironmentLookup& lookup) {
  const Environment environment(lookup);
  std::optional<LaunchContext> chosen = from_flags(flags);
  for (const auto& source : {from_torchrun, from_mpi, from_slurm}) {
    if (chosen && !stated_by_hand(*chosen)) break;
    const std::optional<LaunchContext> other = source(environment);
    if (chosen && other) refuse_contradiction(*chosen, *other);
    if (!chosen) chosen = other;
  }
  return chosen ? *chosen : single(environment);
}

}  // namespace adtrain
