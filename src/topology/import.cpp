#include "topology/import.h"

#include "core/error.h"
#include "core/file.h"
#include "topology/import_error.h"
#include "topology/nccl_xml.h"
#include "topology/topo_matrix.h"
#include "topology/topology_json.h"

namespace plait::topology {

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
  for (ImportWarning& warning : imported.warnings) warning.message = printable(warning.message);
  return imported;
}

}  // namespace plait::topology
