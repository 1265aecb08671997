#include "plan/report.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "config/schedule_file.h"
#include "core/error.h"
#include "core/format.h"
#include "core/limits.h"
#include "core/record.h"
#include "core/units.h"
#include "parallel/ledger.h"
#include "plan/throughput.h"

namespace plait::plan {
namespace {

using Json = nlohmann::ordered_json;

constexpr record::Many<record::AnyValue> by_rank = record::at_most(static_cast<std::size_t>(limits::ranks.most));

double ms(double seconds) { return 1e3 * seconds; }

std::string link_text(Axis axis, const AxisLink& link, const std::string& unit) {
  if (!link.used) return "";
  std::string text = fmt::format("{} {:.1f} GB/s ({}, {}s {} and {})", to_string(axis), link.min_gb_per_s, link.link, unit,
                                 link.from, link.to);
  if (!link.shared.empty()) text += ", " + link.shared;
  return text;
}

Json link_json(const AxisLink& link) {
  if (!link.used) return nullptr;
  Json json{{"min_gb_per_s", link.min_gb_per_s}, {"link", link.link}, {"gpus", {link.from, link.to}}};
  if (!link.shared.empty()) json["shared"] = link.shared;
  return json;
}

std::string gpu_list(const std::vector<int>& gpus) {
  std::string text;
  for (std::size_t n = 0; n < std::min<std::size_t>(gpus.size(), 16); ++n)
    text += (n == 0 ? "" : " ") + std::to_string(gpus[n]);
  return gpus.size() > 16 ? text + " ..." : text;
}

std::string terms(const Evaluation& e) {
  const CriticalSums& c = e.critical;
  return fmt::format(
      "compute {:.1f}, collectives {:.1f}, messages {:.1f}, latencies {:.1f}, sharing of links {:.1f}, beside communication "
      "{:.1f} ms",
      ms(c.compute), ms(c.collective), ms(c.message), ms(c.latency), ms(c.sharing), ms(c.slowdown));
}

// Lists layouts that break the same rule in one line.
std::string rejected_text(const std::vector<Rejected>& rejected) {
  std::vector<std::pair<std::string, std::vector<const Rejected*>>> groups;  // by rule, in order of appearance
  for (const Rejected& r : rejected) {
    // "parallel.NAME = 16 must divide ...": the number depends on the layout.
    const std::size_t equals = r.reason.find(" = "),
                      end = equals == std::string::npos ? equals : r.reason.find(' ', equals + 3);
    const std::string rule = end == std::string::npos ? r.reason : r.reason.substr(0, equals) + r.reason.substr(end);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == rule; });
    if (group == groups.end()) group = groups.insert(groups.end(), {rule, {}});
    group->second.push_back(&r);
  }
  std::string text = groups.empty() ? "" : "not chosen\n";
  for (const auto& [rule, members] : groups) {
    const std::string layout = members.front()->candidate.layout();
    const std::string others = members.size() == 1 ? "" : fmt::format(" and {} more layouts", members.size() - 1);
    text += fmt::format("  {}{}: {}\n", layout, others, members.size() == 1 ? members.front()->reason : rule);
  }
  return text;
}

// True for keys that a plan depends on and does not decide.
bool is_of_job(std::string_view key, bool has_vocab) {
  for (const std::string_view section : {"model.", "precision.", "comm."}) {
    if (key.starts_with(section)) return key != "comm.timeout_s" && key != "comm.require";
  }
  static const std::set<std::string_view> of_vocab{"data.tokenizer", "data.sentencepiece.vocab", "data.sentencepiece.model",
                                                   "data.huggingface.file"};
  static const std::set<std::string_view> others{"data.sequence_length", "data.documents", "train.global_batch",
                                                 "parallel.sequence_parallel"};
  return others.contains(key) || (!has_vocab && of_vocab.contains(key));
}

// The keys of a choice that must not have changed since the plan was made, with their values.
Json signature(const Config& c) {
  Json json = Json::object();
  for (const ConfigValue& value : shared_values(c)) {
    if (!is_of_job(value.path, !c.model.vocab.is_auto())) continue;
    Json typed = Json::parse(value.value, nullptr, false);
    json[value.path] = typed.is_discarded() ? Json(value.value) : std::move(typed);
  }
  // The choice names no more than the kind of a schedule file or of a placement, so these are compared here.
  if (c.parallel.schedule_file) json["parallel.schedule"] = fingerprint(*c.parallel.schedule_file);
  if (c.placement.strategy == PlacementStrategy::order || c.placement.strategy == PlacementStrategy::worst)
    json["placement.strategy"] = to_string(c.placement.strategy);
  return json;
}

void check_signature(const nlohmann::json& made_for, const Json& now, const std::string& source) {
  std::string differences;
  for (const auto& [key, value] : now.items()) {
    const bool is_said = made_for.is_object() && made_for.contains(key);
    if (is_said && made_for.at(key) == nlohmann::json(value)) continue;
    differences += fmt::format("{}{} is ", differences.empty() ? "" : "; ", key);
    if (key == "parallel.schedule") {
      differences += "another file now";
    } else {
      differences += value.dump() + (is_said ? " now, and was " + made_for.at(key).dump() : ", of which it says nothing");
    }
  }
  if (!differences.empty()) throw ConfigError(fmt::format("{}: was made for another job: {}; plan again", source, differences));
}

// Refuses a choice that contradicts a setting of `config`, unless that is left to a plan.
void check_kept(const Config& config, const Config& chosen, const std::string& source) {
  const std::vector<ConfigValue> given = shared_values(config), planned = shared_values(chosen);
  std::vector<ConfigProblem> problems;
  for (std::size_t n = 0; n < given.size(); ++n) {
    const auto& [path, value] = given[n];
    if (value == planned[n].value || value == "auto" || value == "[]" || path == "placement.strategy") continue;
    problems.push_back({path, value,
                        fmt::format("is {} in {}; to run that plan set it to {}, or else plan again", planned[n].value, source,
                                    value.starts_with('[') ? "[]" : "auto"),
                        "", 0});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

using Field = BasicJsonField<nlohmann::json>;

JsonSource plan_source(const std::string& source) {
  return {.name = source, .remedy = "; plan again with `plait plan --json`", .null_is_missing = false};
}

// A choice must not leave its settings open.
template <Named E>
struct SettledRule {
  E read(const auto& field) const {
    if (field.json() == "auto") field.refuse("must not be left open");
    return field.template choice<E>();
  }
  std::string write(E value) const { return to_string(value); }
};

}  // namespace

void declare(auto& field, Of<Candidate> auto& c) {
  field.object("layout", [&](auto& layout) {
    for (const AxisRow& row : axis_table) layout(row.name, c.size[row.axis]);
  });
  field("schedule", c.schedule, SettledRule<ScheduleKind>());
  field("virtual_stages", c.virtual_stages);
  field("micro_batch", c.micro_batch);
  field("zero", c.zero);
  field("recompute", c.recompute, SettledRule<Recompute>());
  field("stages", c.stages, by_rank);
}

std::string origin_of_passes(const Machine& machine) {
  return fmt::format("passes listed for what they take and what memory there is, by {}",
                     machine.calibration ? "segment times " + machine.origin()
                                         : machine.origin() + ", as this model was not measured (plait bench calibrate)");
}

std::vector<std::string> explanation_of(const PlannedJob& job, const Machine& machine, const PlanContext& context) {
  const Evaluation& best = job.best;
  const std::string& unit = machine.profile.unit;
  std::vector<std::string> lines;
  lines.push_back(fmt::format("{}: {:.1f} ms a step predicted, from {} on {}", best.candidate.to_string(),
                              ms(best.step_seconds), context.machine, context.topology));
  if (const auto interval = machine.interval(job.stages.front().sizes)) {
    const double step = ms(best.step_seconds);
    lines.push_back(fmt::format("not measured: {:.1f} to {:.1f} ms; `plait bench calibrate` tells more", interval->best * step,
                                interval->worst * step));
    lines.push_back(fmt::format("from {}", interval->basis));
  }
  const Throughput speed = throughput_of(job, machine);
  lines.push_back(speed_text(speed, unit));
  lines.push_back(run_text(speed, unit));
  if (job.lists_passes) lines.push_back(origin_of_passes(machine));
  if (best.extrapolated) lines.push_back("some segment times were measured at other sizes only and scaled");
  if (job.enumerated > 1) {
    lines.push_back(fmt::format("{} ways to run it on {} ranks; {} of the most promising looked at closely", job.enumerated,
                                best.candidate.ranks(), job.looked_at));
  }
  lines.push_back("on the critical path: " + terms(best));
  lines.push_back(fmt::format("bubble {:.1f} % of the step, exposed communication {:.1f} ms, mean over ranks",
                              100 * best.bubble_fraction, best.ledger.exposed_ms()));
  for (const Axis axis : axes_by_traffic) {
    if (const std::string link = link_text(axis, best.links[axis], unit); !link.empty())
      lines.push_back("slowest link: " + link);
  }
  const PlacementResult& placed = best.placement;
  std::string placement =
      fmt::format("placement {} ({}s {} for ranks 0, 1, ...)", placed.method, unit, gpu_list(placed.gpu_of_rank));
  if (placed.cost.seconds > 0) {
    placement += fmt::format(": {:.2f} ms of communication by itself, {:.2f} in the order of ranks, at least {:.2f}",
                             ms(placed.cost.seconds), ms(placed.order.seconds), ms(placed.lower_bound));
  }
  lines.push_back(placement);
  if (!context.cpu_binding.empty()) lines.push_back("CPU side: " + context.cpu_binding);
  std::string memory = fmt::format("memory: {} on the fullest {}", format_bytes(best.most_bytes()), unit);
  if (best.library_bytes > 0) memory += fmt::format(", {} of it for libraries", format_bytes(best.library_bytes));
  lines.push_back(memory);
  lines.push_back("of memory " + usable_words(machine));
  return lines;
}

std::string text_of(const PlannedJob& job, const Machine& machine, const PlanContext& context) {
  std::string text = "choice\n";
  for (const std::string& line : explanation_of(job, machine, context)) text += "  " + line + "\n";
  text += fmt::format("memory by kind, fullest {}\n ", machine.profile.unit);
  for (const auto& [kind, bytes] : job.best.bytes_by_kind) text += fmt::format(" {} {}", kind, format_bytes(bytes));
  text += "\n";
  if (!job.alternatives.empty()) text += "next best\n";
  for (const Evaluation& e : job.alternatives) {
    text += fmt::format("  {:8.1f} ms (+{:.1f} %)  bubble {:4.1f} %  {:>9}  {}\n", ms(e.step_seconds),
                        100 * (e.step_seconds / job.best.step_seconds - 1), 100 * e.bubble_fraction,
                        format_bytes(e.most_bytes()), e.candidate.to_string());
  }
  text += rejected_text(job.rejected);
  if (!job.what_if.empty()) text += "would change\n";
  for (const std::string& sentence : job.what_if) text += "  " + sentence + "\n";
  return text;
}

nlohmann::ordered_json to_json(const PlannedJob& job, const Machine& machine, const PlanContext& context) {
  const Evaluation& best = job.best;
  Json peaks = Json::array();
  for (const double bytes : best.rank_bytes) peaks.push_back(static_cast<std::int64_t>(bytes));
  const Throughput speed = throughput_of(job, machine);
  const auto interval = machine.interval(job.stages.front().sizes);
  const double step = ms(best.step_seconds);
  Json json;
  json["predicted"] = {{"step_ms", ms(best.step_seconds)},
                       {"interval_ms", interval ? Json{interval->best * step, interval->worst * step} : Json(nullptr)},
                       {"interval_basis", interval ? Json(interval->basis) : Json(nullptr)},
                       {"bubble_fraction", best.bubble_fraction},
                       {"exposed_comm_ms", best.ledger.exposed_ms()},
                       {"exposed_dp_ms", best.ledger.exposed_dp_ms()},
                       {"exposed_p2p_ms", best.ledger.exposed_p2p_ms()},
                       {"exposed_tp_ms", best.ledger.exposed_tp_ms()},
                       {"peak_bytes", peaks},
                       {"usable_bytes", static_cast<std::int64_t>(machine.usable_bytes())},
                       {"tokens_per_second", speed.tokens_per_second},
                       {"tflops_per_device", speed.flops_per_device / tera},
                       {"mfu", speed.mfu ? Json(*speed.mfu) : Json(nullptr)},
                       {"run_seconds", speed.run_seconds},
                       {"device_hours", speed.device_hours},
                       {"machine", context.machine},
                       {"topology", context.topology}};
  for (const Axis axis : axes_by_traffic) json["links"][to_string(axis)] = link_json(best.links[axis]);
  json["placement_method"] = best.placement.method;
  json["cpu_binding"] = context.cpu_binding;
  json["placement_lower_bound_ms"] = ms(best.placement.lower_bound);
  json["placement_cost_ms"] = ms(best.placement.cost.seconds);
  json["alternatives"] = Json::array();
  for (const Evaluation& e : job.alternatives) {
    Json entry = record_json(e.candidate);
    entry["step_ms"] = ms(e.step_seconds);
    entry["bubble_fraction"] = e.bubble_fraction;
    entry["exposed_comm_ms"] = e.ledger.exposed_ms();
    entry["peak_bytes"] = static_cast<std::int64_t>(e.most_bytes());
    json["alternatives"].push_back(std::move(entry));
  }
  json["rejected"] = Json::array();
  for (const Rejected& r : job.rejected) json["rejected"].push_back({{"layout", r.candidate.layout()}, {"reason", r.reason}});
  json["explanation"] = explanation_of(job, machine, context);
  for (const std::string& sentence : job.what_if) json["explanation"].push_back(sentence);
  json["choice"] = record_json(best.candidate);
  json["choice"]["stages"] = job.config.parallel.stages;  // given stages too
  json["choice"]["device"] = job.stages.front().device_kind == DeviceKind::cuda ? "cuda" : "cpu";
  json["choice"]["gpus"] = best.placement.gpu_of_rank;
  if (const auto& passes = job.decision.passes) json["choice"]["passes"] = passes->text;
  json["choice"]["made_for"] = signature(job.config);
  return json;
}

nlohmann::ordered_json unpredicted(const std::string& why) {
  return {{"predicted", nullptr}, {"explanation", Json::array({why})}};
}

Candidate chosen_candidate(const nlohmann::ordered_json& plan, const std::string& source) {
  const nlohmann::json document = plan;
  const JsonSource file = plan_source(source);
  return record_from<Candidate>(Field(document, file)["choice"]);
}

parallel::DecidedConfig apply_choice(const Config& config, const nlohmann::json& plan, const std::string& source) {
  const JsonSource file = plan_source(source);
  const Field choice = Field(plan, file)["choice"], device = choice["device"];
  choice["made_for"].expect_object();
  check_signature(choice["made_for"].json(), signature(config), source);
  const auto candidate = record_from<Candidate>(choice);
  if (candidate.schedule == ScheduleKind::file && !config.parallel.schedule_file) {
    throw ConfigError(source + ": was made for a schedule from a file; give it: parallel.schedule={file: PATH}");
  }
  Config chosen = with(config, candidate);
  parallel::Decision decision;
  if (candidate.schedule == ScheduleKind::planned && candidate.size[stage_axis] > 1)
    decision.passes = parallel::planned_passes(choice["passes"].text(Field::no_limit), source);
  if (device.json() != "cuda" && device.json() != "cpu") device.refuse("must be cuda or cpu");
  chosen.launch.device = device.text();
  chosen.placement.strategy = PlacementStrategy::given;
  chosen.placement.devices = record_from<std::vector<std::int64_t>>(choice["gpus"], by_rank);
  chosen.launch.ranks = static_cast<std::int64_t>(chosen.placement.devices.size());
  check_kept(config, chosen, source);
  if (const auto problems = problems_of(chosen); !problems.empty()) {
    throw ConfigError(source + ": " + problems.front().path + " = " + problems.front().value + ": " + problems.front().rule);
  }
  if (const auto open = keys_left_to_planner(chosen); !open.empty())
    throw ConfigError(source + ": leaves " + open.front() + " open");
  return {std::move(chosen), std::move(decision)};
}

std::vector<std::string> left_to_a_plan() {
  std::vector<std::string> overrides{"parallel.stages=[]", "placement.devices=[]"};
  for (const std::string& key : axis_keys()) overrides.push_back(key + "=auto");
  for (const char* key : {"parallel.schedule", "parallel.virtual_stages", "parallel.zero", "parallel.recompute",
                          "train.micro_batch", "placement.strategy", "launch.ranks", "launch.device"})
    overrides.push_back(std::string(key) + "=auto");
  return overrides;
}

}  // namespace plait::plan
