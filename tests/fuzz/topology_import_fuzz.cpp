// Topologies of any content: read, or refused with a ConfigError. What is read is whole: it has no problems, is written and
// read back as the same, and its ways can be found and drawn.
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"
#include "topology/assumed_topology.h"
#include "topology/describe.h"
#include "topology/import.h"
#include "topology/routes.h"
#include "topology/topology_json.h"

namespace {

constexpr std::size_t most_gpus = 32, most_nodes = 512;  // of graphs whose ways are looked for: time grows with both

void use(const plait::topology::Imported& imported) {
  const plait::topology::Graph& graph = imported.graph;
  plait::require(plait::topology::problems_of(graph).empty(), "an importer let a problem through");
  const plait::topology::Imported again =
      plait::topology::import_topology(plait::topology::to_json_text(graph, imported.machine), "written");
  plait::require(again.graph == graph && again.machine == imported.machine, "a graph changed on its way through JSON");
  if (plait::topology::gpus_of(graph).size() > most_gpus || graph.nodes.size() > most_nodes) return;
  plait::require(!describe("fuzz", graph, imported.machine, imported.warnings).empty(), "a topology without a picture");
  const plait::topology::Routes routes(graph);
  for (const int from : routes.gpus()) {
    const auto paths = routes.paths_from(from);
    plait::require(paths.size() == routes.gpus().size(), "a GPU without its paths");
  }
  try {
    static_cast<void>(plait::topology::replicate(graph, {.hosts = 3, .nic_gb_per_s = 50}));
  } catch (const plait::ConfigError&) {
    return;  // several hosts, or no PCIe
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    use(plait::topology::import_topology(text, "fuzz"));
  } catch (const plait::ConfigError& error) {
    plait::require(!std::string_view(error.what()).empty(), "a refusal without a word");
  }
  return 0;
}
