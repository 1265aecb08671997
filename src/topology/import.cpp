#include "topology/import.h"

#include <fstream>

#include "topology/import_error.h"
#include "topology/nccl_xml.h"
#include "topology/topo_matrix.h"
#include "topology/topology_json.h"

namespace plait::topology {

Imported import_topology(const std::string& file, GpusNeeded gpus) {
  std::ifstream stream(file, std::ios::binary);
  std::string text;
  std::string block(std::size_t{1} << 16, '\0');
  while (stream && text.size() <= max_topology_bytes) {
    stream.read(block.data(), static_cast<std::streamsize>(block.size()));
    text.append(block, 0, static_cast<std::size_t>(stream.gcount()));
  }
  if (!stream.eof() && text.size() <= max_topology_bytes)
    refuse(file, 0, "", "cannot be read: does it exist, and is it a file?");
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
