#include "launch/settled_job.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>
#include <sys/mman.h>

#include <cstdlib>
#include <fstream>

#include "config/schedule_file.h"
#include "core/error.h"
#include "core/file.h"
#include "core/parse_number.h"
#include "core/units.h"
#include "data/tokenizer.h"
#include "launch/agreement.h"
#include "launch/launch_environment.h"
#include "plan/pass_planning.h"
#include "site/devices.h"
#include "site/outside_launcher.h"
#include "site/site_planning.h"

namespace plait::launch {
namespace {

constexpr const char* settled_variable = "PLAIT_SETTLED_JOB";  // a descriptor
constexpr std::uint64_t most_job_bytes = std::uint64_t{1} << 30;

// "" and null: no passes were planned, so they will be listed by FLOPs.
std::string text_of(const std::shared_ptr<const ScheduleFile>& passes) { return passes ? passes->text : ""; }
std::shared_ptr<const ScheduleFile> passes_from(const std::string& text, const std::string& source) {
  return text.empty() ? nullptr : parallel::planned_passes(text, source);
}

// Decides for this machine, in the one process of the job that plans.
SettledJob decide(const Config& config, const parallel::Decision& decision, std::optional<std::int64_t> vocab) {
  SettledJob settled{.config = config, .decision = decision, .plan = {}, .note = {}};
  const std::vector<std::string> open = keys_left_to_planner(config);
  const site::DeviceChoice devices = site::choose_devices(config);
  if (devices.kind == DeviceKind::cuda && config.launch.may_share_devices()) {
    if (!open.empty()) {
      throw ConfigError({{open.front(), "auto",
                          "is decided by predicted speeds, of which there are none where ranks share a GPU "
                          "(launch.ranks_per_device): give a value",
                          "", 0}});
    }
    settled.plan = plan::unpredicted("no prediction: ranks share GPUs (launch.ranks_per_device)");
    return settled;
  }
  const PlacementStrategy strategy = config.placement.strategy;
  Config asked = config;
  const bool external = site::launch_mode(config) == LaunchMode::external;
  if (!external) site::check_host_ranks(site::fixed_ranks(config));
  if (external) {
    asked.launch.ranks = place_from_environment(config).value().size;
  } else if (open.empty()) {
    asked.launch.ranks = site::rank_count(config, devices);
  }
  // A fault in the file must not merely cost the prediction. For an open configuration the planner reports it.
  if (external || open.empty()) site::check_pairs(config, devices, static_cast<int>(asked.launch.ranks));
  // Pure data parallelism runs equally well anywhere, and NCCL finds its own rings.
  const bool places = devices.kind == DeviceKind::cuda && !external &&
                      (strategy == PlacementStrategy::automatic || strategy == PlacementStrategy::worst) &&
                      product(config.parallel.known_sizes(), model_axes) != 1;
  const bool decides = places || !open.empty();
  site::PlanningWish wish;
  wish.what_if = false;
  wish.runs_here = true;
  wish.in_order = !decides;
  site::SitedPlan planned;
  try {
    planned = site::plan_on_site(asked, decision, vocab ? *vocab : data::vocabulary(config), wish);
  } catch (const ConfigError& error) {
    if (!open.empty() || (places && strategy == PlacementStrategy::worst)) throw;
    // The job can run unplaced, if more slowly.
    if (places) settled.note = std::string("rank r runs on GPU r, because no better placement could be found: ") + error.what();
    settled.plan = plan::unpredicted(std::string("no prediction: ") + error.what());
    if (plan::plans_passes(config, decision)) {
      settled.note += settled.note.empty() ? "" : "; ";
      settled.note += fmt::format("planned schedule: passes listed by FLOPs, as there is no prediction: {}", error.what());
    }
    return settled;
  }
  settled.plan = to_json(planned.job, planned.machine, planned.context);
  settled.decision = planned.job.decision;
  const bool lists_passes = planned.job.lists_passes;
  const std::string passes = lists_passes ? "planned schedule: " + plan::origin_of_passes(planned.machine) : std::string();
  if (!decides) {
    settled.note = passes;
    return settled;
  }
  settled.config = planned.job.config;
  settled.config.launch.ranks = planned.ranks;
  settled.note = "planned: " + explanation_of(planned.job, planned.machine, planned.context).front();
  if (planned.kind == DeviceKind::cuda) {
    const plan::PlacementResult& placement = planned.job.best.placement;
    settled.config.placement.strategy = PlacementStrategy::given;
    settled.config.placement.devices.assign(placement.gpu_of_rank.begin(), placement.gpu_of_rank.end());
    settled.note += fmt::format("; ranks on GPUs {} ({})", fmt::join(placement.gpu_of_rank, " "), placement.method);
  }
  if (lists_passes) settled.note += "; " + passes;
  return settled;
}

// nullopt in a process that no plan was passed to, and on later calls.
std::optional<SettledJob> settled_by_launcher() {
  const char* text = std::getenv(settled_variable);
  if (!text) return std::nullopt;
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(std::string("environment variable ") + settled_variable + "=" + text +
                      ": does not name a job that plait planned (" + why +
                      "); unset it: only plait sets it, for the processes it starts");
  };
  const FileDescriptor memory(whole_number<int>(text).value_or(-1));
  if (!memory) refuse("not a descriptor");
  std::string job;
  try {
    job = read_text(path_of(memory.get()), most_job_bytes);
  } catch (const ConfigError& error) {
    refuse(error.what());
  }
  const auto told = nlohmann::ordered_json::parse(job, nullptr, false);
  const auto is_text = [&](const char* key) { return told.contains(key) && told.at(key).is_string(); };
  const auto is_flag = [&](const char* key) { return told.contains(key) && told.at(key).is_boolean(); };
  if (!told.is_object() || !is_text("config") || !is_text("passes") || !is_flag("links_here") || !told.contains("plan"))
    refuse("it holds something else");
  ::unsetenv(settled_variable);  // this process alone uses it, not the programs it may start
  SettledJob settled{.config = parse_config(told.at("config").get<std::string>(), {}, settled_variable),
                     .decision = {.passes = passes_from(told.at("passes").get<std::string>(), settled_variable)},
                     .plan = told.at("plan"),
                     .note = {}};
  if (told.at("links_here").get<bool>()) settled.decision.collectives = CollectiveWay::links;
  return settled;
}

}  // namespace

SettledJob settle(const Config& config, const parallel::Decision& decision, const std::shared_ptr<comm::Rendezvous>& joined,
                  std::optional<std::int64_t> vocab) {
  if (site::launch_mode(config) != LaunchMode::external) return decide(config, decision, vocab);
  if (const std::vector<std::string> open = keys_left_to_planner(config); !open.empty()) {
    throw ConfigError(
        {{open.front(), "auto",
          "cannot be decided under an outside launcher: run `plait plan` first and give each rank its result (--plan)", "",
          0}});
  }
  RankContext here = place_from_environment(config).value();
  SettledJob settled{.config = config, .decision = decision, .plan = {}, .note = {}};
  if (!plan::plans_passes(config, decision)) return here.is_main ? decide(config, decision, vocab) : settled;
  require(joined != nullptr, "settle: ranks that an outside launcher has started have not joined");
  here.rendezvous = joined;
  comm::Meeting meeting = here.meeting("planned passes", milliseconds_of(config.comm.timeout_s));
  if (here.is_main) {
    settled = decide(config, decision, vocab);
    meeting.say("passes", text_of(settled.decision.passes));
  } else {
    settled.decision.passes = passes_from(meeting.hear<std::string>("passes", 0, most_schedule_bytes), "rank 0");
  }
  return settled;
}

PassedJob::PassedJob(const SettledJob& job) {
  if (job.config.launch.mode != LaunchMode::processes) return;
  // A variable holds at most 128 KiB, which plans of many ranks exceed.
  memory_ = FileDescriptor(::memfd_create("plait-job", 0));
  if (!memory_) throw CommError("cannot make shared memory for the job's plan: " + errno_text());
  const nlohmann::ordered_json passed{{"config", to_yaml(job.config)},
                                      {"passes", text_of(job.decision.passes)},
                                      {"links_here", job.decision.collectives == CollectiveWay::links},
                                      {"plan", job.plan}};
  std::ofstream file(path_of(memory_.get()), std::ios::binary);
  if (!(file << passed << std::flush)) throw CommError("cannot write the job's plan to shared memory: " + errno_text());
  ::setenv(settled_variable, std::to_string(memory_.get()).c_str(), 1);
}

PassedJob::~PassedJob() {
  if (memory_) ::unsetenv(settled_variable);
}

BegunJob begin_job(const std::function<parallel::DecidedConfig()>& asked, const std::function<void()>& joined) {
  BegunJob begun;
  if (std::optional<SettledJob> passed = settled_by_launcher()) {
    begun.job = *std::move(passed);
    begun.rendezvous = join_job(begun.job.config, begun.job.decision);
    joined();
    return begun;
  }
  const auto [config, decision] = asked();
  begun.rendezvous = join_job(config, decision);
  joined();
  begun.job = or_end_job(begun.rendezvous, config, [&] { return settle(config, decision, begun.rendezvous); });
  begun.passed = std::make_unique<PassedJob>(begun.job);
  return begun;
}

void require_settled(const Config& config, const std::string& command) {
  std::vector<ConfigProblem> problems;
  for (const std::string& key : keys_left_to_planner(config)) {
    problems.push_back({key, "auto",
                        "is decided by `plait plan`, `plait train` and `plait bench step` only: " + command + " needs a value",
                        "", 0});
  }
  if (!problems.empty()) throw ConfigError(problems);
}

}  // namespace plait::launch
