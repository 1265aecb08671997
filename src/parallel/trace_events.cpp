#include "parallel/trace_events.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "parallel/ledger.h"
#include "parallel/program/program_set.h"

namespace plait::parallel {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr double shortest_wait_us = 1;
constexpr double inside_us = 1e-3;         // an arrow ends within its slice
constexpr int first_device_thread = 1000;  // threads for what the GPU ran are numbered after those of streams

double microseconds(Clock::time_point time) {
  return std::chrono::duration<double, std::micro>(time.time_since_epoch()).count();
}

class RankEvents {
 public:
  RankEvents(const Program& program, const Layout& layout, int rank, const std::string& device, std::size_t most_bytes)
      : program_(program), layout_(layout), rank_(rank), most_bytes_(most_bytes) {
    name("process_name", 0, fmt::format("rank {} ({}) on {}", rank, to_string(layout.coordinates(rank)), device));
    add({{"ph", "M"}, {"pid", rank}, {"name", "process_sort_index"}, {"args", {{"sort_index", rank}}}});
    for (std::size_t s = 0; s < program_.streams.size(); ++s)
      name("thread_name", static_cast<int>(s), to_string(program_.streams[s]));
  }

  void step(const StepTrace& trace, std::int64_t number) {
    origin_us_ = microseconds(trace.origin);
    number_ = number;
    messages_.clear();
    for (const StepTrace::Slice& timed : trace.slices) instruction(timed);
    slice(compute_thread(), fmt::format("step {}", number), "step", trace.begin, trace.end, {{"step", number_}}, true);
  }

  // Returns the number of activities that did not fit.
  std::size_t activities(const TracedStep& step) {
    std::size_t left_out = 0;
    // Ranks of one process share the records, which may also hold activities from before this step.
    const double from = microseconds(step.trace.origin) - 1e3;
    std::vector<const DeviceActivity*> in_order;
    for (const DeviceActivity& a : step.activities) in_order.push_back(&a);
    std::ranges::stable_sort(in_order, {}, [](const DeviceActivity* a) { return a->begin; });
    std::map<int, double> ended;  // by stream: end of the activity before
    for (const DeviceActivity* activity : in_order) {
      const DeviceActivity& a = *activity;
      const double end = microseconds(a.end);
      double begin = microseconds(a.begin);
      // A kernel may be on the GPU before the previous one on its stream has ended, and waits there: it begins when that one
      // ends.
      if (a.stream >= 0) {
        const auto [before, is_first] = ended.try_emplace(a.stream, end);
        if (!is_first) begin = std::min(end, std::max(begin, std::exchange(before->second, end)));
      }
      if (begin < from) continue;
      if (text_.size() > most_bytes_) {
        ++left_out;
        continue;
      }
      const int thread = first_device_thread + a.stream;
      if (named_.insert(thread).second) {
        const bool ours = a.stream >= 0;
        name("thread_name", thread,
             "GPU: " + (ours ? to_string(program_.streams[static_cast<std::size_t>(a.stream)]) : "other streams"));
      }
      add({{"ph", "X"},
           {"pid", rank_},
           {"tid", thread},
           {"ts", begin},
           {"dur", end - begin},
           {"name", a.name},
           {"cat", "device"}});
    }
    return left_out;
  }

  std::string take() { return std::move(text_); }

 private:
  int compute_thread() const { return 0; }

  void add(const Json& event) {
    if (!text_.empty()) text_ += ",\n";
    text_ += event.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  void name(const std::string& what, int thread, const std::string& text) {
    add({{"ph", "M"}, {"pid", rank_}, {"tid", thread}, {"name", what}, {"args", {{"name", text}}}});
    if (what != "thread_name") return;
    add({{"ph", "M"}, {"pid", rank_}, {"tid", thread}, {"name", "thread_sort_index"}, {"args", {{"sort_index", thread}}}});
  }
  double at(double milliseconds) const { return origin_us_ + 1e3 * milliseconds; }

  // `whole`: the slice spans the instructions below it, so it is an asynchronous event, which may overlap others.
  void slice(int thread, const std::string& text, const char* category, double begin, double end, Json args,
             bool whole = false) {
    if (whole) {
      const std::string id = fmt::format("{}.{}", rank_, number_);
      add({{"ph", "b"},
           {"pid", rank_},
           {"tid", thread},
           {"ts", at(begin)},
           {"id", id},
           {"name", text},
           {"cat", category},
           {"args", args}});
      add({{"ph", "e"}, {"pid", rank_}, {"tid", thread}, {"ts", at(end)}, {"id", id}, {"name", text}, {"cat", category}});
      return;
    }
    const double duration = std::max(2 * inside_us, 1e3 * (end - begin));
    add({{"ph", "X"},
         {"pid", rank_},
         {"tid", thread},
         {"ts", at(begin)},
         {"dur", duration},
         {"name", text},
         {"cat", category},
         {"args", std::move(args)}});
  }

  Json arguments(const Instruction& i) const {
    const bool collective = is_collective(i);
    Json args = {{"step", number_}, {"kind", kind_text(i)}};
    const auto set = [&](const char* key, int value) {
      if (value >= 0) args[key] = value;
    };
    set("micro_batch", i.micro_batch);
    set("chunk", i.chunk);
    set("segment", i.segment);
    set("bucket", i.bucket);
    if (collective) args["purpose"] = to_string(i.collective.purpose);
    if (collective && i.segment < 0) args["group"] = to_string(i.collective.group);
    if (is_send(i.kind) || is_receive(i.kind)) args["peer"] = peer(i);
    return args;
  }
  int peer(const Instruction& i) const { return layout_.moved(rank_, stage_axis, program_.stream_of(i).peer); }

  void instruction(const StepTrace::Slice& timed) {
    const Instruction& i = program_.at(timed.instruction);
    if (1e3 * (timed.begin - timed.waiting) > shortest_wait_us) {
      slice(i.stream, "waits for " + awaited(i), "wait", timed.waiting, timed.begin, arguments(i));
    }
    double begin = timed.begin;
    if (timed.ready && 1e3 * (*timed.ready - begin) > shortest_wait_us) {
      const std::string late = is_receive(i.kind)
                                   ? fmt::format("rank {} has not sent yet", peer(i))
                                   : "some rank of the " + to_string(i.collective.group) + " group has not come yet";
      slice(i.stream, late, "wait", begin, *timed.ready, arguments(i));
      begin = *timed.ready;
    }
    const char* const category = is_barrier(i) ? "wait" : communication_kind(i) ? "communication" : "compute";
    slice(i.stream, to_string(i), category, begin, timed.end, arguments(i));
    if (is_send(i.kind)) arrow("s", i.stream, rank_, peer(i), at(begin) + inside_us);
    if (is_receive(i.kind)) arrow("f", i.stream, peer(i), rank_, std::max(at(begin) + inside_us, at(timed.end) - inside_us));
  }

  // Each end counts the messages of a direction, so the n-th of both have the same id.
  void arrow(const char* phase, int thread, int from, int to, double time) {
    const int message = messages_[{from, to}]++;
    Json event = {{"ph", phase},
                  {"pid", rank_},
                  {"tid", thread},
                  {"ts", time},
                  {"id", fmt::format("{}.{}.{}.{}", number_, from, to, message)},
                  {"name", "message"},
                  {"cat", "message"}};
    if (phase[0] == 'f') event["bp"] = "e";
    add(event);
  }

  std::string awaited(const Instruction& i) const {
    if (i.waits.empty()) return "its turn";
    std::string text = to_string(program_.at(i.waits.front()));
    if (i.waits.size() > 1) text += fmt::format(" and {} more", i.waits.size() - 1);
    return text;
  }

  const Program& program_;
  Layout layout_;
  int rank_;
  const std::size_t most_bytes_;
  std::string text_;
  double origin_us_ = 0;
  std::int64_t number_ = 0;
  std::map<std::pair<int, int>, int> messages_;  // by sender and receiver
  std::set<int> named_;                          // threads that have their names, of what the GPU ran
};

}  // namespace

TraceText trace_events(const Program& program, const Layout& layout, int rank, const std::string& device,
                       const std::vector<TracedStep>& steps, std::int64_t first_step, std::size_t most_bytes) {
  RankEvents events(program, layout, rank, device, most_bytes);
  for (const TracedStep& step : steps) events.step(step.trace, first_step + step.trace.step);
  TraceText text;
  for (const TracedStep& step : steps) text.left_out += events.activities(step);
  text.events = events.take();
  return text;
}

std::string trace_file(const std::vector<std::string>& ranks) {
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) text += (rank > 0 ? ",\n" : "") + ranks[rank];
  return text + "\n]}\n";
}

}  // namespace plait::parallel
