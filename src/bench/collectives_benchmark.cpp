#include "bench/collectives_benchmark.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "bench/pattern.h"
#include "bench/sizes.h"
#include "comm/communicator.h"
#include "comm/meeting.h"
#include "comm/word.h"
#include "core/error.h"
#include "core/statistics.h"
#include "core/terminal.h"
#include "core/text_table.h"

namespace plait::bench {
namespace {

using Json = nlohmann::ordered_json;

// Small whole numbers, which every type represents exactly, as it does their sums.
constexpr std::size_t period = 262'147;  // elements; a prime
constexpr std::size_t rank_shift = 7'919;
constexpr int values = 4;
constexpr int most_iterations = 20;
constexpr std::size_t longest_series = 1 << 20;

void write(std::byte* to, DType dtype, float value) {
  if (dtype == DType::f32) {
    std::memcpy(to, &value, 4);
  } else {
    const BFloat16 rounded(value);
    std::memcpy(to, &rounded, 2);
  }
}

int value_at(std::size_t element) { return static_cast<int>((element % period * 2'654'435'761u >> 7) % values); }

// Rank 0's input, or with `ranks` the sum over that many ranks, where rank r's element i is rank 0's element i + r rank_shift.
Pattern numbers(DType dtype, int ranks) {
  const std::size_t width = size_of(dtype);
  std::vector<std::byte> block(period * width);
  for (std::size_t i = 0; i < period; ++i) {
    int sum = 0;
    for (int r = 0; r < ranks; ++r) sum += value_at(i + static_cast<std::size_t>(r) * rank_shift);
    write(block.data() + i * width, dtype, static_cast<float>(sum));
  }
  return Pattern(std::move(block));
}

// One collective and size, on one rank.
struct Measured {
  std::vector<double> microseconds;  // of each round
  std::int64_t wrong = 0;
};

void declare(auto& field, Of<Measured> auto& measured) {
  field("microseconds", measured.microseconds, record::at_most(longest_series));
  field.check(!measured.microseconds.empty(), "microseconds", "must have rounds");
  field("wrong", measured.wrong, record::whole(0));
}

class RankBench {
 public:
  RankBench(const CollectivesBenchmarkRequest& request, launch::RankContext& rank, std::size_t largest)
      : request_(request),
        rank_(rank),
        memory_(rank.device),
        first_(memory_.allocate(largest)),
        second_(memory_.allocate(largest)),
        traffic_(memory_),
        input_(numbers(request.dtype, 1)),
        sum_(numbers(request.dtype, rank.size)),
        stream_(rank.device, StreamPriority::high) {
    comm::GroupSpec group;
    group.name = "collectives";
    group.timeout = request.ranks.timeout;
    group.max_ctas = request.max_ctas;
    group.host_interface = request.ranks.interface;
    comm_ = join_all(rank, group, request.make_communicator);
  }

  Measured measure(CollectiveKind kind, std::size_t bytes) {
    return run_on({stream_}, rank_, [&] {
      const std::vector<double> times = time(kind, bytes);
      return Measured{times, verify(kind, bytes)};
    });
  }

 private:
  std::int64_t elements(std::size_t bytes) const { return static_cast<std::int64_t>(bytes / size_of(request_.dtype)); }
  View whole(const Buffer& buffer, std::size_t bytes) const { return {buffer.data(), request_.dtype, {elements(bytes)}}; }
  View part(const Buffer& buffer, std::size_t bytes) const {
    return {buffer.data(), request_.dtype, {elements(bytes) / rank_.size}};
  }

  void enqueue(CollectiveKind kind, std::size_t bytes) {
    const StreamRef s = stream_.ref();
    switch (kind) {
      case CollectiveKind::all_reduce: comm_->all_reduce(s, whole(first_, bytes)); return;
      case CollectiveKind::reduce_scatter: comm_->reduce_scatter(s, whole(first_, bytes), part(second_, bytes)); return;
      case CollectiveKind::all_gather: comm_->all_gather(s, part(first_, bytes), whole(second_, bytes)); return;
      case CollectiveKind::all_to_all: comm_->all_to_all(s, whole(first_, bytes), whole(second_, bytes)); return;
    }
  }

  std::vector<double> time(CollectiveKind kind, std::size_t bytes) {
    const StreamRef s = stream_.ref();
    const std::size_t budget = rank_.device.is_cuda() ? gpu_budget : cpu_budget;
    const int iterations = std::min(most_iterations, messages_for(bytes, budget));
    Event start(rank_.device, EventTiming::on), stop(rank_.device, EventTiming::on);
    std::vector<double> times;
    s.zero(first_.data(), bytes);  // sums of zeros stay finite, however often
    for (int round = 0; round < request_.rounds; ++round) {
      for (int i = -2; i < iterations; ++i) {  // the first two are not counted: they synchronize the ranks
        if (i == 0) s.record(start);
        enqueue(kind, bytes);
      }
      s.record(stop);
      synchronize_within(stop, request_.ranks.timeout, fmt::format("{} of {}", to_string(kind), format_size(bytes)));
      times.push_back(1e3 * static_cast<double>(elapsed_ms(start, stop)) / iterations);
    }
    return times;
  }

  std::uint64_t place(int rank, std::int64_t element) const {
    return (static_cast<std::uint64_t>(rank) * rank_shift + static_cast<std::uint64_t>(element)) * size_of(request_.dtype);
  }

  // Runs once more with numbers, and compares all results.
  std::int64_t verify(CollectiveKind kind, std::size_t bytes) {
    const StreamRef s = stream_.ref();
    const std::int64_t all = elements(bytes), share = all / rank_.size;
    const View given = kind == CollectiveKind::all_gather ? part(first_, bytes) : whole(first_, bytes);
    s.zero(first_.data(), bytes);
    s.zero(second_.data(), bytes);
    traffic_.synchronize_fill(s, input_, given, place(rank_.rank, 0));
    enqueue(kind, bytes);
    Event done(rank_.device);
    s.record(done);
    synchronize_within(done, request_.ranks.timeout, fmt::format("{} of {}", to_string(kind), format_size(bytes)));
    const auto wrong = [&](const Pattern& pattern, View data, std::uint64_t first) {
      return traffic_.synchronize_count_wrong(s, pattern, data, first);
    };
    switch (kind) {
      case CollectiveKind::all_reduce: return wrong(sum_, whole(first_, bytes), 0);
      case CollectiveKind::reduce_scatter: return wrong(sum_, part(second_, bytes), place(0, rank_.rank * share));
      case CollectiveKind::all_gather:
      case CollectiveKind::all_to_all: break;
    }
    std::int64_t count = 0;
    for (int r = 0; r < rank_.size; ++r) {
      const std::int64_t offset = kind == CollectiveKind::all_to_all ? rank_.rank * share : 0;
      count += wrong(input_, whole(second_, bytes).rows(r * share, share), place(r, offset));
    }
    return count;
  }

  const CollectivesBenchmarkRequest& request_;
  launch::RankContext& rank_;
  DeviceMemory memory_;
  Buffer first_, second_;
  PatternTraffic traffic_;
  Pattern input_, sum_;
  Stream stream_;
  std::shared_ptr<comm::Communicator> comm_;
};

// The sizes that divide among the ranks and for which all ranks have the memory.
std::vector<std::size_t> usable_sizes(const CollectivesBenchmarkRequest& request, launch::RankContext& rank,
                                      comm::Meeting& meeting, std::vector<std::string>& notes) {
  std::vector<std::size_t> sizes = message_sizes(request.sizes, rank.device.is_cuda());
  const std::size_t unit = size_of(request.dtype) * static_cast<std::size_t>(rank.size);
  for (std::size_t& bytes : sizes) bytes = std::max(unit, bytes / unit * unit);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  const std::size_t least = least_free_bytes(rank, meeting);
  const auto most = static_cast<std::size_t>(usable_memory * static_cast<double>(least)) / 2;
  if (bound_sizes(sizes, most) > 0)
    notes.push_back(fmt::format("skipping sizes above {} MB: each rank has {} MB of free memory", most >> 20, least >> 20));
  if (sizes.empty())
    throw DeviceError(
        "bench collectives: not enough free memory even for the smallest size; free some, or ask for smaller ones");
  return sizes;
}

Json row(const CollectivesBenchmarkRequest& request, CollectiveKind kind, std::size_t bytes,
         const std::vector<Measured>& ranks) {
  double slowest = 0;
  std::int64_t wrong = 0;
  for (const Measured& rank : ranks) {
    slowest = std::max(slowest, median(rank.microseconds));
    wrong += rank.wrong;
  }
  const auto size = static_cast<int>(ranks.size());
  const double rate = gb_per_s(static_cast<double>(bytes), slowest);
  Json json;
  json["bytes"] = bytes;
  json["count"] = shown_count(kind, static_cast<std::int64_t>(bytes / size_of(request.dtype)), size);
  json["type"] = std::string(to_string(request.dtype));
  json["redop"] = has_reduction(kind) ? "sum" : "none";
  json["root"] = -1;  // nccl-tests' column: none of these has one
  json["in_place"] = is_in_place(kind);
  json["microseconds"] = slowest;
  json["algbw_gb_per_s"] = rate;
  json["busbw_gb_per_s"] = rate * bus_bandwidth_factor(kind, size);
  json["wrong"] = wrong;
  return json;
}

double average(const Json& rows) {
  double sum = 0;
  for (const Json& row : rows) sum += row.at("busbw_gb_per_s").get<double>();
  return rows.empty() ? 0 : sum / static_cast<double>(rows.size());
}

Json run_rank(const CollectivesBenchmarkRequest& request, const launch::LaunchPlan& plan, launch::RankContext& rank,
              const BenchOutput& output) {
  comm::Meeting meeting = rank.meeting("bench", request.ranks.timeout);
  const auto busy = meeting.busy();  // measuring has no time limit
  std::vector<std::string> notes;
  const std::vector<std::size_t> sizes = usable_sizes(request, rank, meeting, notes);
  const auto tell = [&](const std::string& text) {
    if (rank.is_main && output.note) output.note(text);
  };
  for (const std::string& text : notes) tell(text);
  RankBench bench(request, rank, sizes.back());
  Json json = bench_head("collectives", plan, rank);
  json["rounds"] = request.rounds;
  json["dtype"] = std::string(to_string(request.dtype));
  json["notes"] = notes;
  json["collectives"] = Json::array();
  Json everything = Json::array();
  std::int64_t wrong = 0;
  for (const CollectiveKind kind : request.kinds) {
    tell(to_string(kind));
    std::vector<Measured> own;
    for (const std::size_t bytes : sizes) own.push_back(bench.measure(kind, bytes));
    // All ranks read all words, so that no rank is ahead of one that still measures.
    const std::vector<std::vector<Measured>> all = meeting.gather(to_string(kind), own);
    for (int r = 0; r < rank.size; ++r) {
      if (all[static_cast<std::size_t>(r)].size() != sizes.size()) meeting.refuse(to_string(kind), r, "it has other sizes");
    }
    Json rows = Json::array();
    for (std::size_t s = 0; s < sizes.size(); ++s) {
      std::vector<Measured> of_size;
      for (const std::vector<Measured>& of_rank : all) of_size.push_back(of_rank[s]);
      rows.push_back(row(request, kind, sizes[s], of_size));
      wrong += rows.back()["wrong"].get<std::int64_t>();
      everything.push_back(rows.back());
    }
    const double mean = average(rows);
    json["collectives"].push_back(
        {{"collective", to_string(kind)}, {"results", std::move(rows)}, {"average_busbw_gb_per_s", mean}});
  }
  json["average_busbw_gb_per_s"] = average(everything);
  json["wrong"] = wrong;
  return json;
}

}  // namespace

std::vector<CollectiveKind> all_collectives() {
  std::vector<CollectiveKind> kinds;
  for (const Name<CollectiveKind>& kind : names<CollectiveKind>) kinds.push_back(kind.value);
  return kinds;
}

double bus_bandwidth_factor(CollectiveKind kind, int ranks) {
  require(ranks > 0, "bus_bandwidth_factor: no ranks");
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (kind) {
    case CollectiveKind::all_reduce: return 2 * others;
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all: return others;
  }
  throw InternalError("a collective without a bus bandwidth");
}

std::int64_t shown_count(CollectiveKind kind, std::int64_t elements, int ranks) {
  return is_in_place(kind) ? elements : elements / ranks;
}

bool has_reduction(CollectiveKind kind) { return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter; }

bool is_in_place(CollectiveKind kind) { return kind == CollectiveKind::all_reduce; }

int benchmark_collectives(const CollectivesBenchmarkRequest& request, const BenchOutput& output) {
  require(request.dtype == DType::f32 || request.dtype == DType::bf16, "bench collectives: f32 or bf16");
  const launch::LaunchPlan plan = plan_bench(request.ranks, request.argv);
  static_cast<void>(message_sizes(request.sizes, plan.devices.front().is_cuda()));  // throws before anything starts
  bool wrong = false;
  const int status = run_bench(plan, request.argv, output, [&](launch::RankContext& rank) {
    Json result = run_rank(request, plan, rank, output);
    if (rank.is_main) wrong = result["wrong"].get<std::int64_t>() > 0;
    return result;
  });
  return status == 0 && wrong ? 3 : status;
}

std::string collectives_table(const Json& result, int width) {
  std::string out =
      folded(head_text(result) + fmt::format("; medians of {} rounds, in stream time; GB/s = 10^9 bytes per second",
                                             result["rounds"].get<int>()),
             width, 4) +
      "\n";
  for (const Json& collective : result["collectives"]) {
    const Json& rows = collective["results"];
    const auto name = collective["collective"].get<std::string>();
    out += fmt::format("\n# {}, {}\n", name, rows.front()["in_place"].get<bool>() ? "in-place" : "out-of-place");
    TextTable table({{"size (B)"},
                     {"count (elements)"},
                     {"type"},
                     {"redop"},
                     {"root"},
                     {"time (us)"},
                     {"algbw (GB/s)"},
                     {"busbw (GB/s)"},
                     {"#wrong"}});
    for (const Json& r : rows) {
      table.add({fmt::format("{}", r["bytes"].get<std::int64_t>()), fmt::format("{}", r["count"].get<std::int64_t>()),
                 r["type"].get<std::string>(), r["redop"].get<std::string>(), fmt::format("{}", r["root"].get<int>()),
                 fmt::format("{:.2f}", r["microseconds"].get<double>()),
                 fmt::format("{:.2f}", r["algbw_gb_per_s"].get<double>()),
                 fmt::format("{:.2f}", r["busbw_gb_per_s"].get<double>()), fmt::format("{}", r["wrong"].get<std::int64_t>())});
    }
    out += table.text(width);
    out +=
        fmt::format("# average bus bandwidth of {}: {:.3f} GB/s\n", name, collective["average_busbw_gb_per_s"].get<double>());
  }
  return out + fmt::format("\n# wrong elements: {}\n# average bus bandwidth: {:.3f} GB/s\n",
                           result["wrong"].get<std::int64_t>(), result["average_busbw_gb_per_s"].get<double>());
}

}  // namespace plait::bench
