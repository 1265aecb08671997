#include "bench/p2p_bars.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "bench/sizes.h"

namespace plait::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t large[] = {16 * mega, 64 * mega, 256 * mega};

bool is_mailbox(const Json& method) { return method.at("transport") != "nccl"; }

// The best figure of the mailboxes, or the library's, at a size.
std::optional<double> figure(const Json& pair, std::size_t bytes, const char* key, bool mailboxes, bool smallest = false) {
  std::optional<double> best;
  for (const Json& method : pair.at("methods")) {
    if (is_mailbox(method) != mailboxes) continue;
    for (const Json& result : method.at("results")) {
      if (result.at("bytes") != bytes) continue;
      const double value = result.at(key).get<double>();
      best = !best ? value : smallest ? std::min(*best, value) : std::max(*best, value);
    }
  }
  return best;
}

Bar bar(const std::string& pair, const std::string& what, std::optional<double> value, std::optional<double> limit,
        bool at_least) {
  return {.what = what,
          .pair = pair,
          .value = value.value_or(0),
          .limit = limit.value_or(0),
          .at_least = at_least,
          .measured = value.has_value() && limit.has_value()};
}

std::optional<double> times(double factor, std::optional<double> value) {
  if (value) *value *= factor;
  return value;
}

constexpr double most_rounds = 1000;  // that anybody would wait for
constexpr double in_time = 0.9;       // of the messages, before the products beside them were done

// Of the end that suffers more.
double slowdown(const Json& row) {
  return std::max(row.at("from_slowdown").get<double>(), row.at("to_slowdown").get<double>());
}

Bar slowdown_bar(const Json& pair, const std::string& name) {
  const std::string what = "slowdown of products beside 16 MB messages, against half of NCCL's";
  std::vector<Json> rows;
  if (pair.contains("products")) {
    for (const Json& row : pair.at("products").value("beside", Json::array())) {
      if (row.at("message_bytes") == large[0]) rows.push_back(row);
    }
  }
  const auto library = std::find_if(rows.begin(), rows.end(), [](const Json& row) { return !is_mailbox(row); });
  if (library == rows.end()) return bar(name, what, std::nullopt, std::nullopt, false);
  std::optional<double> best;
  for (const Json& row : rows) {
    if (!is_mailbox(row) || row.at("messages") != library->at("messages") || row.at("arrived").get<double>() < in_time)
      continue;
    best = best ? std::min(*best, slowdown(row)) : slowdown(row);
  }
  const double rounds = pair.at("products").at("rounds").get<double>();
  const double limit = slowdown(*library) / 2, arrived = library->at("arrived").get<double>();
  const double noise = std::max(library->at("noise").at("from").get<double>(), library->at("noise").at("to").get<double>());
  Bar result = bar(name, what, best, limit, false);
  if (arrived < in_time) {
    result.undecided = fmt::format("only {:.0f} % of NCCL's messages came while the products ran", 100 * arrived);
  } else if (best && limit <= noise) {
    result.undecided = fmt::format("half of NCCL's slowdown, {:.2f} %, is within the noise of products alone, {:.2f} %",
                                   100 * limit, 100 * noise);
    // The noise goes by the root of their number.
    const double enough = limit > 0 ? std::ceil(1.2 * rounds * (noise / limit) * (noise / limit)) : 0;
    if (enough > 0 && enough <= most_rounds) result.undecided += fmt::format("; --product-rounds {:.0f} would tell", enough);
  }
  return result;
}

void evaluate_pair(const Json& pair, bool threads, std::vector<Bar>& bars) {
  const std::string name = fmt::format("{} -> {}", pair.at("from").get<int>(), pair.at("to").get<int>());
  for (const std::size_t bytes : large) {
    bars.push_back(bar(name, "best mailbox at " + format_size(bytes) + ", GB/s, against 1.08 x NCCL",
                       figure(pair, bytes, "gb_per_s", true), times(1.08, figure(pair, bytes, "gb_per_s", false)), true));
  }
  bars.push_back(bar(name, "best mailbox for 1 MB, us", figure(pair, mega, "microseconds", true, true), 10, false));
  bars.push_back(bar(name, "best mailbox for 4 KB, us", figure(pair, 4 * kilo, "microseconds", true, true), 7, false));
  for (const std::size_t bytes : large) {
    bars.push_back(bar(name, "both ways at " + format_size(bytes) + ", GB/s, against 1.9 x one way",
                       figure(pair, bytes, "both_ways_gb_per_s", true), times(1.9, figure(pair, bytes, "gb_per_s", true)),
                       true));
  }
  bars.push_back(slowdown_bar(pair, name));
  if (!threads) return;
  const std::optional<double> cliff =
      pair.contains("plain_copy") ? std::optional(pair["plain_copy"].at("gb_per_s").get<double>()) : std::nullopt;
  bars.push_back(bar(name, "plain copy without peer access, GB/s, against a fifth of the best mailbox", cliff,
                     times(0.2, figure(pair, large[2], "gb_per_s", true)), false));
}

}  // namespace

std::string Bar::to_string() const {
  const std::string head = pair.empty() ? what : pair + ": " + what;
  if (!undecided.empty()) return head + ": " + undecided;
  if (!measured) return head + ": not measured";
  return fmt::format("{}: {:.3g}, must be {} {:.3g}", head, value, at_least ? "at least" : "at most", limit);
}

std::vector<Bar> evaluate_bars(const Json& result) {
  std::vector<Bar> bars;
  for (const Json& pair : result.at("pairs")) {
    if (pair.at("nvlinks").get<int>() > 0) evaluate_pair(pair, result.at("mode") == "threads", bars);
  }
  if (bars.empty()) bars.push_back({.what = "a pair of GPUs with NVLink between them", .pair = "", .measured = false});
  return bars;
}

Json to_json(const std::vector<Bar>& bars) {
  Json json;
  json["passed"] = std::none_of(bars.begin(), bars.end(), [](const Bar& b) { return b.missed(); });
  json["bars"] = Json::array();
  json["missed"] = json["undecided"] = Json::array();
  for (const Bar& b : bars) {
    json["bars"].push_back({{"bar", b.what},
                            {"pair", b.pair},
                            {"value", b.value},
                            {"limit", b.limit},
                            {"at_least", b.at_least},
                            {"measured", b.measured},
                            {"met", b.met()}});
    if (b.missed()) json["missed"].push_back(b.to_string());
    if (!b.undecided.empty()) json["undecided"].push_back(b.to_string());
  }
  return json;
}

}  // namespace plait::bench
