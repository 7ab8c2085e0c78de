#include "telemetry/profile/RankProfile.h"

namespace adtrain {
namespace {

constexpr double kNanoseconds = 1e9;  ///< of a second

constexpr std::pair<const char*, int64_t StepParts::*> kParts[] = {
    {"computing", &StepParts::computing},
    {"overlapped", &StepParts::overlapped},
    {"communicating", &StepParts::communicating},
    {"copying", &StepParts::copying},
    {"idle", &StepParts::idle}};

nlohmann::ordered_json json_of(const StepParts& parts) {
  nlohmann::ordered_json json;
  for (const auto& [name, part] : kParts) json[name] = parts.*part;
  return json;
}

}  // namespace

StepParts RankProfile::parts() const {
  StepParts sum;
  for (const StepWindow& step : steps) sum += step.parts;
  return sum;
}

double RankProfile::step_seconds() const {
  if (steps.empty()) return 0;
  return static_cast<double>(parts().total()) / kNanoseconds / static_cast<double>(steps.size());
}

nlohmann::ordered_json RankProfile::to_json() const {
  nlohmann::ordered_json json = {{"rank", rank},
                                 {"host", host},
                                 {"device", device},
                                 {"on_gpu", on_gpu},
                                 {"step_seconds", step_seconds()},
                                 {"wall_seconds", wall_seconds},
                                 {"between_seconds", between_seconds},
                                 {"overlapped_share_of_communication", parts().overlapped_share()},
                                 {"parts_ns", json_of(parts())},
                                 {"events", events},
                                 {"left_out", left_out},
                                 {"steps", nlohmann::ordered_json::array()},
                                 {"table", nlohmann::ordered_json::array()}};
  for (const StepWindow& step : steps) {
    json["steps"].push_back({{"step", *step.step},
                             {"start_ns", step.start_ns},
                             {"end_ns", step.end_ns},
                             {"parts_ns", json_of(step.parts)}});
  }
  for (const OperatorRow& row : table) {
    json["table"].push_back({{"name", row.name}, {"calls", row.calls}, {"total_ns", row.total_ns}});
  }
  return json;
}

RankProfile RankProfile::from(const nlohmann::ordered_json& json) {
  RankProfile profile{.rank = json.at("rank"),
                      .host = json.at("host"),
                      .device = json.at("device"),
                      .on_gpu = json.at("on_gpu"),
                      .steps = {},
                      .wall_seconds = json.at("wall_seconds"),
                      .between_seconds = json.at("between_seconds"),
                      .table = {},
                      .events = json.at("events"),
                      .left_out = json.at("left_out")};
  for (const auto& step : json.at("steps")) {
    StepWindow window{.step = step.at("step").get<int64_t>(),
                      .start_ns = step.at("start_ns"),
                      .end_ns = step.at("end_ns"),
                      .parts = {}};
    for (const auto& [name, part] : kParts) window.parts.*part = step.at("parts_ns").at(name);
    profile.steps.push_back(window);
  }
  for (const auto& row : json.at("table")) {
    profile.table.push_back({row.at("name"), row.at("calls"), row.at("total_ns")});
  }
  return profile;
}

}  // namespace adtrain
