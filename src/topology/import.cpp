#include "topology/import.h"

#include <map>
#include <set>

#include "core/error.h"
#include "core/file.h"
#include "core/index.h"
#include "core/message.h"
#include "topology/importers.h"
#include "topology/topology_json.h"

namespace plait::topology {
namespace {

// A file may leave out numbers of GPUs (NCCL writes the driver's numbers, and a process may see only a few GPUs). Everywhere
// else GPUs of a host count from 0, as CUDA counts those that a process sees; so they do here.
void close_gaps_in_numbers(Imported& imported) {
  std::map<int, int> next;  // by host
  std::map<int, std::string> from_file;
  bool gaps = false;
  std::set<std::string> names;
  for (const Node& node : imported.graph.nodes) names.insert(node.name);
  for (const int gpu : gpus_of(imported.graph)) {
    Node& node = imported.graph.nodes[at(gpu)];
    const int number = next[node.host]++;
    from_file[node.host] += (number > 0 ? " " : "") + std::to_string(node.index);
    if (node.index == number) continue;
    gaps = true;
    const std::string old = "gpu" + std::to_string(node.index);
    if (imported.format != "plait-json" && node.name.ends_with(old)) {
      const std::string name = node.name.substr(0, node.name.size() - old.size()) + "gpu" + std::to_string(number);
      if (names.insert(name).second) {
        names.erase(node.name);
        node.name = name;
      }
    }
    node.index = number;
  }
  if (!gaps) return;
  std::string hosts;
  for (const auto& [host, numbers] : from_file)
    hosts += (hosts.empty() ? "" : "; ") + (from_file.size() > 1 ? "host " + std::to_string(host) + ": " : "") + numbers;
  imported.warnings.insert(imported.warnings.begin(), {1, "the numbers of GPUs have gaps: those that the file calls " + hosts +
                                                              " count from 0 here and in plans, in this order"});
}

}  // namespace

Imported import_topology(const std::string& file, GpusNeeded gpus) {
  std::string text;
  try {
    text = read_text(file, max_topology_bytes);
  } catch (const ConfigError& error) {
    refuse(file, 0, "", std::string("cannot be read: ") + error.what());
  }
  return import_topology(text, file, gpus);
}

Imported import_topology(std::string_view text, const std::string& name, GpusNeeded gpus) {
  if (text.size() > max_topology_bytes) refuse(name, 0, "", "a topology may have at most 256 MiB");
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) refuse(name, 1, "", "the file is empty");
  Imported imported = text[first] == '<'   ? import_nccl_xml(text, name)
                      : text[first] == '{' ? import_topology_json(text, name, gpus)
                                           : import_topo_matrix(text, name);
  close_gaps_in_numbers(imported);
  for (ImportWarning& warning : imported.warnings) warning.message = printable(warning.message);
  return imported;
}

void refuse(const std::string& source, int line, std::string_view value, std::string_view rule) {
  throw ConfigError(std::vector<ConfigProblem>{{source, printable(value, 64), printable(rule), "", line}});
}

}  // namespace plait::topology
