// plait bench collectives [--only all_reduce,...] [--type f32|bf16] [--min SIZE --max SIZE | --sizes SIZE,...] [--json] [...]
#include <cstdio>
#include <iostream>
#include <memory>

#include "bench/collectives_benchmark.h"
#include "bench_commands.h"
#include "core/error.h"
#include "core/message.h"
#include "core/terminal.h"
#include "core/units.h"
#include "usage.h"

namespace plait {
namespace {

struct CollectivesOptions {
  bench::CollectivesBenchmarkRequest request;
  std::vector<std::string> only;
  std::string type = "f32";
  double timeout_s = 60;
  bool json = false;
};

std::vector<bench::CollectiveKind> kinds(const std::vector<std::string>& names) {
  std::vector<bench::CollectiveKind> found;
  for (const std::string& name : names) {
    const auto kind = named<bench::CollectiveKind>(name);
    if (!kind) throw ConfigError({{"--only", name, "must be one of " + names_listed<bench::CollectiveKind>(", "), "", 0}});
    found.push_back(*kind);
  }
  return found.empty() ? bench::all_collectives() : found;
}

}  // namespace

void add_bench_collectives_command(CLI::App& bench, int& status, int argc, char** argv) {
  CLI::App* collectives = bench.add_subcommand(
      "collectives",
      "Time collectives among all ranks as nccl-tests counts them, and verify the results. Times in microseconds of stream "
      "time, algorithm and bus bandwidth in GB/s = 10^9 bytes per second");
  auto o = std::make_shared<CollectivesOptions>();
  add_rank_options(*collectives, o->request.ranks, o->timeout_s);
  add_size_options(*collectives, o->request.sizes);
  collectives->add_option("--only", o->only, "Only these of " + names_listed<bench::CollectiveKind>(", "))->delimiter(',');
  collectives->add_option("--type", o->type, "Element type")->capture_default_str()->check(CLI::IsMember({"f32", "bf16"}));
  collectives->add_option("--rounds", o->request.rounds, "Rounds; every time is their median")
      ->capture_default_str()
      ->check(whole_number(o->request.rounds, 1));
  collectives->add_option("--max-ctas", o->request.max_ctas, "NCCL: most thread blocks of a collective; 0: NCCL's choice")
      ->capture_default_str()
      ->check(whole_number(o->request.max_ctas, 0));
  collectives->add_flag("--json", o->json, "One JSON document on stdout");
  collectives->callback([o, &status, argc, argv] {
    o->request.kinds = kinds(o->only);
    o->request.dtype = dtype_from(o->type);
    o->request.ranks.timeout = milliseconds_of(o->timeout_s);
    o->request.argv.assign(argv, argv + argc);
    status = bench::benchmark_collectives(
        o->request,
        {.result =
             [&](const nlohmann::ordered_json& result) {
               std::cout << (o->json ? result.dump(2) + "\n" : bench::collectives_table(result, terminal_width(stdout)));
             },
         .note = message_to_stderr});
  });
}

}  // namespace plait
