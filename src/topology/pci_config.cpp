#include "topology/pci_config.h"

#include <set>

namespace plait::topology {
namespace {

constexpr std::size_t standard_bytes = 256, all_bytes = 4096;

}  // namespace

std::optional<PciConfig> PciConfig::read(const Sysfs& sysfs, const std::string& bus_id) {
  std::optional<std::string> bytes = read_bytes(sysfs.pci(bus_id) / "config", all_bytes);
  if (!bytes || bytes->size() < standard_bytes) return std::nullopt;
  return PciConfig(std::move(*bytes));
}

unsigned PciConfig::byte(std::size_t at) const {
  return at < bytes_.size() ? static_cast<unsigned>(static_cast<unsigned char>(bytes_[at])) : 0u;
}

std::vector<std::size_t> PciConfig::capabilities(unsigned id) const {
  constexpr std::size_t status = 0x06, list = 0x34, header_bytes = 0x40;
  constexpr unsigned has_list = 1u << 4;
  std::vector<std::size_t> found;
  if ((byte(status) & has_list) == 0) return found;
  std::set<std::size_t> seen;
  for (std::size_t at = byte(list) & ~3u; at >= header_bytes && seen.insert(at).second; at = byte(at + 1) & ~3u) {
    if (byte(at) == id) found.push_back(at);
  }
  return found;
}

std::optional<std::size_t> PciConfig::extended_capability(unsigned id) const {
  std::set<std::size_t> seen;
  for (std::size_t at = standard_bytes; at >= standard_bytes && seen.insert(at).second;) {
    if (word(at) == id) return at;
    at = byte(at + 2) >> 4 | byte(at + 3) << 4;
  }
  return std::nullopt;
}

}  // namespace plait::topology
