// plait topo [--from FILE] [--measure] [--replicate N [--network rail|flat] [--network-gb-per-s X]] [--json]
#include <spdlog/fmt/fmt.h>

#include <iostream>
#include <map>
#include <memory>

#include "bench/pair_measurements.h"
#include "commands.h"
#include "core/cpu_binding.h"
#include "core/message.h"
#include "core/terminal.h"
#include "site/rank_binding.h"
#include "topology/assumed_topology.h"
#include "topology/describe.h"
#include "topology/discover.h"
#include "topology/gpu_path.h"
#include "topology/import.h"
#include "topology/topology_json.h"
#include "usage.h"

namespace plait {
namespace {

using namespace plait::topology;

struct TopoOptions {
  std::string from, network = "rail";
  int hosts = 0;
  double network_gb_per_s = 0;
  bool measure = false, json = false;
};

struct Topology {
  std::string source;
  Graph graph;
  Machine machine;
  std::vector<ImportWarning> warnings;
};

Topology read(const TopoOptions& o) {
  if (!o.from.empty()) {
    Imported imported = import_topology(o.from, GpusNeeded::no);
    return {o.from + " (" + imported.format + ")", std::move(imported.graph), std::move(imported.machine),
            std::move(imported.warnings)};
  }
  Discovered found = discover_live();
  Topology topology{"This machine", std::move(found.graph), std::move(found.machine), {}};
  if (!topology.machine.driver.empty()) topology.source += " (NVIDIA driver " + topology.machine.driver + ")";
  if (o.measure) bench::measure_pairs(topology.graph, message_to_stderr);
  return topology;
}

// "8 GPUs (sm90) on 1 host, 2 NUMA nodes, 8 NICs"
std::string counts(const Graph& graph) {
  std::map<std::string, int> models;
  std::map<int, int> hosts;
  int gpus = 0, numa_nodes = 0, nics = 0;
  for (const Node& node : graph.nodes) {
    if (node.host >= 0) ++hosts[node.host];
    numa_nodes += node.kind == NodeKind::numa;
    nics += node.kind == NodeKind::nic;
    if (node.kind != NodeKind::gpu) continue;
    ++gpus;
    ++models[node.model.empty() ? "model not known" : node.model];
  }
  const auto several = [](std::size_t n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); };
  std::string text = several(static_cast<std::size_t>(gpus), "GPU"), list;
  for (const auto& [model, count] : models)
    list += (list.empty() ? "" : ", ") + (models.size() > 1 ? std::to_string(count) + " " : "") + model;
  if (!list.empty()) text += " (" + list + ")";
  return text + " on " + several(hosts.size(), "host") + ", " + several(static_cast<std::size_t>(numa_nodes), "NUMA node") +
         ", " + several(static_cast<std::size_t>(nics), "NIC");
}

// The bindings of ranks on this machine's GPUs; GPUs that the driver has and this process does not see have none.
std::string ranks_here(const Graph& graph) {
  const std::size_t visible = cuda_gpus().size(), all = gpus_of(graph).size();
  if (all == 0) return "";
  std::vector<Device> devices;
  for (std::size_t i = 0; i < visible; ++i) devices.push_back({DeviceKind::cuda, static_cast<int>(i)});
  std::string text = "\nRanks\n", why;
  if (visible > 0)
    text += "  " + site::binding_text(devices, RankBinding::automatic) + "\n";
  else
    cuda_device_count(&why);
  if (visible < all) {
    text += visible == 0
                ? "  none on GPUs: " + why + "\n"
                : fmt::format("  {} of {} GPUs are hidden from this process (CUDA_VISIBLE_DEVICES, or its container)\n",
                              all - visible, all);
  }
  return text;
}

void print(const TopoOptions& o, const Topology& topology) {
  const int width = terminal_width(stdout);
  std::string text =
      describe(topology.source + ": " + counts(topology.graph), topology.graph, topology.machine, topology.warnings, width);
  if (gpus_of(topology.graph).empty()) {
    std::string why;
    if (o.from.empty()) cuda_device_count(&why);
    text += "\nNo GPU" + (why.empty() ? std::string() : ": " + why) +
            "\n  Ranks run on CPUs, share NUMA nodes, are not bound, and pass messages through memory. Try a file: plait "
            "topo --from FILE\n";
  }
  if (o.from.empty()) text += ranks_here(topology.graph);
  std::cout << folded(text, width, 4);
}

}  // namespace

void add_topo_command(CLI::App& app, int& status) {
  auto o = std::make_shared<TopoOptions>();
  CLI::App* command =
      app.add_subcommand("topo", "Show what is connected to what, and how fast: this machine, or a topology from a file");
  auto* from = command
                   ->add_option("--from", o->from,
                                "Instead of this machine: NCCL's XML, the text of nvidia-smi topo -m, or plait's JSON")
                   ->type_name("FILE");
  command->add_flag("--measure", o->measure, "Measure bandwidth and latency of every pair of GPUs with plait's own messages")
      ->excludes(from);
  auto* replicate_option =
      command->add_option("--replicate", o->hosts, "Make a cluster of this many such hosts, with their NICs on a network")
          ->type_name("HOSTS")
          ->check(whole_number(o->hosts, 1));
  command
      ->add_option("--network", o->network,
                   "With --replicate: rail (the i-th NICs of all hosts share a switch) or flat (one switch)")
      ->capture_default_str()
      ->needs(replicate_option)
      ->check(CLI::IsMember({"rail", "flat"}));
  command
      ->add_option("--network-gb-per-s", o->network_gb_per_s,
                   "With --replicate: bandwidth of each NIC; default: what the host says")
      ->type_name("GB/s")
      ->needs(replicate_option)
      ->check(number_in(1e-6, max_gb_per_s));
  command->add_flag("--json", o->json, "One JSON document on stdout, which --from reads again");
  command->callback([o, &status] {
    Topology topology = read(*o);
    if (o->hosts > 0) {
      topology.graph = replicate(topology.graph, {o->hosts, network_shape_from(o->network, "--network"), o->network_gb_per_s});
      topology.source += ", " + std::to_string(o->hosts) + " times";
      // These describe one machine, and its nodes have other indices now.
      topology.machine.gpus.clear();
      topology.machine.peers.clear();
      topology.machine.findings.clear();
    }
    if (o->json) {
      for (const ImportWarning& warning : topology.warnings)
        message_to_stderr(fmt::format("{} (line {}): {}", o->from, warning.line, warning.message));
      std::cout << to_json_text(topology.graph, topology.machine);
    } else {
      print(*o, topology);
    }
    status = 0;
  });
}

}  // namespace plait
