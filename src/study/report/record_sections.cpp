// Sections of record: the environment of a study, and every one of its points.
#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "core/format.h"
#include "study/report/sections.h"

namespace plait::study {
namespace {

std::string or_dash(const std::optional<double>& share) { return share ? percent(*share) : "—"; }

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

Section environment_section(const Findings& f) {
  const train::Environment& e = f.data.environment;
  Section section{"environment", "Environment", ""};
  section.table.columns = {{"what", false}, {"value", false}};
  const auto add = [&](const std::string& what, const std::string& value) {
    section.table.rows.push_back({{what}, {value.empty() ? "—" : value}});
  };
  add("plait", fmt::format("{}, commit {}", e.plait.version, e.plait.commit));
  add("host", e.host);
  add("processor", fmt::format("{} × {}", e.processors, e.cpu));
  add("memory", e.memory_bytes > 0 ? format_bytes(e.memory_bytes) : "");
  for (std::size_t n = 0; n < e.gpus.size(); ++n)
    add(fmt::format("GPU {}", n), fmt::format("{}, {}", e.gpus[n].name, format_bytes(e.gpus[n].memory_bytes)));
  add("driver", e.driver);
  add("CUDA", e.cuda);
  add("cuDNN", e.cudnn);
  add("NCCL", e.nccl);
  for (const auto& [name, value] : e.variables) add(name, value);
  return section;
}

std::optional<Section> links_section(const Findings& f) {
  if (!f.data.topology) return std::nullopt;
  const topology::Graph& graph = *f.data.topology;
  Section section{"links", "Links",
                  "GB/s in each direction. What was measured between two GPUs goes before what the links between them say."};
  section.table.columns = {{"between", false}, {"kind", false}, {"GB/s", true}, {"latency, µs", true}, {"from", false}};
  const auto name = [&](int node) { return graph.nodes.at(static_cast<std::size_t>(node)).name; };
  for (const topology::Edge& edge : graph.edges) {
    std::string kind = to_string(edge.kind);
    if (edge.lanes > 0) kind += fmt::format(" × {}", edge.lanes);
    section.table.rows.push_back({{name(edge.a) + " – " + name(edge.b)},
                                  {kind},
                                  {figure(edge.gb_per_s)},
                                  {figure(edge.latency_us)},
                                  {to_string(edge.bandwidth_from)}});
  }
  for (const topology::PairMeasurement& pair : graph.pairs) {
    section.table.rows.push_back({{name(pair.from) + " → " + name(pair.to)},
                                  {"path"},
                                  {figure(pair.gb_per_s)},
                                  {figure(pair.latency_us)},
                                  {to_string(topology::Origin::measured)}});
  }
  return section;
}

Section points_section(const Findings& f) {
  Section section{
      "points", "Every point",
      fmt::format("Speed is {} per device. Steps and speeds have the 95 % interval of their median over rounds (with "
                  "five rounds or fewer, all that was measured), efficiencies that of a bootstrap over rounds and "
                  "steps; one round has none.",
                  f.speed_unit())};
  section.table.columns = {{"point", true},        {"", false},
                           {"runs as", false},     {"state", false},
                           {"reason", false},      {"rounds", true},
                           {"step, ms", true},     {"speed", true},
                           {"efficiency", true},   {"MFU", true},
                           {"HFU", true},          {"bubble", true},
                           {"memory", true},       {"error of step", true},
                           {"J per token", true},  {"least SM clock, MHz", true},
                           {"throttled by", false}};
  for (const Row& row : f.rows) {
    std::string state = to_string(row.state);
    const auto& facts = f.point(row).facts;
    if (const auto pruning = f.point(row).pruning) state += ": " + to_string(*pruning);
    std::vector<Cell> cells{{std::to_string(row.point)}, {f.point(row).label()},      {facts ? runs_as(*facts) : "—"}, {state},
                            {f.why_not_measured(row)},   {std::to_string(row.rounds)}};
    if (row.rounds == 0) {
      cells.resize(section.table.columns.size(), Cell{"—"});
    } else {
      const double memory = f.best_memory_bytes(row);
      for (const std::string& text :
           {figure(row.step_ms), figure(f.speed_per_device(row)), row.efficiency ? percent(*row.efficiency) : "—",
            or_dash(row.mfu), or_dash(row.hfu), percent(row.bubble_fraction), memory > 0 ? format_bytes(memory) : "—",
            row.prediction_error ? fmt::format("{:+.1f} %", 100 * *row.prediction_error) : "—",
            row.joules_per_token ? figure(*row.joules_per_token) : "—",
            row.least_sm_clock_mhz ? figure(*row.least_sm_clock_mhz) : "—", joined(row.throttle_reasons)})
        cells.push_back({text});
    }
    section.table.rows.push_back(std::move(cells));
  }
  return section;
}

}  // namespace plait::study
