#include "verify/verify.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "core/error.h"
#include "core/file.h"
#include "parallel/job_plan.h"
#include "parallel/proof/validator.h"
#include "verify/reference.h"

namespace plait::verify {
namespace {

// "NVIDIA H200, of 4 ranks".
std::string device_text(const std::vector<Device>& devices) {
  const auto sharing = std::ranges::count(devices, devices.front());
  return device_name(devices.front()) + (devices.front().is_cuda() && sharing > 1 ? fmt::format(", of {} ranks", sharing) : "");
}

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Verification {
 public:
  Verification(const VerifyRequest& request, const VerifyEvents& events)
      : request_(request), events_(events), matrix_(make_matrix(request.config, request.layouts)) {}

  VerifyReport run() {
    const auto start = Clock::now();
    if (events_.planned) events_.planned(matrix_);
    report_.refused = matrix_.refused;
    for (std::size_t m = 0; m < matrix_.models.size(); ++m) {
      const std::string failure = record_serial(m);
      for (const VerifyCase& c : matrix_.cases) {
        if (c.model == m) verify_layout(c, failure);
      }
      fs::remove_all(model_directory(m));
    }
    report_.seconds = seconds_since(start);
    return std::move(report_);
  }

 private:
  void announce(std::size_t model, const std::string& layout) const {
    if (events_.started) events_.started(matrix_.models[model].name, layout);
  }

  fs::path model_directory(std::size_t model) const { return directory_.path() / ("model-" + std::to_string(model)); }
  // The directory of the model's serial runs with this many sequences per micro-batch.
  fs::path serial_directory(std::size_t model, std::int64_t micro_batch) const {
    return model_directory(model) / ("micro-batch-" + std::to_string(micro_batch));
  }

  // `serial`: directory of the serial runs.
  VerifyFindings run_job(VerifyJob::Task task, const fs::path& serial, const launch::SettledJob& settled,
                         const RankParts& parts) {
    const VerifyJob job{task, serial, directory_.path() / ("job-" + std::to_string(jobs_++))};
    create_private_directory(job.result);
    return run_verify_job(job, settled, parts, request_.argv);
  }

  void run_serial(const VerifyJob& job, std::size_t index, std::int64_t micro_batch) {
    const VerifyModel& model = matrix_.models[index];
    Config serial = model.serial;
    serial.train.micro_batch = micro_batch;
    fs::remove_all(serial_run(job));
    create_private_directories(serial_run(job));
    try {
      run_job(job.task, job.model, {.config = serial, .decision = {}, .plan = {}, .note = {}},
              {.open_dataset = request_.parts.open_dataset});
    } catch (const ConfigError&) {
      throw;
    } catch (const launch::Interrupted&) {
      throw;
    } catch (const Error& error) {
      throw Error("the serial run of model " + model.name + " failed: " + error.what());
    }
  }

  // The directory of a recorded serial run, which is recorded now if necessary.
  fs::path recorded_serial(std::size_t index, std::int64_t micro_batch) {
    const fs::path directory = serial_directory(index, micro_batch);
    if (fs::exists(directory)) return directory;
    try {
      create_private_directories(directory);
      matrix_.models[index].tokenizer->save(directory);
      run_serial({VerifyJob::Task::record, directory, {}}, index, micro_batch);
    } catch (...) {
      fs::remove_all(directory);  // otherwise it would pass for a finished one
      throw;
    }
    return directory;
  }

  // Returns the reason for a failure, or "".
  std::string record_serial(std::size_t index) {
    announce(index, "serial");
    const VerifyModel& model = matrix_.models[index];
    const launch::LaunchPlan launch = launch::plan_launch(model.serial);
    const Device device = launch.devices.front();
    const parallel::RankPlan plan = parallel::make_rank_plan(model.serial, parallel::Decision{}, model.tokenizer->vocab(),
                                                             parallel::Layout{}, 0, device.kind);
    report_.device = device_name(device);
    ModelReport& report = report_.models.emplace_back(ModelReport{.name = model.name,
                                                                  .compute = std::string(to_string(plan.sizes.compute)),
                                                                  .bounds = verify_bounds(plan, model.serial)});
    for (const model::Parameter& p : plan.parameters) report.parameters += p.stored;
    try {
      const VerifyJob of_serial{VerifyJob::Task::record, recorded_serial(index, model.serial.train.micro_batch), {}};
      for (std::int64_t step = 1; step <= model.serial.verify.steps; ++step) {
        report.steps.push_back(ReferenceStep(serial_run(of_serial), step).figures());
      }
    } catch (const ConfigError&) {
      throw;
    } catch (const launch::Interrupted&) {
      throw;
    } catch (const Error& error) {
      return report.failure = error.what();
    }
    report.weak = weak_bounds(report.bounds, report.steps);
    if (events_.recorded) events_.recorded(report);
    return {};
  }

  // `failure`: of the serial run; then there is nothing to compare with.
  void verify_layout(const VerifyCase& c, const std::string& failure) {
    announce(c.model, c.layout);
    const auto start = Clock::now();
    const launch::LaunchPlan launch = launch::plan_launch(c.config);
    LayoutResult result{.model = matrix_.models[c.model].name,
                        .layout = c.layout,
                        .parallel = c.config.parallel,
                        .device = device_text(launch.devices),
                        .failure = failure};
    if (failure.empty()) compare(c, launch, result);
    result.seconds = seconds_since(start);
    report_.layouts.push_back(std::move(result));
    if (events_.finished) events_.finished(report_.layouts.back());
  }

  void compare(const VerifyCase& c, const launch::LaunchPlan& launch, LayoutResult& result) {
    try {
      // Timing errors need not show in the numbers.
      const std::int64_t vocab = matrix_.models[c.model].tokenizer->vocab();
      // Settled as for training here: which collectives use links, and the passes of a planned schedule.
      const launch::SettledJob settled = launch::settle(c.config, parallel::Decision{}, nullptr, vocab);
      const parallel::Layout mesh = parallel::resolve_layout(c.config.parallel, launch.ranks);
      const auto plans = parallel::make_job_plan(settled.config, settled.decision, vocab, mesh, launch.devices.front().kind);
      parallel::require_valid(parallel::training_programs(plans));
      // A micro-batch's operands are rounded to FP8 with one scale, so the serial run's micro-batches must have the layout's
      // size.
      const std::int64_t micro_batch = plans.front().sizes.micro_batch.batch;
      const bool fp8 = plans.front().sizes.fp8;
      const fs::path serial =
          recorded_serial(c.model, fp8 ? micro_batch : matrix_.models[c.model].serial.train.micro_batch.value());
      result.findings = run_job(VerifyJob::Task::compare, serial, settled, request_.parts);
      result.exceeded = train::exceeded_bounds(result.findings.ledgers, c.config.bounds);
      if (!result.findings.passed()) search(c, settled, serial, micro_batch, result);
    } catch (const launch::Interrupted&) {
      throw;
    } catch (const Error& error) {
      result.failure = error.what();
    }
  }

  // Tensors are compared micro-batch by micro-batch, so the serial run's must have the layout's size, `micro_batch`.
  void search(const VerifyCase& c, const launch::SettledJob& settled, const fs::path& serial, std::int64_t micro_batch,
              LayoutResult& result) {
    const auto recorded = recorded_.find(serial);
    if (recorded == recorded_.end() || recorded->second != micro_batch) {
      run_serial({VerifyJob::Task::record_tensors, serial, {}}, c.model, micro_batch);
      recorded_[serial] = micro_batch;
    }
    result.findings.first_divergence = run_job(VerifyJob::Task::search, serial, settled, request_.parts).first_divergence;
    if (!result.findings.first_divergence) {
      result.failure = "does not happen again when instructions run one at a time, so it depends on timing (a missing wait?)";
    }
  }

  const VerifyRequest& request_;
  const VerifyEvents& events_;
  const VerifyMatrix matrix_;
  const PrivateDirectory directory_;
  int jobs_ = 0;
  std::map<fs::path, std::int64_t> recorded_;  // sequences per micro-batch of the recorded tensors, by serial directory
  VerifyReport report_;
};

}  // namespace

int VerifyReport::passed() const {
  return static_cast<int>(std::count_if(layouts.begin(), layouts.end(), [](const LayoutResult& l) { return l.passed(); }));
}

bool VerifyReport::weak() const {
  return std::any_of(models.begin(), models.end(), [](const ModelReport& m) { return !m.weak.empty(); });
}

VerifyReport verify(const VerifyRequest& request, const VerifyEvents& events) { return Verification(request, events).run(); }

}  // namespace plait::verify
