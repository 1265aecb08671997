#include "topology/topology_json.h"

#include <map>
#include <set>

#include "core/device.h"
#include "core/json.h"
#include "core/record.h"
#include "topology/importers.h"
#include "topology/nominal.h"

namespace plait::topology {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t max_machine_items = 1 << 16, max_words_bytes = 4096;
constexpr std::int64_t max_memory_bytes = std::int64_t{1} << 60;
constexpr int deepest_value = 3;  // the document, its arrays, their objects

// A topology as the document has it.
struct Document {
  Graph graph;
  Machine machine;
};

// What of a document has been read so far: who looks at one record compares it with the others.
struct Seen {
  const std::vector<Node>* nodes = nullptr;
  std::map<std::string, int, std::less<>> names;
  std::set<std::pair<int, int>> numbers, pairs, peers;
  std::set<int> numa_numbers, described;
};

// A node, which the document names.
struct NodeName {
  const Seen* seen;
  int read(const JsonField& field) const {
    const auto found = seen->names.find(field.text());
    if (found == seen->names.end()) field.refuse("no node has this name");
    return found->second;
  }
  Json write(int node) const { return (*seen->nodes)[static_cast<std::size_t>(node)].name; }
};

// Everything is read and written as a part of it.
struct InDocument {
  Seen* seen;
  NodeName node() const { return {seen}; }
  bool is_gpu(int node) const { return (*seen->nodes)[static_cast<std::size_t>(node)].kind == NodeKind::gpu; }
};

// Two GPUs, once in each direction.
void declare_ends(auto& field, auto& pair, const InDocument& in, std::set<std::pair<int, int>>& seen) {
  field("from", pair.from, in.node());
  field("to", pair.to, in.node());
  field.check(in.is_gpu(pair.from), "from", "must be a GPU");
  field.check(in.is_gpu(pair.to), "to", "must be a GPU");
  field.check(pair.from != pair.to, "to", "a pair is of two GPUs");
  field.check(seen.insert({pair.from, pair.to}).second, "to", "this pair is there already");
}

}  // namespace

void declare(auto& field, Of<Node> auto& node, const InDocument& in) {
  field("name", node.name);
  field.check(!node.name.empty(), "name", "must not be empty");
  field.check(in.seen->names.emplace(node.name, static_cast<int>(in.seen->names.size())).second, "name",
              "another node has this name");
  field("kind", node.kind);
  field.with_default(0, "host", node.host, record::whole(-1, max_number));
  field.unless(-1, "index", node.index, record::whole(-1, max_number));
  field.unless(-1, "numa", node.numa, record::whole(-1, max_number));
  field.unless("", "bus_id", node.bus_id);
  field.check(node.bus_id.empty() || bus_id_from(node.bus_id) == node.bus_id, "bus_id", "must be as 0000:1b:00.0");
  field.unless("", "model", node.model);
  field.unless(0, "port_gb_per_s", node.port_gb_per_s, record::number(0, max_gb_per_s));
  const bool gpu = node.kind == NodeKind::gpu;
  field.check(!gpu || node.index >= 0, "index", "a GPU needs its number");
  field.check(!gpu || node.host >= 0, "host", "a GPU needs a host");
  field.check(!gpu || in.seen->numbers.insert({node.host, node.index}).second, "index",
              "another GPU of its host has this number");
  field.check(gpu || node.index < 0, "index", "only GPUs have one");
}

void declare(auto& field, Of<Edge> auto& edge, const InDocument& in) {
  field("a", edge.a, in.node());
  field("b", edge.b, in.node());
  field.check(edge.a != edge.b, "b", "an edge joins two nodes, not one to itself");
  field("kind", edge.kind);
  field.unless(0, "lanes", edge.lanes, record::whole(0, max_lanes));
  field("gb_per_s", edge.gb_per_s, record::number(1e-6, max_gb_per_s));
  field.with_default(Origin::imported, "bandwidth_from", edge.bandwidth_from);
  const double nominal_us = nominal_edge(edge.a, edge.b, edge.kind, edge.gb_per_s, edge.lanes).latency_us;
  field.with_default(nominal_us, "latency_us", edge.latency_us, record::number(0, max_latency_us));
  field.with_default(field.has("latency_us") ? Origin::imported : Origin::nominal, "latency_from", edge.latency_from);
}

void declare(auto& field, Of<PairMeasurement> auto& pair, const InDocument& in) {
  declare_ends(field, pair, in, in.seen->pairs);
  field("gb_per_s", pair.gb_per_s, record::number(1e-6, max_gb_per_s));
  field("latency_us", pair.latency_us, record::number(0, max_latency_us));
}

void declare(auto& field, Of<NumaCpus> auto& cpus, const InDocument& in) {
  field.with_default(0, "numa", cpus.numa, record::whole(0, max_number));
  field.check(in.seen->numa_numbers.insert(cpus.numa).second, "numa", "this NUMA node is there already");
  field("cpus", cpus.cpus, record::text(max_words_bytes));
  field.check(cpus.cpus.empty() || count_cpus(cpus.cpus) > 0, "cpus", "must be a list of processors as 0-31,64-95");
  field.unless(0, "memory_bytes", cpus.memory_bytes, record::whole(0, max_memory_bytes));
}

void declare(auto& field, Of<GpuFacts> auto& gpu, const InDocument& in) {
  field("gpu", gpu.node, in.node());
  field.check(in.is_gpu(gpu.node), "gpu", "must be a GPU");
  field.check(in.seen->described.insert(gpu.node).second, "gpu", "this GPU is there already");
  field.unless("", "name", gpu.name);
  field.unless(0, "memory_bytes", gpu.memory_bytes, record::whole(0, max_memory_bytes));
  field.unless(0, "multiprocessors", gpu.multiprocessors, record::whole(0, max_number));
}

void declare(auto& field, Of<PeerStatus> auto& peer, const InDocument& in) {
  declare_ends(field, peer, in, in.seen->peers);
  field("access", peer.access);
  field.unless("", "why", peer.why, record::text(max_words_bytes));
  field.unless(-1, "native_atomics", peer.native_atomics, record::whole(-1, 1));
  field.unless(-1, "performance_rank", peer.performance_rank, record::whole(-1, max_number));
}

void declare(auto& field, Of<Finding> auto& finding) {
  field("about", finding.about);
  field("value", finding.value, record::text(max_words_bytes));
  field.unless("", "effect", finding.effect, record::text(max_words_bytes));
}

namespace {

void declare(auto& field, Of<Document> auto& document) {
  Seen seen;
  seen.nodes = &document.graph.nodes;
  const auto all = [&](std::size_t most) { return record::at_most(most, InDocument{&seen}); };
  field.constant("format", "plait-topology", "");
  field.constant("version", 1, ": only version 1 is known");
  field("nodes", document.graph.nodes, all(max_nodes));
  field.with_default({}, "edges", document.graph.edges, all(max_edges));
  field.with_default({}, "pairs", document.graph.pairs, all(max_edges));
  field.unless("", "driver", document.machine.driver);
  field.unless({}, "cpus", document.machine.cpus, all(max_machine_items));
  field.unless({}, "gpus", document.machine.gpus, all(max_machine_items));
  field.unless({}, "peers", document.machine.peers, all(max_edges));
  field.unless({}, "findings", document.machine.findings, all(max_machine_items));
}

// Knows the line that each object of the document's arrays begins in.
class TopologyText {
 public:
  TopologyText(std::string_view text, const std::string& name) : text_(text), name_(name), lines_(text) {}

  Document read() {
    const Json document = parse();
    const JsonSource source{.name = name_,
                            .known_keys_only = true,
                            .null_is_missing = false,
                            .longest_text = max_name_bytes,
                            .refuse = [this](const std::string& path, const std::string& value, const std::string& rule) {
                              refuse_at(path, value, rule);
                            }};
    return record_from<Document>(JsonField(document, source));
  }

  // `path`: "nodes[3].name".
  [[noreturn]] void refuse_at(const std::string& path, const std::string& value, const std::string& rule) const {
    const auto bracket = path.find('[');
    if (bracket == std::string::npos) refuse(name_ + ": the document" + (path.empty() ? "" : ".") + path, 1, value, rule);
    // Lines are of objects: until the first thing that is none, which is refused here, there is one for each.
    const auto starts = starts_.find(path.substr(0, bracket));
    const std::size_t n = std::stoul(path.substr(bracket + 1));
    const bool known = starts != starts_.end() && n < starts->second.size();
    refuse(name_ + ": " + path, known ? starts->second[n] : 0, value, rule);
  }

 private:
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

  std::string_view text_;
  std::string name_;
  TextLines lines_;
  std::map<std::string, std::vector<int>> starts_;  // of the objects of each array
};

}  // namespace

Json to_json(const Graph& graph, const Machine& machine) {
  Document document{graph, machine};
  // A cluster has pairs without access and no machine that says why.
  if (machine.peers.empty()) {
    for (const auto& [from, to] : graph.no_access)
      document.machine.peers.push_back({.from = from, .to = to, .access = PeerAccess::no, .why = {}});
  }
  return record_json(document);
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
  TopologyText document(text, name);
  auto [graph, machine] = document.read();
  set_access(graph, machine.peers);
  const std::vector<std::string> problems = problems_of(graph);
  const std::size_t allowed = gpus == GpusNeeded::no && gpus_of(graph).empty() ? 1 : 0;  // that there is no GPU
  if (problems.size() > allowed) document.refuse_at("", "", problems.front());
  return {.format = "plait-json", .graph = std::move(graph), .machine = std::move(machine), .warnings = {}};
}

}  // namespace plait::topology
