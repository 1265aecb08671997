#include "bench/collective_slowdown.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <mutex>

#include "bench/bench_ranks.h"

#include "comm/communicator.h"
#include "comm/meeting.h"
#include "core/error.h"
#include "core/statistics.h"

namespace plait::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t gpu_bytes = std::size_t{64} << 20, cpu_bytes = std::size_t{1} << 20;  // a bucket of gradients
constexpr double run_us = 50e3;                                                             // minimum for the steps alone
constexpr int fewest_steps = 3, most_steps = 100;
constexpr double reserve = 3;  // all-reduces last this multiple of the duration of the steps alone
constexpr int most_reduces = 10'000;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

class RankSlowdown {
 public:
  RankSlowdown(const CollectiveSlowdownRequest& request, launch::RankContext& rank)
      : request_(request),
        rank_(rank),
        meeting_(rank.meeting("slowdown.runs", request.timeout)),
        busy_(meeting_.busy()),
        memory_(rank.device),
        bytes_(rank.device.is_cuda() ? gpu_bytes : cpu_bytes),
        data_(memory_.allocate(bytes_)),
        stream_(rank.device, StreamPriority::high) {
    model_ = CalibrationModel::make(request.config, request.vocab, request.measured, rank.device,
                                    CalibrationModel::Stage::without_head);
    if (!model_)
      throw DeviceError(
          "bench calibrate: the device no longer has room for a model that fitted a moment ago; is another program using it?");
    comm::GroupSpec group;
    group.name = "slowdown";
    group.timeout = request.timeout;
    group.max_ctas = static_cast<int>(request.config.comm.max_ctas.value_or(0));
    group.host_interface = request.config.comm.interface;
    comm_ = join_all(rank, group);
    stream_.ref().zero(data_.data(), bytes_);  // sums of zeros stay finite, however often
  }

  // The slowdowns of the rounds in which all-reduces lasted to the end.
  std::vector<double> measure() {
    return run_on({stream_}, rank_, [&] {
      const double one_step = meeting_.greatest("step", run(1, 0).microseconds);
      const int steps = std::clamp(static_cast<int>(std::ceil(run_us / one_step)), fewest_steps, most_steps);
      const double reduce = meeting_.greatest("reduce", reduce_us());
      const int reduces = std::clamp(static_cast<int>(std::ceil(reserve * steps * one_step / reduce)), 1, most_reduces);
      PairedTimes times{.alone = {run(steps, 0).microseconds}, .beside = {}};
      std::vector<bool> to_the_end;
      for (int round = 0; round < request_.rounds; ++round) {
        const Run beside = run(steps, reduces);
        times.beside.push_back(beside.microseconds);
        to_the_end.push_back(beside.to_the_end);
        times.alone.push_back(run(steps, 0).microseconds);
      }
      std::vector<double> slower;
      for (std::size_t i = 0; i < to_the_end.size(); ++i) {
        if (to_the_end[i]) slower.push_back(lengthening(times, i));
      }
      return slower;
    });
  }

 private:
  struct Run {
    double microseconds = 0;  // of the steps
    bool to_the_end = true;   // all-reduces were still running then
  };

  void enqueue_reduce() {
    comm_->all_reduce(stream_, {data_.data(), DType::f32, {static_cast<std::int64_t>(bytes_ / size_of(DType::f32))}},
                      comm::Reduction::sum);
  }
  void synchronize_reduces() {
    Event done(rank_.device);
    stream_.ref().record(done);
    synchronize_within(done, request_.timeout, "all-reduces during a model's steps");
  }

  double reduce_us() {
    constexpr int count = 5;
    enqueue_reduce();
    synchronize_reduces();
    meet();
    const auto start = Clock::now();
    for (int i = 0; i < count; ++i) enqueue_reduce();
    synchronize_reduces();
    return microseconds_since(start) / count;
  }

  Run run(int steps, int reduces) {
    meet();
    // Enqueued by another thread: more all-reduces than a stream holds (most_enqueued) would block this thread until some had
    // run.
    std::atomic<bool> enqueued = false;
    const auto enqueue = [&] {
      make_current(rank_.device);
      for (int i = 0; i < reduces; ++i) enqueue_reduce();
      enqueued = true;
    };
    std::future<void> enqueuing = std::async(std::launch::async, enqueue);
    const auto start = Clock::now();
    try {
      for (int step = 0; step < steps; ++step) model_->enqueue_step();
      model_->synchronize();
    } catch (...) {
      comm_->abort();  // lets the other thread finish
      throw;
    }
    Run run{.microseconds = microseconds_since(start)};
    Event reduced(rank_.device);
    if (enqueued) stream_.ref().record(reduced);
    run.to_the_end = reduces == 0 || !enqueued || !reduced.is_complete();
    enqueuing.get();
    synchronize_reduces();
    return run;
  }

  void meet() { meeting_.meet("run " + std::to_string(meetings_++)); }

  const CollectiveSlowdownRequest& request_;
  launch::RankContext& rank_;
  comm::Meeting meeting_;           // of all ranks,
  const comm::Meeting::Busy busy_;  // runs have no time limit
  DeviceMemory memory_;
  const std::size_t bytes_;
  Buffer data_;
  Stream stream_;
  std::unique_ptr<CalibrationModel> model_;
  std::shared_ptr<comm::Communicator> comm_;
  int meetings_ = 0;
};

}  // namespace

std::optional<double> measure_collective_slowdown(const CollectiveSlowdownRequest& request,
                                                  const launch::LaunchPlan& launch_plan) {
  require(launch_plan.mode == LaunchMode::threads, "measure_collective_slowdown: ranks must be threads");
  std::mutex mutex;
  std::optional<double> most;
  launch::launch(
      launch_plan,
      [&](launch::RankContext& rank) {
        const std::vector<double> slower = RankSlowdown(request, rank).measure();
        if (2 * slower.size() <= static_cast<std::size_t>(request.rounds)) return;
        std::lock_guard lock(mutex);
        most = std::max({most.value_or(0), median(slower), 0.0});
      },
      request.argv);
  return most;
}

}  // namespace plait::bench
