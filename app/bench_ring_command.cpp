// plait bench ring [--messages N] [--min SIZE] [--max SIZE] [--json] [...]
#include <cstdio>
#include <iostream>
#include <memory>

#include "bench/ring_benchmark.h"
#include "bench_commands.h"
#include "core/message.h"
#include "core/terminal.h"
#include "core/units.h"
#include "usage.h"

namespace plait {
namespace {

struct RingOptions {
  bench::RingBenchmarkRequest request;
  std::string min = "1", max = "1M";
  double timeout_s = 60;
  bool json = false;
};

}  // namespace

void add_bench_ring_command(CLI::App& bench, int& status, int argc, char** argv) {
  CLI::App* ring = bench.add_subcommand(
      "ring",
      "Every rank sends messages of random sizes to the next, by each transport and mover, and compares every byte; status 3 "
      "when one is wrong. Rates in GB/s = 10^9 bytes per second");
  auto o = std::make_shared<RingOptions>();
  add_rank_options(*ring, o->request.ranks, o->timeout_s);
  add_method_options(*ring, o->request.filter);
  ring->add_option("--messages", o->request.messages, "Messages from each rank by each method")
      ->capture_default_str()
      ->check(whole_number(o->request.messages, 1));
  ring->add_option("--min", o->min, "Smallest message: 1K = 1024 bytes")->type_name("SIZE")->capture_default_str();
  ring->add_option("--max", o->max, "Largest message; each device must have memory for 128 of them")
      ->type_name("SIZE")
      ->capture_default_str();
  ring->add_option("--seed", o->request.seed, "Seed of sizes and contents")
      ->capture_default_str()
      ->check(whole_number(o->request.seed));
  ring->add_flag("--json", o->json, "One JSON document on stdout");
  ring->callback([o, &status, argc, argv] {
    o->request.min_bytes = bench::parse_bytes(o->min, "--min");
    o->request.max_bytes = bench::parse_bytes(o->max, "--max");
    o->request.ranks.timeout = milliseconds_of(o->timeout_s);
    o->request.argv.assign(argv, argv + argc);
    status = bench::benchmark_ring(
        o->request, {.result =
                         [&](const nlohmann::ordered_json& result) {
                           std::cout << (o->json ? result.dump(2) + "\n" : bench::ring_table(result, terminal_width(stdout)));
                         },
                     .note = message_to_stderr});
  });
}

}  // namespace plait
