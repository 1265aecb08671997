#include "train/bench/p2p_products.h"

#include <algorithm>

#include "core/error.h"
#include "train/bench/bench_ranks.h"
#include "train/bench/product_load.h"
#include "train/bench/statistics.h"

namespace plait::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr int product_count = 30;
constexpr double share = 0.8;  // of the products' time that the messages take by themselves

std::vector<std::size_t> sizes_for(const PairEnd& end) {
  constexpr std::size_t kilo = 1024, mega = kilo * kilo;
  std::vector<std::size_t> sizes = end.device().is_cuda() ? std::vector{16 * mega, 64 * mega} : std::vector{64 * kilo, 256 * kilo};
  std::erase_if(sizes, [&](std::size_t bytes) { return bytes > end.spec().largest_bytes; });
  return sizes;
}

struct Rates {
  double products_us = 0;  // all of them, on this end
  double messages_us = 0;  // all of them, on this end; 0 without messages
};

class ProductBench {
 public:
  ProductBench(PairEnd& end, std::int64_t dim)
      : end_(end),
        load_(end.memory(), dim > 0 ? dim : ProductLoad::default_dim(end.device().kind)),
        compute_(end.device()) {
    load_.synchronize_warm_up(compute_);
  }

  const ProductLoad& load() const { return load_; }

  // `pace`: the method whose link brings both ends together.
  Rates synchronize_run(const PairMethod& pace, const PairMethod* method, std::size_t bytes, int messages) {
    end_.begin_case();
    const Device device = end_.device();
    Event met(device), start(device, EventTiming::on), stop(device, EventTiming::on);
    Event first(device, EventTiming::on), last(device, EventTiming::on);
    const std::size_t word = std::min<std::size_t>(1024, end_.spec().largest_bytes);
    const StreamRef out = end_.out(), in = end_.in(), compute = compute_.ref();
    // A message there and one back, and nobody begins before.
    if (end_.is_from()) {
      end_.send(pace, word, 0);
      end_.receive(pace, word, 0);
      in.record(met);
      out.wait(met);
    } else {
      end_.receive(pace, word, 0);
      in.record(met);
      out.wait(met);
      end_.send(pace, word, 0);
      out.record(met);
    }
    compute.wait(met);
    compute.record(start);
    for (int i = 0; i < product_count; ++i) load_.enqueue(compute);
    compute.record(stop);
    const StreamRef messages_on = end_.is_from() ? out : in;
    messages_on.record(first);
    for (int i = 1; i <= messages; ++i) {
      if (end_.is_from()) {
        end_.send(*method, bytes, i);
      } else {
        end_.receive(*method, bytes, i);
      }
    }
    messages_on.record(last);
    const std::string what = end_.label(method ? *method : pace, bytes) + ", beside products";
    synchronize_within(stop, end_.spec().timeout, what);
    synchronize_within(last, end_.spec().timeout, what);
    if (messages > 1 && !end_.is_from()) {
      end_.check(*method, bytes, messages);
      end_.check(*method, bytes, messages - 1);
    }
    return {1e3 * static_cast<double>(elapsed_ms(start, stop)), messages > 0 ? 1e3 * static_cast<double>(elapsed_ms(first, last)) : 0};
  }

 private:
  PairEnd& end_;
  ProductLoad load_;
  Stream compute_;  // after the memory of the products: drained before that is freed
};

// What both ends measured: median over rounds.
struct Medians {
  double from_us = 0, to_us = 0, messages_us = 0;
};

Medians medians(PairEnd& end, const std::string& name, const std::vector<Rates>& rounds) {
  std::vector<double> products, messages;
  for (const Rates& rates : rounds) {
    products.push_back(rates.products_us);
    messages.push_back(rates.messages_us);
  }
  const Json other = Json::parse(end.swap(name, Json{{"products", median(products)}, {"messages", median(messages)}}.dump()));
  const double own_us = median(products), other_us = other.at("products").get<double>();
  return {end.is_from() ? own_us : other_us, end.is_from() ? other_us : own_us, std::max(median(messages), other.at("messages").get<double>())};
}

// How many messages there are beside the products; decided where messages arrive, by `reference`.
int message_count(PairEnd& end, const std::string& name, const PairMethod& reference, std::size_t bytes, double products_us) {
  double one_us = 0;
  for (int i = 0; i < 2; ++i) one_us = end.synchronize_one_way(reference, {.bytes = bytes, .messages = 8, .check = false});
  const int own = end.is_from() ? 0 : std::clamp(static_cast<int>(share * products_us / one_us), 2, 10'000);
  const int other = std::stoi(end.swap(name, std::to_string(own)));
  return end.is_from() ? other : own;
}

Json measure_size(PairEnd& end, ProductBench& bench, const std::vector<const PairMethod*>& methods, const PairMethod& reference,
                  std::size_t bytes, int rounds) {
  const std::string name = "products/" + std::to_string(bytes);
  const Rates before = bench.synchronize_run(reference, nullptr, bytes, 0);
  const int messages = message_count(end, name + "/count", reference, bytes, before.products_us);
  std::vector<Rates> by_themselves;
  std::vector<std::vector<Rates>> beside(methods.size());
  for (int round = 0; round < rounds; ++round) {
    by_themselves.push_back(bench.synchronize_run(reference, nullptr, bytes, 0));
    for (std::size_t k = 0; k < methods.size(); ++k) {
      const std::size_t m = (k + static_cast<std::size_t>(round)) % methods.size();
      beside[m].push_back(bench.synchronize_run(reference, methods[m], bytes, messages));
    }
  }
  const Medians alone = medians(end, name + "/alone", by_themselves);
  const auto tflops = [&](double us) { return bench.load().flops() * product_count / us / 1e6; };
  Json rows = Json::array();
  for (std::size_t m = 0; m < methods.size(); ++m) {
    const Medians found = medians(end, name + "/" + methods[m]->method.name(), beside[m]);
    Json row;
    row["transport"] = methods[m]->method.transport_text();
    row["mover"] = methods[m]->method.mover_text();
    row["message_bytes"] = bytes;
    row["messages"] = messages;
    row["from_tflops"] = tflops(found.from_us);
    row["to_tflops"] = tflops(found.to_us);
    row["from_slowdown"] = 1 - alone.from_us / found.from_us;
    row["to_slowdown"] = 1 - alone.to_us / found.to_us;
    row["message_gb_per_s"] = gb_per_s(static_cast<double>(bytes) * messages, found.messages_us);
    // Above 1: the messages outlasted the products, which then had fewer of them beside.
    row["covered"] = found.messages_us / std::max(found.from_us, found.to_us);
    row["alone_tflops"] = {{"from", tflops(alone.from_us)}, {"to", tflops(alone.to_us)}};
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

Json measure_products(PairEnd& end, std::int64_t dim, int rounds) {
  std::vector<const PairMethod*> methods;
  for (const PairMethod& method : end.methods()) {
    if (method.out) methods.push_back(&method);
  }
  Json json;
  if (methods.empty()) return json;
  // The library's, which comes last, or what comes in its place where it was not asked for.
  const PairMethod& reference = *methods.back();
  ProductBench bench(end, dim);
  json["dim"] = bench.load().dim();
  json["dtype"] = std::string(to_string(bench.load().dtype()));
  json["products"] = product_count;
  json["beside"] = Json::array();
  try {
    for (const std::size_t bytes : sizes_for(end)) {
      for (Json& row : measure_size(end, bench, methods, reference, bytes, rounds)) json["beside"].push_back(std::move(row));
    }
  } catch (...) {
    end.abort();
    throw;
  }
  return json;
}

}  // namespace plait::train
