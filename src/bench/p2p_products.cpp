#include "bench/p2p_products.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>

#include "bench/bench_ranks.h"
#include "bench/pattern.h"
#include "bench/sizes.h"
#include "core/error.h"
#include "core/philox.h"
#include "core/statistics.h"
#include "ops/linear.h"

namespace plait::bench {
namespace {

// The load must still fit if the run is slower than the trial.
constexpr double headroom = 0.9;

int load(int carried) { return std::max(2, static_cast<int>(headroom * carried)); }

// Normal numbers, repeated with a period that no row has: a chip's power, and so its clock, depends on the data.
Pattern random_numbers(DType dtype, std::string_view name) {
  constexpr std::size_t count = 262'147;  // a prime
  std::vector<float> values(count);
  Random(1, name).fill_normal(0, values);
  std::vector<std::byte> block(count * size_of(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    if (dtype == DType::bf16) {
      const BFloat16 value(values[i]);
      std::memcpy(block.data() + 2 * i, &value, 2);
    } else {
      std::memcpy(block.data() + 4 * i, &values[i], 4);
    }
  }
  return Pattern(std::move(block));
}

using Json = nlohmann::ordered_json;
using Methods = std::vector<const PairMethod*>;

constexpr int lead_products = 10, timed_products = 30, all_products = lead_products + timed_products;
constexpr std::chrono::milliseconds gpu_warm_up{500};  // a CPU's clock does not react to one thread's products
constexpr int most_messages = 100 * all_products;

std::vector<std::size_t> sizes_for(const PairEnd& end) {
  std::vector<std::size_t> sizes =
      end.device().is_cuda() ? std::vector{16 * mega, 64 * mega} : std::vector{64 * kilo, 256 * kilo};
  std::erase_if(sizes, [&](std::size_t bytes) { return bytes > end.spec().largest_bytes; });
  return sizes;
}

// One run on this end.
struct Run {
  double products_us = 0;    // the timed ones
  int arrived = 0;           // messages that had passed this end when the last product finished
  int arrived_in_timed = 0;  // the part of these that arrived while products were timed
};

constexpr record::Many<record::AnyValue> any_number_of_runs = record::at_most(1 << 24);

// By the order of the runs.
struct Sequence {
  std::vector<double> alone_us, beside_us;
  std::vector<int> arrived, arrived_in_timed;  // of the runs during messages
};

void declare(auto& field, Of<Sequence> auto& s) {
  field("alone_us", s.alone_us, any_number_of_runs);
  field("beside_us", s.beside_us, any_number_of_runs);
  field("arrived", s.arrived, any_number_of_runs);
  field("arrived_in_timed", s.arrived_in_timed, any_number_of_runs);
}

class ProductBench {
 public:
  ProductBench(PairEnd& end, std::int64_t dim)
      : end_(end),
        load_(end.memory(), dim > 0 ? dim : ProductLoad::default_dim(end.device().kind)),
        compute_(end.compute()),
        met_(end.device()),
        start_(end.device(), EventTiming::on),
        stop_(end.device(), EventTiming::on) {
    for (int p = 0; p < all_products; ++p) {
      begun_.emplace_back(end.device());
      passed_.emplace_back(end.device(), EventTiming::on);
    }
    load_.synchronize_warm_up(compute_);
  }

  ProductBench(const ProductBench&) = delete;
  ProductBench& operator=(const ProductBench&) = delete;
  ~ProductBench() { runtime::synchronize_aborted(compute_); }  // before the memory of the products is freed

  const ProductLoad& load() const { return load_; }

  // Runs until the clock is where products alone bring it.
  void synchronize_warm_up() {
    if (!end_.device().is_cuda()) return;
    const auto until = std::chrono::steady_clock::now() + gpu_warm_up;
    while (std::chrono::steady_clock::now() < until) {
      for (int p = 0; p < all_products; ++p) load_.enqueue(compute_);
      compute_.synchronize();
    }
  }

  // Products during `messages` messages by `method`, or alone without one. `pace`: the method whose link synchronizes both
  // ends.
  Run synchronize_run(const PairMethod& pace, const PairMethod* method, std::size_t bytes, int messages) {
    end_.begin_case();
    meet(pace);
    // All products come first: the thread may have to wait for room in the queue of messages, and products must not wait for
    // it.
    for (int p = 0; p < all_products; ++p) {
      if (p == lead_products) compute_.record(start_);
      compute_.record(begun_[static_cast<std::size_t>(p)]);
      load_.enqueue(compute_);
    }
    compute_.record(stop_);
    const StreamRef stream = end_.is_from() ? end_.out() : end_.in();
    int message = 0;
    // Both ends pace themselves: a waiting receive takes SMs in some methods, and this waiting should not be compared.
    for (int p = 0; p < all_products && messages > 0; ++p) {
      stream.wait(begun_[static_cast<std::size_t>(p)]);
      for (; message < messages && product_of(message, messages, all_products) == p; ++message) {
        if (end_.is_from()) {
          end_.send(*method, bytes, message + 1);
        } else {
          end_.receive(*method, bytes, message + 1);
        }
      }
      stream.record(passed_[static_cast<std::size_t>(p)]);
    }
    const std::string what = end_.label(method ? *method : pace, bytes) + ", beside products";
    synchronize_within(stop_, end_.spec().timeout, what);
    if (messages > 0) synchronize_within(passed_.back(), end_.spec().timeout, what);
    return result(messages);
  }

  // Compares the latest run's messages that are still there, on the receiving end.
  void check(const PairMethod& method, std::size_t bytes, int messages) {
    if (end_.is_from()) return;
    end_.check(method, bytes, messages);
    end_.check(method, bytes, messages - 1);
  }

 private:
  // Sends a message and an answer, so that neither end begins early.
  void meet(const PairMethod& pace) {
    const std::size_t word = std::min<std::size_t>(1024, end_.spec().largest_bytes);
    const StreamRef out = end_.out(), in = end_.in();
    if (end_.is_from()) {
      end_.send(pace, word, 0);
      end_.receive(pace, word, 0);
      in.record(met_);
      out.wait(met_);
    } else {
      end_.receive(pace, word, 0);
      in.record(met_);
      out.wait(met_);
      end_.send(pace, word, 0);
      out.record(met_);
    }
    compute_.wait(met_);
  }

  Run result(int messages) const {
    Run run{.products_us = 1e3 * static_cast<double>(elapsed_ms(start_, stop_))};
    for (int message = 0; message < messages; ++message) {
      const Event& passed = passed_[static_cast<std::size_t>(product_of(message, messages, all_products))];
      if (elapsed_ms(passed, stop_) < 0) break;  // events complete in order
      ++run.arrived;
      if (elapsed_ms(start_, passed) > 0) ++run.arrived_in_timed;
    }
    return run;
  }

  PairEnd& end_;
  ProductLoad load_;
  StreamRef compute_;
  Event met_, start_, stop_;
  std::vector<Event> begun_;   // product p is about to run
  std::vector<Event> passed_;  // the messages that may leave with product p have passed this end
};

// A method's own rate during products.
struct Trial {
  int arrived = 0;
  double gb_per_s = 0;
};

void declare(auto& field, Of<Trial> auto& trial) {
  field("arrived", trial.arrived, record::whole(0, most_messages));
  field("gb_per_s", trial.gb_per_s);
}

// The comparison at one size.
class Comparison {
 public:
  Comparison(PairEnd& end, ProductBench& bench, const Methods& methods, std::size_t bytes, int rounds)
      : end_(end),
        bench_(bench),
        methods_(methods),
        bytes_(bytes),
        rounds_(static_cast<std::size_t>(rounds)),
        pace_(*methods.back()) {}

  Json synchronize_rows() {
    find_loads();
    bench_.synchronize_warm_up();
    Sequence own = synchronize_sequence();
    Sequence other = end_.swap(name("runs"), own);
    const std::size_t runs = own.beside_us.size();
    if (other.beside_us.size() != runs || other.alone_us.size() != runs + 1 || other.arrived.size() != runs ||
        other.arrived_in_timed.size() != runs) {
      end_.refuse(name("runs"), "it has other runs");
    }
    if (!end_.is_from()) std::swap(own, other);
    Json rows = Json::array();
    for (std::size_t m = 0; m < methods_.size(); ++m) rows.push_back(row(m, own, other));
    return rows;
  }

 private:
  std::string name(const std::string& what) const { return "products/" + std::to_string(bytes_) + "/" + what; }
  std::size_t method_at(std::size_t run) const { return (run % methods_.size() + run / methods_.size()) % methods_.size(); }

  // A trial of each method: offers as many messages during products as it can move by itself.
  void find_loads() {
    const double timed_us = bench_.synchronize_run(pace_, nullptr, bytes_, 0).products_us;
    std::optional<std::size_t> library;
    std::vector<int> carried;
    for (std::size_t m = 0; m < methods_.size(); ++m) {
      if (methods_[m]->method.transport == Transport::nccl) library = m;
      const int offered = agree_on_offer(*methods_[m], timed_us);
      const Run run = bench_.synchronize_run(pace_, methods_[m], bytes_, offered);
      bench_.check(*methods_[m], bytes_, offered);
      const Trial own{run.arrived, rate(run.arrived_in_timed, run.products_us)};
      const Trial other = end_.swap(name(methods_[m]->method.name() + "/trial"), own);
      carried.push_back(std::min(own.arrived, other.arrived));
      most_gb_per_s_.push_back((end_.is_from() ? other : own).gb_per_s);
    }
    loads_ = message_loads(carried, library);
  }

  // The receiving end decides.
  int agree_on_offer(const PairMethod& method, double timed_us) {
    double one_us = 0;
    for (int i = 0; i < 2; ++i) one_us = end_.synchronize_one_way(method, {.bytes = bytes_, .messages = 8, .check = false});
    const double products_us = timed_us * all_products / timed_products;
    const int own =
        end_.is_from() ? 0 : static_cast<int>(std::clamp(products_us / one_us, 2.0, static_cast<double>(most_messages)));
    const std::string topic = name(method.method.name() + "/offer");
    const int other = end_.swap(topic, own);
    if (other < 0 || other > most_messages) end_.refuse(topic, std::to_string(other) + " messages");
    return end_.is_from() ? other : own;
  }

  Sequence synchronize_sequence() {
    Sequence s;
    s.alone_us.push_back(bench_.synchronize_run(pace_, nullptr, bytes_, 0).products_us);
    for (std::size_t i = 0; i < rounds_ * methods_.size(); ++i) {
      const std::size_t m = method_at(i);
      const Run run = bench_.synchronize_run(pace_, methods_[m], bytes_, loads_[m]);
      s.beside_us.push_back(run.products_us);
      s.arrived.push_back(run.arrived);
      s.arrived_in_timed.push_back(run.arrived_in_timed);
      s.alone_us.push_back(bench_.synchronize_run(pace_, nullptr, bytes_, 0).products_us);
    }
    return s;
  }

  double rate(int messages, double microseconds) const {
    return gb_per_s(static_cast<double>(bytes_) * messages, microseconds);
  }
  double tflops(double microseconds) const { return bench_.load().flops() * timed_products / microseconds / 1e6; }

  void add_end(Json& row, const std::string& end, std::size_t m, const Sequence& s) const {
    const PairedTimes times{s.alone_us, s.beside_us};
    std::vector<double> rates, rates_alone, slowdowns;
    for (std::size_t i = 0; i < s.beside_us.size(); ++i) {
      if (method_at(i) != m) continue;
      rates.push_back(tflops(s.beside_us[i]));
      rates_alone.push_back(tflops(time_alone(times, i)));
      slowdowns.push_back(slowdown(times, i));
    }
    const Spread lost = spread(slowdowns);
    row[end + "_tflops"] = median(rates);
    row[end + "_slowdown"] = lost.median;
    row[end + "_slowdown_min"] = lost.least;
    row[end + "_slowdown_max"] = lost.most;
    row["alone_tflops"][end] = median(rates_alone);
    row["noise"][end] = noise(s.alone_us, static_cast<int>(rounds_));
  }

  Json row(std::size_t m, const Sequence& from, const Sequence& to) const {
    Json row;
    row["transport"] = methods_[m]->method.transport_text();
    row["mover"] = methods_[m]->method.mover_text();
    row["message_bytes"] = bytes_;
    row["messages"] = loads_[m];
    row["messages_per_product"] = static_cast<double>(loads_[m]) / all_products;
    row["equal_load"] = loads_[m] == *std::max_element(loads_.begin(), loads_.end());
    add_end(row, "from", m, from);
    add_end(row, "to", m, to);
    std::vector<double> rates, arrived;
    for (std::size_t i = 0; i < to.beside_us.size(); ++i) {
      if (method_at(i) != m) continue;
      rates.push_back(rate(to.arrived_in_timed[i], to.beside_us[i]));
      arrived.push_back(static_cast<double>(to.arrived[i]) / loads_[m]);
    }
    row["message_gb_per_s"] = median(rates);
    row["arrived"] = median(arrived);
    row["most_gb_per_s"] = most_gb_per_s_[m];
    return row;
  }

  PairEnd& end_;
  ProductBench& bench_;
  const Methods& methods_;
  const std::size_t bytes_, rounds_;
  const PairMethod& pace_;
  std::vector<int> loads_;  // by method, like the next
  std::vector<double> most_gb_per_s_;
};

}  // namespace

std::vector<int> message_loads(const std::vector<int>& carried, std::optional<std::size_t> reference) {
  require(!carried.empty() && reference.value_or(0) < carried.size(), "message_loads: there is no such method");
  const int yardstick = reference ? carried[*reference] : *std::max_element(carried.begin(), carried.end());
  const auto compares = [&](int own) { return 2 * own >= yardstick; };
  int common = yardstick;
  for (const int own : carried) {
    if (compares(own)) common = std::min(common, own);
  }
  std::vector<int> loads;
  for (const int own : carried) loads.push_back(load(compares(own) ? common : std::min(own, common)));
  return loads;
}

int product_of(int message, int messages, int products) {
  return static_cast<int>(static_cast<std::int64_t>(message) * products / messages);
}

ProductLoad::ProductLoad(DeviceMemory& memory, std::int64_t dim)
    : dim_(dim), dtype_(memory.device().is_cuda() ? DType::bf16 : DType::f32), memory_(memory) {
  const std::size_t bytes = matrix({}).bytes();
  for (Buffer* buffer : {&x_, &w_, &y_}) *buffer = memory.allocate(bytes);
  const std::size_t needed = ops::workspace_bytes(memory.device().kind, {.attention = {}, .compute = dtype_});
  workspace_ = memory.allocate(needed);
  context_ = ops::make_op_context(memory.device(), {workspace_.data(), DType::u8, {static_cast<std::int64_t>(needed)}});
}

void ProductLoad::synchronize_warm_up(StreamRef stream) {
  PatternTraffic traffic(memory_);
  traffic.synchronize_fill(stream, random_numbers(dtype_, "x"), matrix(x_), 0);
  traffic.synchronize_fill(stream, random_numbers(dtype_, "w"), matrix(w_), 0);
  for (int i = 0; i < 3; ++i) enqueue(stream);
  stream.synchronize();
  context_->set_tuning(false);
}

void ProductLoad::enqueue(StreamRef stream) {
  ops::linear_forward(stream, *context_,
                      {.x = matrix(x_), .w = matrix(w_), .bias = {}, .residual = {}, .y = matrix(y_), .pre_activation = {}});
}

Json measure_products(PairEnd& end, std::int64_t dim, int rounds) {
  Methods methods;
  for (const PairMethod& method : end.methods()) {
    if (method.works()) methods.push_back(&method);
  }
  Json json;
  if (methods.empty()) return json;
  ProductBench bench(end, dim);
  json["dim"] = bench.load().dim();
  json["dtype"] = std::string(to_string(bench.load().dtype()));
  json["products"] = timed_products;
  json["rounds"] = rounds;
  json["beside"] = Json::array();
  end.run([&] {
    for (const std::size_t bytes : sizes_for(end)) {
      for (Json& row : Comparison(end, bench, methods, bytes, rounds).synchronize_rows())
        json["beside"].push_back(std::move(row));
    }
  });
  return json;
}

}  // namespace plait::bench
