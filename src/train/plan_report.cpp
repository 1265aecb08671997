#include "train/plan_report.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

#include "core/file.h"
#include "core/format.h"
#include "core/terminal.h"
#include "parallel/job_plan.h"
#include "parallel/ledger_json.h"
#include "parallel/plan_json.h"
#include "parallel/proof/validator.h"
#include "site/devices.h"
#include "train/report/link_table.h"
#include "train/report/path_table.h"
#include "train/run_messages.h"

namespace plait::train {

PlanReport::PlanReport(Job& job, World& world, Session& session) : job_(job), world_(world), session_(session) {
  const nlohmann::ordered_json links = gather_links("links", session.links(), world.meeting);
  nlohmann::ordered_json exchange_links =
      gather_links("exchange links", session.links_within(parallel::exchange_group), world.meeting);
  nlohmann::ordered_json reduction_links =
      gather_links("reduction links", session.links_within(parallel::reduction_group), world.meeting);
  if (!world.rank.is_main) return;
  const parallel::RankPlan& mine = session.plan();
  const nlohmann::ordered_json& planned = job.request().job.plan;
  const auto plans =
      parallel::make_job_plan(job.config(), job.decision(), job.tokenizer().vocab(), mine.layout, mine.device_kind);
  parallel::require_valid(parallel::training_programs(plans));
  parallel::require_valid(parallel::evaluation_programs(plans));
  const site::DeviceChoice choice = site::choose_devices(job.config());
  std::vector<std::string> devices;
  for (int r = 0; r < world.rank.size; ++r) {
    devices.push_back(to_string(site::placed_device(job.config(), choice, r, world.rank.size)));
  }
  document_ = parallel::plan_document(plans, devices, planned);
  prediction_ = predicted_run(planned);
  if (!prediction_) job.say(planned.at("explanation").front().get<std::string>());
  if (!session.paths().is_null()) document_["paths"] = session.paths();
  document_["point_to_point"] = links;
  const nlohmann::ordered_json exchanges = exchange_report(mine, std::move(exchange_links));
  if (!exchanges.is_null()) document_["exchanges"] = exchanges;
  const nlohmann::ordered_json reductions = reduction_report(mine, std::move(reduction_links));
  if (!reductions.is_null()) document_["reductions"] = reductions;
  std::int64_t parameters = 0;
  for (const model::Parameter& p : model::parameters(mine.sizes.shape)) parameters += p.stored;
  job.say(fmt::format("{} parameters, {}, {} with {} gradients, {} on {} ({})", format_count(static_cast<double>(parameters)),
                      mine.layout.to_string(),
                      std::string(to_string(mine.sizes.compute)) + (mine.sizes.fp8 ? " (products of blocks: FP8)" : ""),
                      to_string(mine.gradient_type), comm::backend_name(mine.device_kind), to_string(world.rank.device),
                      device_name(world.rank.device)));
  if (!session.paths().is_null()) job.say(path_table(session.paths()));
  const int width = terminal_width(stderr);
  if (!links.empty()) job.say(link_table(links, width));
  for (const std::string& text : {exchange_text(exchanges, width), reduction_text(reductions, width)}) {
    if (!text.empty()) job.say(text);
  }
}

void PlanReport::say_measured(const parallel::LedgerSum& run) {
  if (run.steps() == 0) return;
  const parallel::Ledger mean = run.mean();
  if (world_.rank.size > 1) {
    const std::vector<parallel::Ledger> ledgers = world_.meeting.gather_on(0, "ledger", mean);
    if (!ledgers.empty()) job_.say(spent_text(ledgers, run.steps(), terminal_width(stderr)));
  }
  const MemoryReport memory = session_.memory_report();
  const std::size_t bytes = memory.device_bytes > 0 ? memory.device_bytes : memory.allocated_bytes;
  const std::vector<std::size_t> peaks = world_.meeting.gather_on(0, "peak", bytes);
  if (!prediction_) return;
  prediction_->measured = {mean.step_ms, mean.exposed_ms(), {peaks.begin(), peaks.end()}};
  write_text_file(job_.run_dir() / "prediction.json", to_json(*prediction_).dump(2) + "\n");
  job_.say(accuracy_line(*prediction_));
}

}  // namespace plait::train
