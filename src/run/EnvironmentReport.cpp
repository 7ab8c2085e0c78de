#include "run/EnvironmentReport.h"

#include <filesystem>
#include <fstream>

#include <ATen/Version.h>
#include <cairo.h>
#include <fmt/format.h>
#include <hdf5.h>
#include <mpi.h>
#include <nccl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <torch/csrc/api/include/torch/version.h>
#include <unistd.h>

#include "base/Cores.h"
#include "base/Error.h"
#include "base/Gpu.h"
#include "base/Text.h"
#include "collectives/NcclVersion.h"
#include "launch/LaunchContext.h"
#include "run/KernelReport.h"

namespace adtrain {
namespace {

using nlohmann::json;

std::string cuda_version_text(int version) {
  return version == 0 ? "no driver" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string hdf5_version_found() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

std::string mpi_version_found() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);  // allowed before MPI_Init
  return std::string(text, static_cast<size_t>(length)).substr(0, std::string_view(text).find(','));
}

json versions() {
  const CudaVersions cuda = cuda_versions();
  const auto row = [](std::string built, std::string found) {
    return json{{"built", built}, {"found", found}};
  };
  return {
      {"adtrain", row(ADTRAIN_VERSION, ADTRAIN_VERSION)},
      {"compiler", row(__VERSION__, "")},
      {"libtorch", row(TORCH_VERSION, TORCH_VERSION)},
      {"CUDA runtime", row(cuda_version_text(cuda.built_against), cuda_version_text(cuda.runtime))},
      {"CUDA driver", row("", cuda_version_text(cuda.driver))},
      {"NCCL", row(fmt::format("{}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH), nccl_version())},
      {"MPI",
       row(fmt::format("Open MPI v{}.{}.{}", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION),
           mpi_version_found())},
      {"HDF5", row(H5_VERS_INFO, hdf5_version_found())},
      {"cairo", row(CAIRO_VERSION_STRING, cairo_version_string())},
  };
}

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

json cpu() {
  utsname system{};
  uname(&system);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  const auto memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  return {{"host", system.nodename},
          {"system", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
          {"model", cpu_model()},
          {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
          {"cores allowed", CPU_COUNT(&allowed)},
          {"cores granted", usable_cores()},
          {"OpenMP spin count", process_environment("GOMP_SPINCOUNT").value_or("the library's own")},
          {"memory bytes", memory}};
}

json gpus() {
  json list = json::array();
  for (const Gpu& gpu : visible_gpus()) {
    list.push_back({{"name", gpu.name},
                    {"uuid", gpu.uuid},
                    {"compute capability",
                     fmt::format("{}.{}", gpu.compute_capability / 10, gpu.compute_capability % 10)},
                    {"memory bytes", gpu.memory_bytes},
                    {"runs our kernels", gpu.runs_our_kernels}});
    if (!gpu.trouble.empty()) list.back()["trouble"] = gpu.trouble;
  }
  return list;
}

json limit(int resource) {
  rlimit bounds{};
  getrlimit(static_cast<__rlimit_resource>(resource), &bounds);
  return bounds.rlim_cur == RLIM_INFINITY ? json("unlimited") : json(bounds.rlim_cur);
}

json limits() {
  std::error_code ignored;
  return {{"open files", limit(RLIMIT_NOFILE)},
          {"locked memory bytes", limit(RLIMIT_MEMLOCK)},
          {"stack bytes", limit(RLIMIT_STACK)},
          {"/dev/shm free bytes", std::filesystem::space("/dev/shm", ignored).available},
          {"disk free here bytes", std::filesystem::space(".", ignored).available}};
}

json launcher() {
  try {
    const LaunchContext context = LaunchContext::detect();
    return {{"launcher", launcher_name(context.launcher)},
            {"rank", context.rank},
            {"world size", context.world_size},
            {"local rank", context.local_rank},
            {"evidence", context.evidence}};
  } catch (const Error& error) {
    return {{"contradiction", error.what()}};  // a bug report needs the contradiction itself
  }
}

std::string figure(const std::string& name, const json& value) {
  const bool bytes = name.ends_with(" bytes");
  const std::string label = bytes ? name.substr(0, name.size() - 6) : name;
  const std::string text = value.is_string()            ? value.get<std::string>()
                           : bytes && value.is_number() ? human_bytes(value.get<double>())
                                                        : value.dump();
  return fmt::format("  {:<22} {}\n", label, text);
}

std::string figures(const json& group) {
  std::string text;
  for (const auto& [name, value] : group.items()) text += figure(name, value);
  return text;
}

}  // namespace

json environment_report() {
  return {{"versions", versions()}, {"cpu", cpu()},
          {"gpus", gpus()},         {"limits", limits()},
          {"launcher", launcher()}, {"kernels", as_json(kernel_reports(RunConfig{}))}};
}

std::string environment_text(const json& report) {
  std::string text = fmt::format("{:<24} {:<28} {}\n", "versions", "built against", "found");
  for (const auto& [name, row] : report.at("versions").items()) {
    text += fmt::format("  {:<22} {:<28} {}\n", name, row.at("built").get<std::string>(),
                        row.at("found").get<std::string>());
  }
  text += "cpu\n" + figures(report.at("cpu"));
  text += report.at("gpus").empty() ? "gpus\n  none visible: everything runs on the CPU\n" : "";
  for (size_t i = 0; i < report.at("gpus").size(); ++i) {
    text += fmt::format("gpu {}\n", i) + figures(report.at("gpus")[i]);
  }
  text += "limits of this process\n" + figures(report.at("limits"));
  text += "launcher\n" + figures(report.at("launcher"));
  text += "with the default settings (adtrain validate FILE says so of a configuration)\n";
  text += as_text(kernel_reports(RunConfig{}), "  ");
  return text;
}

json program_identity() {
  const json found = versions();
  constexpr std::string_view kPrefix = "commit ";
  const std::string_view commit = ADTRAIN_COMMIT;
  json identity = {{"version", ADTRAIN_VERSION}, {"commit", nullptr}, {"build", ADTRAIN_BUILD_TYPE}};
  if (commit.starts_with(kPrefix)) identity["commit"] = commit.substr(kPrefix.size());
  for (const char* name : {"libtorch", "CUDA runtime", "CUDA driver", "NCCL", "MPI"}) {
    identity[name] = found.at(name).at("found");
  }
  return identity;
}

std::string version_text() {
  const json found = versions();
  std::vector<std::string> libraries;
  for (const char* name : {"libtorch", "CUDA runtime", "NCCL", "MPI", "HDF5"}) {
    const std::string version = found.at(name).at("found");
    libraries.push_back(std::string_view(name) == "MPI" ? version : fmt::format("{} {}", name, version));
  }
  return fmt::format("adtrain {} ({}, {})\n{}\n", ADTRAIN_VERSION, ADTRAIN_COMMIT, ADTRAIN_BUILD_TYPE,
                     join(libraries, ", "));
}

}  // namespace adtrain
