#include "bench/p2p_table.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>

#include "bench/bench_ranks.h"
#include "bench/sizes.h"

namespace plait::bench {
namespace {

using Json = nlohmann::ordered_json;

std::string text(const Json& json, const char* key) { return json.at(key).get<std::string>(); }
double number(const Json& json, const char* key) { return json.at(key).get<double>(); }

std::string pair_name(const Json& pair) { return fmt::format("{} -> {}", pair["from"].get<int>(), pair["to"].get<int>()); }

std::string ratio(const Json& result) {
  return result.contains("vs_nccl") ? fmt::format("{:.2f}", number(result, "vs_nccl")) : "-";
}

std::string methods_in_full(const Json& pair) {
  std::string out = fmt::format("{:<8} {:<14} {:<9} {:<12} {:>8} {:>12} {:>9} {:>9} {:>12} {:>7}\n", "pair", "link",
                                "transport", "mover", "size", "one way us", "GB/s", "both ways", "latency us", "x NCCL");
  for (const Json& method : pair["methods"]) {
    if (!method["available"].get<bool>()) {
      out += fmt::format("{:<8} {:<14} {:<9} {:<12} {}\n", pair_name(pair), text(pair, "link"), text(method, "transport"),
                         text(method, "mover"), text(method, "reason"));
    }
    for (const Json& r : method["results"]) {
      out += fmt::format("{:<8} {:<14} {:<9} {:<12} {:>8} {:>12.2f} {:>9.2f} {:>9.2f} {:>12.2f} {:>7}\n", pair_name(pair),
                         text(pair, "link"), text(method, "transport"), text(method, "mover"),
                         format_size(r["bytes"].get<std::size_t>()), number(r, "microseconds"), number(r, "gb_per_s"),
                         number(r, "both_ways_gb_per_s"), number(r, "latency_microseconds"), ratio(r));
    }
  }
  return out;
}

std::string methods_in_brief(const Json& pair) {
  std::string out;
  for (const Json& method : pair["methods"]) {
    const std::string head = fmt::format("{:<8} {:<14} {:<9} {:<12} ", pair_name(pair), text(pair, "link"),
                                         text(method, "transport"), text(method, "mover"));
    const Json& results = method["results"];
    if (results.empty()) {
      out += head + (method.contains("reason") ? text(method, "reason") : "nothing measured") + "\n";
      continue;
    }
    const auto best = [&](const char* key) {
      return *std::max_element(results.begin(), results.end(),
                               [&](const Json& a, const Json& b) { return number(a, key) < number(b, key); });
    };
    const Json fastest = best("gb_per_s"), both = best("both_ways_gb_per_s"), &smallest = results.front();
    out += head +
           fmt::format("{:.1f} GB/s one way at {} ({} x NCCL), {:.1f} GB/s both ways, {:.2f} us for {} ({:.2f} us latency)\n",
                       number(fastest, "gb_per_s"), format_size(fastest["bytes"].get<std::size_t>()), ratio(fastest),
                       number(both, "both_ways_gb_per_s"), number(smallest, "microseconds"),
                       format_size(smallest["bytes"].get<std::size_t>()), number(smallest, "latency_microseconds"));
  }
  return out;
}

std::string slowdown(const Json& row, const std::string& end) {
  const auto percent = [&](const char* key) { return 100 * number(row, (end + "_slowdown" + key).c_str()); };
  return fmt::format("{:>5.1f} % {:<14}", percent(""), fmt::format("({:.1f} to {:.1f})", percent("_min"), percent("_max")));
}

std::string products(const Json& pair) {
  if (!pair.contains("products") || !pair["products"].contains("beside") || pair["products"]["beside"].empty()) return "";
  const Json& p = pair["products"];
  std::string out = fmt::format(
      "products of {0} x {0} x {0} in {1} beside messages {2}; TFLOP/s and slowdown (in all rounds) of the sender, of the "
      "receiver\n",
      p["dim"].get<int>(), text(p, "dtype"), pair_name(pair));
  std::size_t size = 0;
  for (const Json& row : p["beside"]) {
    if (row["message_bytes"].get<std::size_t>() != size) {
      size = row["message_bytes"].get<std::size_t>();
      const Json &alone = row["alone_tflops"], &noise = row["noise"];
      out += fmt::format("  {:<9} {:<12} {:>8} {:>9.3f} {:<22} {:>9.3f} {}\n", "alone", "", "", number(alone, "from"),
                         fmt::format("noise {:.1f} %", 100 * number(noise, "from")), number(alone, "to"),
                         fmt::format("noise {:.1f} %", 100 * number(noise, "to")));
    }
    out += fmt::format(
        "  {:<9} {:<12} {:>8} {:>9.3f} {} {:>9.3f} {} {:.1f} messages per product, {:.1f} GB/s of {:.1f} possible beside "
        "products",
        text(row, "transport"), text(row, "mover"), format_size(size), number(row, "from_tflops"), slowdown(row, "from"),
        number(row, "to_tflops"), slowdown(row, "to"), number(row, "messages_per_product"), number(row, "message_gb_per_s"),
        number(row, "most_gb_per_s"));
    if (!row["equal_load"].get<bool>()) out += "; fewer than the others, so not comparable";
    if (number(row, "arrived") < 0.9)
      out += fmt::format("; only {:.0f} % of them arrived while products ran", 100 * number(row, "arrived"));
    out += "\n";
  }
  return out;
}

}  // namespace

std::string p2p_table(const Json& result, bool brief) {
  std::string out =
      head_text(result) + fmt::format(
                              " beside; times are of streams, medians of {} rounds; GB/s = 10^9 bytes per second, 1 KB = 1024 "
                              "bytes\n",
                              result["rounds"].get<int>());
  for (const Json& pair : result["pairs"]) {
    out += "\n" + (brief ? methods_in_brief(pair) : methods_in_full(pair));
    if (pair.contains("plain_copy")) {
      const Json& copy = pair["plain_copy"];
      out += fmt::format("{:<8} a plain copy of {} without peer access, before anything enabled it: {:.1f} GB/s\n",
                         pair_name(pair), format_size(copy["bytes"].get<std::size_t>()), number(copy, "gb_per_s"));
    }
    if (pair.contains("warning")) out += text(pair, "warning") + "\n";
    out += products(pair);
  }
  return out;
}

}  // namespace plait::bench
