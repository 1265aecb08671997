#include "bench/p2p_benchmark.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "bench/bench_ranks.h"
#include "bench/sizes.h"
#include "core/terminal.h"
#include "core/text_table.h"

namespace plait::bench {
namespace {

using Json = nlohmann::ordered_json;

std::string text(const Json& json, const char* key) { return json.at(key).get<std::string>(); }
double number(const Json& json, const char* key) { return json.at(key).get<double>(); }

std::string pair_name(const Json& pair) { return fmt::format("{} -> {}", pair["from"].get<int>(), pair["to"].get<int>()); }

std::string ratio(const Json& result) {
  return result.contains("vs_nccl") ? fmt::format("{:.2f}", number(result, "vs_nccl")) : "-";
}

std::string of_nominal(const Json& result) {
  return result.contains("of_nominal") ? fmt::format("{:.0f} %", 100 * number(result, "of_nominal")) : "-";
}

// "NV18" for "NV18 (switch)", "memory" for "same memory"
std::string short_link(const std::string& link) {
  return link.ends_with(')') ? link.substr(0, link.find(' ')) : link.substr(link.rfind(' ') + 1);
}

// The pair's problems, a line each.
std::string warnings(const Json& pair, int width) {
  std::string out;
  for (const char* const key : {"warning", "slow"}) {
    if (pair.contains(key)) out += folded(text(pair, key), width, 4) + "\n";
  }
  if (!pair.contains("pcie")) return out;
  for (const auto& [end, speed] : pair["pcie"].items()) {
    if (speed.contains("trained_down"))
      out += folded(fmt::format("warning: rank {}: {}", pair[end].get<int>(), text(speed, "trained_down")), width, 4) + "\n";
  }
  return out;
}

// Methods without results, grouped by reason: "vmm, ipc: for GPUs only".
std::string unavailable_methods(const Json& pair, const std::string& library, int width) {
  std::vector<std::pair<std::string, std::string>> reasons;  // reason and its methods, in their order
  for (const Json& method : pair["methods"]) {
    if (!method["results"].empty()) continue;
    const std::string why = method.contains("reason") ? text(method, "reason") : "nothing measured";
    const std::string mover = text(method, "mover");
    const std::string name = transport_name(method, library) + (mover == "-" ? "" : " by " + mover);
    const auto known = std::ranges::find(reasons, why, &std::pair<std::string, std::string>::first);
    if (known == reasons.end()) {
      reasons.emplace_back(why, name);
    } else {
      known->second += ", " + name;
    }
  }
  std::string out;
  for (const auto& [why, methods] : reasons) out += folded(methods + ": " + why, width, 4) + "\n";
  return out;
}

std::string methods_in_full(const Json& pair, const std::string& library, int width) {
  TextTable table({{"transport", Align::left},
                   {"mover", Align::left},
                   {"size"},
                   {"one way us"},
                   {"one way GB/s"},
                   {"both ways GB/s"},
                   {"latency us"},
                   {"x " + library},
                   {"of nominal"}});
  for (const Json& method : pair["methods"]) {
    for (const Json& r : method["results"]) {
      table.add({transport_name(method, library), text(method, "mover"), format_size(r["bytes"].get<std::size_t>()),
                 fmt::format("{:.2f}", number(r, "microseconds")), fmt::format("{:.2f}", number(r, "gb_per_s")),
                 fmt::format("{:.2f}", number(r, "both_ways_gb_per_s")),
                 fmt::format("{:.2f}", number(r, "latency_microseconds")), ratio(r), of_nominal(r)});
    }
  }
  return table.text(width);
}

std::string methods_in_brief(const Json& pair, const std::string& library, int width) {
  TextTable table({{"transport", Align::left},
                   {"mover", Align::left},
                   {"most GB/s"},
                   {"at"},
                   {"x " + library},
                   {"both ways"},
                   {"us"},
                   {"for"},
                   {"latency us"}});
  for (const Json& method : pair["methods"]) {
    const Json& results = method["results"];
    if (results.empty()) continue;
    const auto best = [&](const char* key) {
      return *std::max_element(results.begin(), results.end(),
                               [&](const Json& a, const Json& b) { return number(a, key) < number(b, key); });
    };
    const Json fastest = best("gb_per_s"), both = best("both_ways_gb_per_s"), &smallest = results.front();
    table.add({transport_name(method, library), text(method, "mover"), fmt::format("{:.1f}", number(fastest, "gb_per_s")),
               format_size(fastest["bytes"].get<std::size_t>()), ratio(fastest),
               fmt::format("{:.1f}", number(both, "both_ways_gb_per_s")),
               fmt::format("{:.2f}", number(smallest, "microseconds")), format_size(smallest["bytes"].get<std::size_t>()),
               fmt::format("{:.2f}", number(smallest, "latency_microseconds"))});
  }
  return table.text(width);
}

std::string slowdown(const Json& row, const std::string& end) {
  const auto percent = [&](const char* key) { return 100 * number(row, (end + "_slowdown" + key).c_str()); };
  return fmt::format("{:.1f} % ({:.1f} to {:.1f})", percent(""), percent("_min"), percent("_max"));
}

std::string products(const Json& pair, const std::string& library, int width) {
  if (!pair.contains("products") || !pair["products"].contains("beside") || pair["products"]["beside"].empty()) return "";
  const Json& p = pair["products"];
  TextTable table({{"transport", Align::left},
                   {"mover", Align::left},
                   {"size"},
                   {"end", Align::left},
                   {"TFLOP/s"},
                   {"slowdown"},
                   {"messages", Align::left}});
  std::size_t size = 0;
  for (const Json& row : p["beside"]) {
    const auto rate = [](const Json& of, const char* key) { return fmt::format("{:.3f}", number(of, key)); };
    if (row["message_bytes"].get<std::size_t>() != size) {
      size = row["message_bytes"].get<std::size_t>();
      const Json &alone = row["alone_tflops"], &noise = row["noise"];
      const auto spread = [&](const char* end) { return fmt::format("noise {:.1f} %", 100 * number(noise, end)); };
      table.add({"alone", "", "", "sender", rate(alone, "from"), spread("from")});
      table.add({"", "", "", "receiver", rate(alone, "to"), spread("to")});
    }
    std::string messages =
        fmt::format("{:.1f} messages per product, {:.1f} GB/s of {:.1f} possible beside products",
                    number(row, "messages_per_product"), number(row, "message_gb_per_s"), number(row, "most_gb_per_s"));
    if (!row["equal_load"].get<bool>()) messages += "; fewer than the others, so not comparable";
    if (number(row, "arrived") < 0.9)
      messages += fmt::format("; only {:.0f} % of them arrived while products ran", 100 * number(row, "arrived"));
    table.add({transport_name(row, library), text(row, "mover"), format_size(size), "sender", rate(row, "from_tflops"),
               slowdown(row, "from")});
    table.add({"", "", "", "receiver", rate(row, "to_tflops"), slowdown(row, "to"), messages});
  }
  return folded(fmt::format("products of {0} x {0} x {0} in {1} beside messages {2}, with the slowdown of all rounds",
                            p["dim"].get<int>(), text(p, "dtype"), pair_name(pair)),
                width, 4) +
         "\n" + table.text(width);
}

}  // namespace

std::string before_after_table(const Json& result, int width) {
  const auto sizes = result["sizes"].get<std::vector<std::size_t>>();
  std::string out =
      head_text(result) + fmt::format("; medians of {} rounds: latency of {}, rate of {}\n\n", result["rounds"].get<int>(),
                                      format_size(sizes.front()), format_size(sizes.back()));
  constexpr const char* line = "{:<8} {:<7}  {:>7} {:>7}  {:<6} {:>7} {:>7}  {:>5} {:>6}  {:>7}\n";
  out += fmt::format("{:<16}  {:^15}  {:^22}  {:^12}  {:>7}\n", "", "without", "with peer access", "ratio", "of");
  out += fmt::format(fmt::runtime(line), "pair", "link", "us", "GB/s", "by", "us", "GB/s", "us", "GB/s", "nominal");
  std::string notes;
  for (const Json& pair : result["pairs"]) {
    const Json& sides = pair["before_after"];
    const auto cell = [&](const char* side, const char* key, int digits) {
      return sides.contains(side) ? fmt::format("{:.{}f}", number(sides[side], key), digits) : "-";
    };
    const auto factor = [&](const char* key) { return sides.contains(key) ? fmt::format("{:.1f}x", number(sides, key)) : "-"; };
    const bool has_nominal = pair.contains("nominal_gb_per_s") && sides.contains("with");
    out += fmt::format(
        fmt::runtime(line), pair_name(pair), short_link(text(pair, "link")), cell("without", "latency_microseconds", 2),
        cell("without", "gb_per_s", 2), sides.contains("with") ? text(sides["with"], "transport") : "-",
        cell("with", "latency_microseconds", 2), cell("with", "gb_per_s", 2), factor("latency_ratio"), factor("rate_ratio"),
        has_nominal ? fmt::format("{:.0f} %", 100 * number(sides["with"], "gb_per_s") / number(pair, "nominal_gb_per_s"))
                    : "-");
    if (pair.contains("plain_copy"))
      notes += fmt::format("{}: a plain copy before anything enabled peer access: {:.1f} GB/s\n", pair_name(pair),
                           number(pair["plain_copy"], "gb_per_s"));
    notes += warnings(pair, width);
  }
  return out + notes;
}

std::string p2p_table(const Json& result, bool brief, int width) {
  const std::string library = library_name(result);
  std::string out =
      folded(head_text(result) + fmt::format(" beside; times are of streams, medians of {} rounds; GB/s = 10^9 bytes "
                                             "per second, 1 KB = 1024 bytes",
                                             result["rounds"].get<int>()),
             width, 4) +
      "\n";
  for (const Json& pair : result["pairs"]) {
    out += fmt::format("\n{}, {}\n", pair_name(pair), text(pair, "link"));
    out += brief ? methods_in_brief(pair, library, width) : methods_in_full(pair, library, width);
    out += unavailable_methods(pair, library, width);
    if (pair.contains("plain_copy")) {
      const Json& copy = pair["plain_copy"];
      out += folded(fmt::format("a plain copy of {} without peer access, before anything enabled it: {:.1f} GB/s",
                                format_size(copy["bytes"].get<std::size_t>()), number(copy, "gb_per_s")),
                    width, 4) +
             "\n";
    }
    out += warnings(pair, width);
    out += products(pair, library, width);
  }
  return out;
}

}  // namespace plait::bench
