#include "site/site_planning.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <set>
#include <thread>

#include "config/pair_transport.h"
#include "core/error.h"
#include "parallel/rank_plan.h"
#include "site/calibration_cache.h"
#include "site/devices.h"
#include "site/outside_launcher.h"
#include "site/rank_binding.h"
#include "topology/assumed_topology.h"
#include "topology/discover.h"
#include "topology/graph.h"
#include "topology/import.h"
#include "topology/nominal.h"

namespace plait::site {
namespace {

constexpr int gpus_of_host = 8;
constexpr const char* assumed_gpu = "H200";  // where there is none at hand

struct Place {
  topology::Graph graph;
  std::string words;
};

// The devices of this machine: all of them, if the plan is for GPUs that may be elsewhere.
DeviceChoice devices_at_hand(Config config, bool elsewhere) {
  if (elsewhere) config.launch.device = "auto";
  return choose_devices(config);
}

// True if the configuration leaves open how collectives travel.
bool leaves_way_open(const Config& config) {
  const CommConfig& comm = config.comm;
  const bool open = std::ranges::any_of(axis_table, [&](const AxisRow& row) {
    return row.way != WayKey::none && config.parallel.size[row.axis] != 1 && !comm.way_along(row.axis);
  });
  return open && comm.p2p.is_auto() && comm.p2p_pairs.empty() && comm.peer_access == PeerAccessUse::automatic;
}

class Planning {
 public:
  Planning(const Config& config, const PlanningWish& wish) : config_(config), wish_(wish) {
    topology_ = wish.topology.empty() ? config.placement.topology : wish.topology;
    const bool asks_for_gpus = wish.gpus > 0 || !wish.device.empty() || config.launch.device == "cuda";
    devices_ = devices_at_hand(config, !wish.runs_here && (asks_for_gpus || topology_ != "live"));
    from_file_ = topology_ != "live" && !(wish.runs_here && devices_.kind == DeviceKind::host);
    // Plans for GPUs if the user asked for them, or if the machine has them and the configuration does not forbid it.
    kind_ = asks_for_gpus || from_file_ ? DeviceKind::cuda : devices_.kind;
    if (!wish.device.empty() && topology::nominal_profile(wish.device).name == topology::nominal_profile("cpu").name) {
      if (!wish.topology.empty() && topology_ != "live")
        throw ConfigError(
            {{"--topology", wish.topology, "is of GPUs, and with --device cpu the plan is for CPUs: leave one out", "", 0}});
      kind_ = DeviceKind::host;
      from_file_ = false;
    }
    if (!wish.calibration.empty()) given_ = load_calibration(wish.calibration);
    live_ = !from_file_ && !config.launch.may_share_devices() && wish.gpus == 0 && wish.device.empty() &&
            devices_.kind == DeviceKind::cuda;
    check_device_rules(config, kind_, fmt::format("this plan is for {}", kind_ == DeviceKind::cuda ? "GPUs" : "CPUs"));
  }

  JobSite site(std::int64_t vocab) {
    Place file;
    if (from_file_) {
      topology::Imported imported = topology::import_topology(topology_);
      file = {std::move(imported.graph), topology_};
      file.words += take_device_of(file.graph);
    }
    const int ranks = count_ranks(file.graph);
    Place place = from_file_ ? std::move(file) : (live_ ? live() : assumed(ranks));
    place.graph = without_links(std::move(place.graph));
    JobSite site{.machine = machine(vocab, ranks),
                 .fabric = std::make_shared<topology::Fabric>(std::move(place.graph)),
                 .kind = kind_,
                 .ranks = ranks,
                 .topology = place.words,
                 .placement = placement(),
                 .collectives = {}};
    if (launch_mode(config_) != LaunchMode::external) site.collectives = collective_way(config_, *site.fabric, kind_);
    return site;
  }

  SitedPlan run(parallel::Decision decision, std::int64_t vocab) {
    const JobSite here = site(vocab);
    SitedPlan result;
    result.machine = here.machine;
    result.kind = kind_;
    result.ranks = here.ranks;
    result.fabric = here.fabric;
    result.context.machine = result.machine.origin();
    result.context.topology = here.topology;
    if (kind_ == DeviceKind::cuda && config_.launch.may_share_devices())
      result.context.topology +=
          "; as if no ranks shared a GPU (launch.ranks_per_device): the times are not what the run takes";
    decision.collectives = here.collectives;
    result.job =
        plan_job(config_, decision, vocab, here.ranks, here.site(),
                 {.top = wish_.top, .placement = here.placement, .what_if = wish_.what_if, .progress = wish_.progress});
    for (const int gpu : result.job.best.placement.gpu_of_rank) {
      result.context.devices.push_back(kind_ == DeviceKind::cuda ? to_string(Device{kind_, gpu}) : to_string(Device{kind_, 0}));
    }
    if (kind_ == DeviceKind::cuda)
      result.context.cpu_binding = cpu_binding(*result.fabric, result.job.best.placement.gpu_of_rank);
    return result;
  }

 private:
  int count_ranks(const topology::Graph& file) const {
    if (wish_.gpus > 0) return wish_.gpus;
    if (const int fixed = fixed_ranks(config_); fixed > 0) return fixed;
    if (from_file_) return static_cast<int>(topology::gpus_of(file).size());
    if (kind_ == DeviceKind::cuda && devices_.kind == DeviceKind::cuda) return devices_.count;
    if (kind_ == DeviceKind::cuda)
      throw ConfigError("plan: this machine has no GPUs; say how many to plan for, with --gpus or launch.ranks");
    return static_cast<int>(std::max(2u, std::thread::hardware_concurrency()));
  }

  Place live() const { return {live_graph(devices_.count), "this machine"}; }

  // The pairs that comm.p2p, comm.p2p_pairs and comm.peer_access send through host memory: traffic over the job's own links
  // and, with the last setting, which the library obeys too, its collectives.
  topology::Graph without_links(topology::Graph graph) const {
    const CommConfig& comm = config_.comm;
    const bool all_of_it = comm.peer_access == PeerAccessUse::off;
    const bool links_reduce = comm.exchanges == CollectiveWay::links || comm.reductions == CollectiveWay::links;
    const std::vector<int> gpus = topology::gpus_of(graph);
    std::set<std::pair<int, int>> pairs;  // nodes, the lower first
    const auto host_of = [&](int gpu) { return graph.nodes[static_cast<std::size_t>(gpu)].host; };
    for (std::size_t b = 0; (all_of_it || comm.p2p == Transport::host) && b < gpus.size(); ++b) {
      for (std::size_t a = b; a > 0 && host_of(gpus[a - 1]) == host_of(gpus[b]); --a)
        pairs.insert(std::minmax(gpus[a - 1], gpus[b]));
    }
    // No relays if another transport is asked for.
    if (!comm.p2p.is_auto() && comm.p2p != Transport::relay) {
      for (const auto& [from, to] : graph.no_access) pairs.insert(std::minmax(from, to));
    }
    for (const std::string& text : comm.p2p_pairs) {
      const PairTransport pair = pair_transport(text).value();
      if (pair.b >= static_cast<int>(gpus.size())) {
        throw ConfigError({{"comm.p2p_pairs", text,
                            "names a GPU that does not exist; the topology has " + std::to_string(gpus.size()), "", 0}});
      }
      const int a = gpus[static_cast<std::size_t>(pair.a)], b = gpus[static_cast<std::size_t>(pair.b)];
      if (pair.transport == Transport::host && host_of(a) == host_of(b)) pairs.insert(std::minmax(a, b));
    }
    for (const auto& [a, b] : pairs) graph.host_pairs.push_back({.a = a, .b = b, .collectives = all_of_it || links_reduce});
    return graph;
  }

  // On this machine the text includes obstacles to the binding.
  std::string cpu_binding(const topology::Fabric& fabric, std::vector<int> gpus) const {
    if (config_.launch.bind == RankBinding::none) return std::string(not_bound);
    if (!live_) return planned_binding_text(fabric, gpus);
    std::sort(gpus.begin(), gpus.end());
    std::vector<Device> devices;
    for (const int gpu : gpus) devices.push_back({DeviceKind::cuda, gpu});
    return binding_text(devices, config_.launch.bind);
  }

  // A file that names the compute capability of its GPUs says which they are, or which they may be: then it returns words for
  // that.
  std::string take_device_of(const topology::Graph& graph) {
    if (!wish_.device.empty() || kind_ == DeviceKind::host || (wish_.runs_here && devices_.kind == DeviceKind::cuda)) return "";
    std::set<std::string> named;
    for (const int gpu : topology::gpus_of(graph)) named.insert(graph.nodes[static_cast<std::size_t>(gpu)].model);
    named.erase("");
    if (named.size() > 1) {
      throw ConfigError(
          {{"--topology", topology_,
            fmt::format("has GPUs of several kinds ({}): --device says which the plan is for", fmt::join(named, ", ")), "",
            0}});
    }
    std::vector<std::string> models;
    for (const topology::GpuModel& model : topology::gpu_models()) {
      if (named.contains(std::string(model.capability))) models.emplace_back(model.name);
    }
    if (models.empty()) return "";
    const std::string here = devices_.kind == DeviceKind::cuda ? nominal_name(device_name({DeviceKind::cuda, 0})) : "";
    if (std::find(models.begin(), models.end(), here) != models.end()) return "";
    file_device_ = std::find(models.begin(), models.end(), assumed_gpu) != models.end() ? assumed_gpu : models.front();
    return models.size() > 1 ? fmt::format(" ({} taken for {})", *named.begin(), file_device_) : "";
  }

  // "" for a device that no table knows.
  static std::string nominal_name(const std::string& device) {
    try {
      return topology::nominal_profile(device).name;
    } catch (const ConfigError&) {
      return "";
    }
  }

  std::string device() const {
    if (!wish_.device.empty()) return wish_.device;
    if (kind_ == DeviceKind::host) return "cpu";
    if (!file_device_.empty()) return file_device_;
    if (devices_.kind == DeviceKind::cuda) return device_name({DeviceKind::cuda, 0});
    return given_ && given_->device != calibration_device(DeviceKind::host) ? given_->device : assumed_gpu;
  }

  Place assumed(int ranks) const {
    if (wish_.network && kind_ == DeviceKind::cuda) return replicated(ranks);
    topology::AssumedTopology assumed = topology::assume_topology(kind_, device(), ranks);
    return {std::move(assumed.graph), "assumed: " + assumed.words};
  }

  Place replicated(int ranks) const {
    const int most = wish_.gpus_per_host > 0 ? std::min(wish_.gpus_per_host, gpus_of_host) : gpus_of_host;
    const int of_host = std::min(ranks, most);
    topology::AssumedTopology host = topology::assume_topology(kind_, device(), of_host);
    topology::ReplicateRequest request = *wish_.network;
    request.hosts = (ranks + of_host - 1) / of_host;
    if (request.hosts == 1) return {std::move(host.graph), "assumed: " + host.words};
    return {topology::replicate(host.graph, request),
            fmt::format("assumed: {} hosts, each {}, with {} GB/s for each GPU between them", request.hosts, host.words,
                        request.nic_gb_per_s)};
  }

  // A GPU at hand that no table knows is treated as another model, and the name says so.
  topology::DeviceProfile profile() const {
    try {
      return topology::nominal_profile(device());
    } catch (const ConfigError&) {
      if (!wish_.device.empty()) throw;
      topology::DeviceProfile profile = topology::nominal_profile(assumed_gpu);
      profile.name += ", since nothing is known about " + device();
      return profile;
    }
  }

  plan::Machine machine(std::int64_t vocab, int ranks) const {
    plan::Machine machine{.profile = profile(), .calibration = {}};
    const bool at_hand = wish_.device.empty() && file_device_.empty() && kind_ == devices_.kind;
    if (at_hand && kind_ == DeviceKind::cuda) {  // the driver keeps some memory, and not every card of a name has as much
      machine.profile.memory_bytes = static_cast<double>(memory_size({DeviceKind::cuda, 0}));
    }
    if (parallel::compute_type(config_, kind_) == DType::bf16 && !machine.profile.has_bf16) {
      throw ConfigError({{"precision.compute", config_.precision.compute,
                          fmt::format("is bf16 on GPUs, in which a {} does not compute; set precision.compute=fp32, or plan "
                                      "for a GPU that does (--device a100)",
                                      machine.profile.name),
                          "", 0}});
    }
    if (config_.precision.matmul == MatmulType::fp8 && machine.profile.fp8_flops == 0) {
      throw ConfigError({{"precision.matmul", "fp8",
                          fmt::format("needs a GPU that multiplies FP8, which {} does not; leave it at auto, or plan for a GPU "
                                      "that does (--device h100)",
                                      machine.profile.name),
                          "", 0}});
    }
    const double limit = at_hand || !config_.launch.memory_gib.is_auto() ? memory_of_rank(config_, kind_, ranks) : 0;
    if (limit > 0) machine.profile.memory_bytes = limit;
    if (given_) {
      require_fitting(*given_, vocab);
      machine.calibration = given_;
    } else if (at_hand) {
      machine.calibration = kept_calibration(config_, vocab, kind_);
    }
    return machine;
  }

  // Names of one device may differ: "h200" and "NVIDIA H200".
  void require_fitting(const plan::Calibration& calibration, std::int64_t vocab) const {
    const auto model_of = [](const std::string& device) {
      try {
        return topology::nominal_profile(device).name;
      } catch (const ConfigError&) {
        return device;
      }
    };
    if (model_of(calibration.device) != model_of(device())) {
      throw ConfigError(
          fmt::format("{}: was measured on {}, and this plan is for {}: measure there, or plan for that device "
                      "(--device, launch.device)",
                      wish_.calibration, calibration.device, device()));
    }
    if (const std::string key = model_key_of(config_, vocab, kind_); calibration.model != key)
      throw ConfigError(wish_.calibration + ": was measured for another model: " + calibration.model + ", not " + key);
  }

  plan::PlacementOptions placement() const {
    plan::PlacementOptions options;
    options.strategy = config_.placement.strategy;
    if (wish_.in_order && options.strategy != PlacementStrategy::given) options.strategy = PlacementStrategy::order;
    for (const std::int64_t gpu : config_.placement.devices) options.given.push_back(static_cast<int>(gpu));
    return options;
  }

  const Config& config_;
  const PlanningWish& wish_;
  DeviceChoice devices_;
  std::optional<plan::Calibration> given_;  // by the user
  std::string topology_, file_device_;      // of the file's GPUs, unless they equal those at hand
  bool from_file_ = false, live_ = false;
  DeviceKind kind_ = DeviceKind::cuda;
};

}  // namespace

topology::Graph live_graph(int gpus) {
  // GPUs that this process does not see cannot hold a rank.
  topology::Graph graph = topology::part_of(topology::discover_live().graph, [&](const topology::Node& node) {
    return node.kind != topology::NodeKind::gpu || node.index < gpus;
  });
  if (static_cast<int>(topology::gpus_of(graph).size()) < gpus) {
    throw ConfigError(
        "placement.topology: not all of this machine's GPUs were found (see `plait topo`); give a file, or placement.strategy: "
        "order");
  }
  return graph;
}

std::optional<CollectiveWay> collective_way(const Config& config, topology::Fabric& fabric, DeviceKind kind) {
  if (!leaves_way_open(config) || kind != DeviceKind::cuda || fabric.hosts() != 1) return std::nullopt;
  for (int to = 1; to < fabric.gpus(); ++to) {
    for (int from = 0; from < to; ++from) {
      if (!fabric.way(from, to).link.starts_with("NV")) return std::nullopt;
    }
  }
  return CollectiveWay::links;
}

JobSite find_site(const Config& config, std::int64_t vocab, const PlanningWish& wish) {
  return Planning(config, wish).site(vocab);
}

SitedPlan plan_on_site(const Config& config, const parallel::Decision& decision, std::int64_t vocab, const PlanningWish& wish) {
  return Planning(config, wish).run(decision, vocab);
}

}  // namespace plait::site
