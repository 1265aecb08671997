#include "topology/topology_json.h"

#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "core/bus_id.h"
#include "core/json_file.h"
#include "core/message.h"
#include "topology/import_error.h"
#include "topology/nominal.h"
#include "topology/text_lines.h"

namespace plait::topology {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array node_kinds = {NodeKind::gpu,  NodeKind::nvswitch, NodeKind::pcie_switch, NodeKind::host_bridge,
                                   NodeKind::numa, NodeKind::nic,      NodeKind::network};
constexpr std::array link_kinds = {LinkKind::nvlink,    LinkKind::xgmi, LinkKind::c2c,    LinkKind::pcie,
                                   LinkKind::pcie_peer, LinkKind::smp,  LinkKind::network};
constexpr std::array origins = {Origin::nominal, Origin::imported, Origin::measured};
constexpr std::array accesses = {PeerAccess::yes, PeerAccess::no, PeerAccess::unknown};
constexpr int max_machine_items = 1 << 16;
constexpr std::size_t max_words_bytes = 4096;
constexpr int deepest_value = 3;  // the document, its arrays, their objects

class JsonReader {
 public:
  JsonReader(std::string_view text, const std::string& name, GpusNeeded gpus)
      : text_(text), name_(name), gpus_(gpus), lines_(text) {}

  Imported read() {
    const Json document = parse();
    const JsonPart top{document, 1, "the document"};
    expect_keys(top, {"format", "version", "nodes", "edges", "pairs", "driver", "cpus", "gpus", "peers", "findings"});
    if (string(top, "format") != "plait-topology") fail(top, "format", "must be \"plait-topology\"");
    if (integer(top, "version", 1, 1, 0) != 1) fail(top, "version", "only version 1 is known");
    for (const JsonPart& item : items(top, "nodes", max_nodes)) read_node(item);
    for (const JsonPart& item : items(top, "edges", max_edges)) read_edge(item);
    for (const JsonPart& item : items(top, "pairs", max_edges)) read_pair(item);
    imported_.machine.driver = string(top, "driver", false);
    for (const JsonPart& item : items(top, "gpus", max_machine_items)) read_gpu(item);
    for (const JsonPart& item : items(top, "cpus", max_machine_items)) read_cpus(item);
    for (const JsonPart& item : items(top, "peers", max_edges)) read_peer(item);
    set_access(imported_.graph, imported_.machine.peers);
    for (const JsonPart& item : items(top, "findings", max_machine_items)) read_finding(item);
    const std::vector<std::string> problems = problems_of(imported_.graph);
    const std::size_t allowed = gpus_ == GpusNeeded::no && numbers_.empty() ? 1 : 0;  // that there is no GPU
    if (problems.size() > allowed) fail(top, "", problems.front());
    imported_.format = "plait-json";
    return std::move(imported_);
  }

 private:
  struct JsonPart {
    const Json& json;
    int line;
    std::string path;
  };

  [[noreturn]] void fail(const JsonPart& item, const std::string& key, const std::string& rule) const {
    const std::string where = item.path + (key.empty() ? "" : "." + key);
    std::string value;
    if (!key.empty() && item.json.is_object() && item.json.contains(key)) {
      value = item.json.at(key).dump(-1, ' ', true, Json::error_handler_t::replace);
    }
    refuse(name_ + ": " + printable(where), item.line, value, rule);
  }

  Json parse() {
    std::size_t read = 0;
    std::vector<std::set<std::string>> keys;
    std::string section;
    const auto line = [&] { return lines_.at(read == 0 ? 0 : read - 1); };
    const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
      using Event = Json::parse_event_t;
      if (event == Event::object_start || event == Event::array_start) {
        if (depth >= deepest_value) refuse(name_, line(), "", "nothing in a topology lies that deep");
        if (event == Event::object_start) keys.emplace_back();
        if (event == Event::object_start && depth == 2) starts_[section].push_back(line());
      } else if (event == Event::object_end) {
        keys.pop_back();
      } else if (event == Event::key) {
        if (!keys.back().insert(parsed.get<std::string>()).second)
          refuse(name_, line(), parsed.get<std::string>(), "the key is there twice");
        if (depth == 1) section = parsed.get<std::string>();
      }
      return true;
    };
    return parse_json<Json>(text_, [&](const std::string& problem) { refuse(name_, line(), "", problem); }, watch, &read);
  }

  std::vector<JsonPart> items(const JsonPart& top, const std::string& key, int most) const {
    if (!top.json.contains(key)) {
      if (key == "nodes") fail(top, key, "is missing");
      return {};
    }
    const Json& array = top.json.at(key);
    if (!array.is_array()) fail(top, key, "must be an array");
    if (array.size() > static_cast<std::size_t>(most))
      fail(top, "", key + ": at most " + std::to_string(most) + " are possible");
    std::vector<JsonPart> found;
    const auto starts = starts_.find(key);
    for (std::size_t i = 0; i < array.size(); ++i) {
      // Lines are of objects: until the first thing that is none, which is refused here, there is one for each.
      const bool known = starts != starts_.end() && i < starts->second.size();
      found.push_back({array[i], known ? starts->second[i] : 0, key + "[" + std::to_string(i) + "]"});
      if (!array[i].is_object()) fail(found.back(), "", "must be an object");
    }
    return found;
  }

  void expect_keys(const JsonPart& item, const std::set<std::string>& known) const {
    if (!item.json.is_object()) fail(item, "", "must be an object");
    for (const auto& [key, value] : item.json.items()) {
      if (!known.contains(key)) fail(item, key, "unknown key");
    }
  }

  std::string string(const JsonPart& item, const std::string& key, bool needed = true,
                     std::size_t most = max_name_bytes) const {
    if (!item.json.contains(key)) {
      if (needed) fail(item, key, "is missing");
      return "";
    }
    const Json& value = item.json.at(key);
    if (!value.is_string()) fail(item, key, "must be a string");
    std::string text = value.get<std::string>();
    if (text.size() > most) fail(item, key, "may have at most " + std::to_string(most) + " bytes");
    return text;
  }

  template <typename Integer = int>
  Integer integer(const JsonPart& item, const std::string& key, Integer low, Integer high, Integer otherwise) const {
    if (!item.json.contains(key)) return otherwise;
    const Json& value = item.json.at(key);
    const std::string rule = "must be a whole number from " + std::to_string(low) + " to " + std::to_string(high);
    if (!value.is_number_integer()) fail(item, key, rule);
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(high)) fail(item, key, rule);
    const auto number = value.get<std::int64_t>();
    if (number < low || number > high) fail(item, key, rule);
    return static_cast<Integer>(number);
  }

  double number(const JsonPart& item, const std::string& key, double low, double high, double otherwise) const {
    if (!item.json.contains(key)) return otherwise;
    const Json& value = item.json.at(key);
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < low || value.get<double>() > high)
      fail(item, key, "must be a number from " + Json(low).dump() + " to " + Json(high).dump());
    return value.get<double>();
  }

  template <typename Kinds>
  auto choice(const JsonPart& item, const std::string& key, const Kinds& kinds) const {
    const std::string text = string(item, key);
    std::string known;
    for (const auto kind : kinds) {
      if (name_of(kind) == text) return kind;
      known += (known.empty() ? "" : ", ") + std::string(name_of(kind));
    }
    fail(item, key, "must be one of " + known);
  }

  Origin origin(const JsonPart& item, const std::string& key, Origin otherwise) const {
    return item.json.contains(key) ? choice(item, key, origins) : otherwise;
  }

  int end(const JsonPart& item, const std::string& key) const {
    const auto found = nodes_.find(string(item, key));
    if (found == nodes_.end()) fail(item, key, "no node has this name");
    return found->second;
  }

  void read_node(const JsonPart& item) {
    expect_keys(item, {"name", "kind", "host", "index", "numa", "bus_id", "model", "port_gb_per_s"});
    Node node;
    node.name = string(item, "name");
    if (node.name.empty()) fail(item, "name", "must not be empty");
    node.kind = choice(item, "kind", node_kinds);
    node.host = integer(item, "host", -1, max_number, 0);
    node.index = integer(item, "index", -1, max_number, -1);
    node.numa = integer(item, "numa", -1, max_number, -1);
    node.model = string(item, "model", false);
    node.bus_id = string(item, "bus_id", false);
    node.port_gb_per_s = number(item, "port_gb_per_s", 0, max_gb_per_s, 0);
    if (!node.bus_id.empty() && bus_id_from(node.bus_id) != node.bus_id) fail(item, "bus_id", "must be as 0000:1b:00.0");
    if (node.kind == NodeKind::gpu) {
      if (node.index < 0) fail(item, "index", "a GPU needs its number");
      if (node.host < 0) fail(item, "host", "a GPU needs a host");
      if (!numbers_.insert({node.host, node.index}).second) fail(item, "index", "another GPU of its host has this number");
    } else if (node.index >= 0) {
      fail(item, "index", "only GPUs have one");
    }
    if (!nodes_.emplace(node.name, static_cast<int>(imported_.graph.nodes.size())).second)
      fail(item, "name", "another node has this name");
    imported_.graph.nodes.push_back(std::move(node));
  }

  void read_edge(const JsonPart& item) {
    expect_keys(item, {"a", "b", "kind", "lanes", "gb_per_s", "latency_us", "bandwidth_from", "latency_from"});
    const int a = end(item, "a"), b = end(item, "b");
    if (a == b) fail(item, "b", "an edge joins two nodes, not one to itself");
    const LinkKind kind = choice(item, "kind", link_kinds);
    if (!item.json.contains("gb_per_s")) fail(item, "gb_per_s", "is missing");
    Edge edge =
        nominal_edge(a, b, kind, number(item, "gb_per_s", 1e-6, max_gb_per_s, 0), integer(item, "lanes", 0, max_lanes, 0));
    edge.bandwidth_from = origin(item, "bandwidth_from", Origin::imported);
    edge.latency_from = origin(item, "latency_from", item.json.contains("latency_us") ? Origin::imported : Origin::nominal);
    edge.latency_us = number(item, "latency_us", 0, max_latency_us, edge.latency_us);
    imported_.graph.edges.push_back(edge);
  }

  // Of two GPUs, once in each direction.
  std::pair<int, int> ends(const JsonPart& item, std::set<std::pair<int, int>>& seen) const {
    const int from = end(item, "from"), to = end(item, "to");
    for (const auto& [key, node] : {std::pair("from", from), std::pair("to", to)}) {
      if (imported_.graph.nodes[static_cast<std::size_t>(node)].kind != NodeKind::gpu) fail(item, key, "must be a GPU");
    }
    if (from == to) fail(item, "to", "a pair is of two GPUs");
    if (!seen.insert({from, to}).second) fail(item, "to", "this pair is there already");
    return {from, to};
  }

  void read_pair(const JsonPart& item) {
    expect_keys(item, {"from", "to", "gb_per_s", "latency_us"});
    PairMeasurement pair;
    std::tie(pair.from, pair.to) = ends(item, pairs_);
    for (const char* key : {"gb_per_s", "latency_us"}) {
      if (!item.json.contains(key)) fail(item, key, "is missing");
    }
    pair.gb_per_s = number(item, "gb_per_s", 1e-6, max_gb_per_s, 0);
    pair.latency_us = number(item, "latency_us", 0, max_latency_us, 0);
    imported_.graph.pairs.push_back(pair);
  }

  void read_cpus(const JsonPart& item) {
    expect_keys(item, {"numa", "cpus", "memory_bytes"});
    NumaCpus cpus;
    cpus.numa = integer(item, "numa", 0, max_number, 0);
    cpus.cpus = string(item, "cpus", true, max_words_bytes);
    cpus.memory_bytes = integer(item, "memory_bytes", std::int64_t{0}, std::int64_t{1} << 60, std::int64_t{0});
    if (!numa_numbers_.insert(cpus.numa).second) fail(item, "numa", "this NUMA node is there already");
    if (!cpus.cpus.empty() && count_cpus(cpus.cpus) == 0) fail(item, "cpus", "must be a list of processors as 0-31,64-95");
    imported_.machine.cpus.push_back(std::move(cpus));
  }

  void read_gpu(const JsonPart& item) {
    expect_keys(item, {"gpu", "name", "memory_bytes", "multiprocessors"});
    GpuFacts gpu;
    gpu.node = end(item, "gpu");
    if (imported_.graph.nodes[static_cast<std::size_t>(gpu.node)].kind != NodeKind::gpu) fail(item, "gpu", "must be a GPU");
    if (!described_.insert(gpu.node).second) fail(item, "gpu", "this GPU is there already");
    gpu.name = string(item, "name", false);
    gpu.memory_bytes = integer(item, "memory_bytes", std::int64_t{0}, std::int64_t{1} << 60, std::int64_t{0});
    gpu.multiprocessors = integer(item, "multiprocessors", 0, max_number, 0);
    imported_.machine.gpus.push_back(std::move(gpu));
  }

  void read_peer(const JsonPart& item) {
    expect_keys(item, {"from", "to", "access", "why", "native_atomics", "performance_rank"});
    PeerStatus peer;
    std::tie(peer.from, peer.to) = ends(item, peers_);
    peer.access = choice(item, "access", accesses);
    peer.why = string(item, "why", false, max_words_bytes);
    peer.native_atomics = integer(item, "native_atomics", -1, 1, -1);
    peer.performance_rank = integer(item, "performance_rank", -1, max_number, -1);
    imported_.machine.peers.push_back(std::move(peer));
  }

  void read_finding(const JsonPart& item) {
    expect_keys(item, {"about", "value", "effect"});
    Finding finding;
    finding.about = string(item, "about");
    finding.value = string(item, "value", true, max_words_bytes);
    finding.effect = string(item, "effect", false, max_words_bytes);
    imported_.machine.findings.push_back(std::move(finding));
  }

  std::string_view text_;
  std::string name_;
  GpusNeeded gpus_;
  TextLines lines_;
  Imported imported_;
  std::map<std::string, std::vector<int>> starts_;  // of the objects of each array
  std::map<std::string, int> nodes_;
  std::set<std::pair<int, int>> numbers_, pairs_, peers_;
  std::set<int> numa_numbers_, described_;
};

void add_machine(Json& json, const Graph& graph, const Machine& machine) {
  const auto name = [&](int node) { return graph.nodes[static_cast<std::size_t>(node)].name; };
  if (!machine.driver.empty()) json["driver"] = machine.driver;
  for (const NumaCpus& cpus : machine.cpus) {
    Json item = {{"numa", cpus.numa}, {"cpus", cpus.cpus}};
    if (cpus.memory_bytes > 0) item["memory_bytes"] = cpus.memory_bytes;
    json["cpus"].push_back(std::move(item));
  }
  for (const GpuFacts& gpu : machine.gpus) {
    Json item = {{"gpu", name(gpu.node)}};
    if (!gpu.name.empty()) item["name"] = gpu.name;
    if (gpu.memory_bytes > 0) item["memory_bytes"] = gpu.memory_bytes;
    if (gpu.multiprocessors > 0) item["multiprocessors"] = gpu.multiprocessors;
    json["gpus"].push_back(std::move(item));
  }
  for (const PeerStatus& peer : machine.peers) {
    Json item = {{"from", name(peer.from)}, {"to", name(peer.to)}, {"access", name_of(peer.access)}};
    if (!peer.why.empty()) item["why"] = peer.why;
    if (peer.native_atomics >= 0) item["native_atomics"] = peer.native_atomics;
    if (peer.performance_rank >= 0) item["performance_rank"] = peer.performance_rank;
    json["peers"].push_back(std::move(item));
  }
  // A cluster has pairs without access and no machine that says why.
  for (const auto& [from, to] : graph.no_access) {
    if (machine.peers.empty()) json["peers"].push_back({{"from", name(from)}, {"to", name(to)}, {"access", "no"}});
  }
  for (const Finding& finding : machine.findings) {
    Json item = {{"about", finding.about}, {"value", finding.value}};
    if (!finding.effect.empty()) item["effect"] = finding.effect;
    json["findings"].push_back(std::move(item));
  }
}

}  // namespace

Json to_json(const Graph& graph, const Machine& machine) {
  Json nodes = Json::array(), edges = Json::array(), pairs = Json::array();
  for (const Node& node : graph.nodes) {
    Json json = {{"name", node.name}, {"kind", name_of(node.kind)}, {"host", node.host}};
    if (node.index >= 0) json["index"] = node.index;
    if (node.numa >= 0) json["numa"] = node.numa;
    if (!node.bus_id.empty()) json["bus_id"] = node.bus_id;
    if (!node.model.empty()) json["model"] = node.model;
    if (node.port_gb_per_s > 0) json["port_gb_per_s"] = node.port_gb_per_s;
    nodes.push_back(std::move(json));
  }
  const auto name = [&](int node) { return graph.nodes[static_cast<std::size_t>(node)].name; };
  for (const Edge& edge : graph.edges) {
    Json json = {{"a", name(edge.a)}, {"b", name(edge.b)}, {"kind", name_of(edge.kind)}};
    if (edge.lanes > 0) json["lanes"] = edge.lanes;
    json["gb_per_s"] = edge.gb_per_s;
    json["bandwidth_from"] = name_of(edge.bandwidth_from);
    json["latency_us"] = edge.latency_us;
    json["latency_from"] = name_of(edge.latency_from);
    edges.push_back(std::move(json));
  }
  for (const PairMeasurement& pair : graph.pairs)
    pairs.push_back(
        {{"from", name(pair.from)}, {"to", name(pair.to)}, {"gb_per_s", pair.gb_per_s}, {"latency_us", pair.latency_us}});
  Json json = {{"format", "plait-topology"},
               {"version", 1},
               {"nodes", std::move(nodes)},
               {"edges", std::move(edges)},
               {"pairs", std::move(pairs)}};
  add_machine(json, graph, machine);
  return json;
}

std::string to_json_text(const Graph& graph, const Machine& machine) {
  const Json json = to_json(graph, machine);
  const auto text_of = [](const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); };
  std::string text = "{";
  for (const auto& [key, value] : json.items()) {
    text += (text.size() > 1 ? ",\n" : "") + text_of(key) + ": ";
    if (!value.is_array()) {
      text += text_of(value);
      continue;
    }
    text += "[";
    for (std::size_t i = 0; i < value.size(); ++i) text += (i > 0 ? ",\n  " : "\n  ") + text_of(value[i]);
    text += "]";
  }
  return text + "}\n";
}

Imported import_topology_json(std::string_view text, const std::string& name, GpusNeeded gpus) {
  return JsonReader(text, name, gpus).read();
}

}  // namespace plait::topology
