// plait bench p2p [--pairs 0-1,...] [--min SIZE --max SIZE | --sizes SIZE,...] [--brief] [--json] [...]
#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <cstdio>
#include <iostream>
#include <memory>

#include "bench/concurrent_benchmark.h"
#include "bench/p2p_benchmark.h"
#include "bench_commands.h"
#include "core/error.h"
#include "core/message.h"
#include "core/terminal.h"
#include "core/units.h"
#include "usage.h"

namespace plait {
namespace {

struct P2pOptions {
  bench::P2pBenchmarkRequest request;
  std::vector<std::string> pairs;
  double timeout_s = 60;
  bool no_products = false, brief = false, json = false, concurrent = false;
};

void print(const P2pOptions& o, const nlohmann::ordered_json& result) {
  std::cout << (o.json                   ? result.dump(2) + '\n'
                : o.concurrent           ? bench::concurrent_table(result)
                : o.request.before_after ? bench::before_after_table(result, terminal_width(stdout))
                                         : bench::p2p_table(result, o.brief, terminal_width(stdout)));
}

int measure_concurrent(const P2pOptions& o, const bench::BenchOutput& output) {
  const bench::P2pBenchmarkRequest& p2p = o.request;
  if (p2p.sizes.sizes.size() > 1)
    throw ConfigError(
        {{"--sizes", fmt::format("{}", fmt::join(p2p.sizes.sizes, ",")), "must be one size with --concurrent", "", 0}});
  bench::ConcurrentBenchmarkRequest request;
  request.ranks = p2p.ranks;
  if (!p2p.sizes.sizes.empty()) request.bytes = bench::parse_bytes(p2p.sizes.sizes.front(), "--sizes");
  request.rounds = p2p.rounds;
  request.argv = p2p.argv;
  return bench::benchmark_concurrent(request, output);
}

}  // namespace

void add_bench_p2p_command(CLI::App& bench, int& status, int argc, char** argv) {
  CLI::App* p2p =
      bench.add_subcommand("p2p",
                           "Time messages between each pair of devices, by every transport and mover, beside the communication "
                           "library's. Rates in GB/s = 10^9 bytes per second, times in microseconds of stream time");
  auto o = std::make_shared<P2pOptions>();
  add_rank_options(*p2p, o->request.ranks, o->timeout_s);
  add_size_options(*p2p, o->request.sizes);
  add_method_options(*p2p, o->request.filter);
  p2p->add_option("--pairs", o->pairs, "Pairs of ranks, from-to: 0-1,1-0 (default: all, in both directions)")->delimiter(',');
  p2p->add_option("--rounds", o->request.rounds, "Rounds; every figure is their median")
      ->capture_default_str()
      ->check(whole_number(o->request.rounds, 1));
  p2p->add_flag("--no-products", o->no_products, "Skip the matrix products beside messages");
  p2p->add_option("--product-dim", o->request.product_dim, "Rows of the products' matrices; 0: 8192 on GPUs, 256 on CPUs")
      ->capture_default_str()
      ->check(whole_number(o->request.product_dim, 0));
  p2p->add_option("--product-rounds", o->request.product_rounds,
                  "Rounds of products beside messages; more rounds resolve smaller slowdowns; 0: --rounds")
      ->capture_default_str()
      ->check(whole_number(o->request.product_rounds, 0));
  p2p->add_flag(
      "--no-peer-access", o->request.filter.without_peer_access,
      "As if GPUs could not reach each other's memory (comm.peer_access: off): only the transports host and nccl, and "
      "NCCL is told so too");
  CLI::Option* const before_after = p2p->add_flag(
      "--before-after", o->request.before_after,
      "Only what peer access is worth: latency of 4 KB and rate of 256 MB of each pair, without and with it, and the ratio");
  p2p->add_flag("--concurrent", o->concurrent,
                "Only messages between all pairs at once, and across the middle (bisection), beside each pair alone")
      ->excludes(before_after)
      ->excludes("--pairs")
      ->excludes("--min")
      ->excludes("--max")
      ->excludes("--transports")
      ->excludes("--movers");
  p2p->add_flag("--brief", o->brief, "One line per pair and method");
  p2p->add_flag("--json", o->json, "One JSON document on stdout");
  p2p->callback([o, &status, argc, argv] {
    o->request.pairs = bench::parse_pairs(o->pairs);
    if (o->request.filter.without_peer_access) o->request.ranks.peer_access = PeerAccessUse::off;
    o->request.products = !o->no_products;
    o->request.ranks.timeout = milliseconds_of(o->timeout_s);
    o->request.argv.assign(argv, argv + argc);
    const bench::BenchOutput output{.result = [&](const nlohmann::ordered_json& result) { print(*o, result); },
                                    .note = message_to_stderr};
    status = o->concurrent ? measure_concurrent(*o, output) : bench::benchmark_p2p(o->request, output);
  });
}

}  // namespace plait
