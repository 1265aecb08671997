#include "topology/importers.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <map>
#include <optional>
#include <pugixml.hpp>
#include <set>

#include "core/device.h"
#include "topology/nominal.h"

namespace plait::topology {
namespace {

using Xml = pugi::xml_node;

constexpr int deepest_element = 64;  // elements inside each other; real trees have less than ten
constexpr int most_elements = 1 << 18;

// The address of a device in NVLink or PCIe link entries: unique within a host.
using Address = std::pair<int, std::string>;

// Display controllers and, for RCCL, processing accelerators (MI300).
bool is_gpu_class(std::string_view kind) { return kind.starts_with("0x03") || kind.starts_with("0x12"); }

struct Listed {  // by one end
  int lanes = 0;
  int line = 0;
};

class XmlReader {
 public:
  XmlReader(std::string_view text, const std::string& name) : name_(name), lines_(text) {
    const pugi::xml_parse_result result =
        document_.load_buffer(text.data(), text.size(), pugi::parse_default, pugi::encoding_utf8);
    if (!result)
      fail(lines_.at(static_cast<std::size_t>(std::max<std::ptrdiff_t>(result.offset, 0))), "",
           std::string("not well-formed XML (") + result.description() + "): is the file complete?");
  }

  Imported read() {
    const Xml system = document_.document_element();
    if (std::string_view(system.name()) != "system")
      fail(line(system), system.name(), "the outermost element must be <system>");
    const int version = integer(system, "version");
    if (version != 1 && version != 2) fail(line(system), std::to_string(version), "versions 1 and 2 are known");
    for (Xml other = system.next_sibling(); other; other = other.next_sibling()) {
      if (other.type() == pugi::node_element) warn(other, "an element after </system> is ignored");
    }
    for (Xml child : elements(system, 1)) {
      if (is(child, "cpu"))
        add_cpu(child);
      else
        ignore(child, system);
    }
    if (gpu_numbers_.empty()) {
      fail(line(system), "",
           without_gpu_element_ > 0
               ? "no <gpu> element: " + std::to_string(without_gpu_element_) +
                     " PCI devices are GPUs by their class, but this is a "
                     "template that NCCL completes at run time; take the file that NCCL_TOPO_DUMP_FILE writes on the machine"
               : "no <gpu> element: a topology needs GPUs");
    }
    connect_nvlinks();
    connect_pci_links();
    connect_numa_nodes();
    std::stable_sort(imported_.warnings.begin(), imported_.warnings.end(),
                     [](const ImportWarning& x, const ImportWarning& y) { return x.line < y.line; });
    const std::vector<std::string> problems = problems_of(imported_.graph);
    if (!problems.empty()) fail(line(system), "", problems.front());
    imported_.format = "nccl-xml";
    return std::move(imported_);
  }

 private:
  static bool is(Xml element, std::string_view name) { return element.name() == name; }

  int line(Xml element) const {
    return lines_.at(static_cast<std::size_t>(std::max<std::ptrdiff_t>(element.offset_debug(), 0)));
  }

  [[noreturn]] void fail(int at_line, const std::string& value, const std::string& rule) const {
    refuse(name_, at_line, value, rule);
  }

  void warn(Xml element, const std::string& message) { imported_.warnings.push_back({line(element), message}); }
  void ignore(Xml child, Xml parent) {
    warn(child, "<" + std::string(child.name()) + "> inside <" + parent.name() + "> is not known: ignored");
  }

  // The child elements of an element at depth `depth`.
  std::vector<Xml> elements(Xml parent, int depth) {
    if (depth > deepest_element)
      fail(line(parent), parent.name(), "more than " + std::to_string(deepest_element) + " elements inside each other");
    std::vector<Xml> found;
    for (Xml child : parent.children()) {
      if (child.type() != pugi::node_element) continue;
      if (++elements_ > most_elements) fail(line(child), "", "more than " + std::to_string(most_elements) + " elements");
      found.push_back(child);
    }
    return found;
  }

  std::optional<int> integer_if_any(Xml element, const char* attribute) const {
    const pugi::xml_attribute found = element.attribute(attribute);
    if (!found) return std::nullopt;
    const std::string_view text = found.value();
    int value = 0;
    const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status != std::errc() || rest != text.data() + text.size())
      fail(line(element), std::string(text), std::string(attribute) + " of <" + element.name() + "> must be a whole number");
    return value;
  }

  int integer(Xml element, const char* attribute) const {
    const std::optional<int> value = integer_if_any(element, attribute);
    if (!value) fail(line(element), "", "<" + std::string(element.name()) + "> has no attribute " + attribute);
    return *value;
  }

  int bounded(Xml element, const char* attribute, int low, int high) const {
    const int value = integer(element, attribute);
    if (value < low || value > high) {
      fail(line(element), std::to_string(value),
           std::string(attribute) + " of <" + element.name() + "> must be from " + std::to_string(low) + " to " +
               std::to_string(high));
    }
    return value;
  }

  int add(Node node) {
    const int count = ++names_[node.name];
    if (count > 1) node.name += "#" + std::to_string(count);
    imported_.graph.nodes.push_back(std::move(node));
    return static_cast<int>(imported_.graph.nodes.size()) - 1;
  }

  // Names of host 0 are kept; names of further hosts include the host.
  std::string named(const std::string& name, int host) const {
    return host == 0 ? name : "host" + std::to_string(host) + "/" + name;
  }

  void connect(int a, int b, LinkKind kind, double gb_per_s, int lanes = 0) {
    imported_.graph.edges.push_back(nominal_edge(a, b, kind, gb_per_s, lanes));
  }

  struct PciPosition {  // in the PCIe tree
    int node, host, numa_id, numa_node;
  };

  void add_cpu(Xml cpu) {
    const int numa = bounded(cpu, "numaid", -1, 1 << 16);
    const auto [found, is_new] = hosts_.emplace(cpu.attribute("host_hash").value(), static_cast<int>(hosts_.size()));
    const int host = found->second;
    if (!numa_ids_.insert({host, numa}).second)
      fail(line(cpu), std::to_string(numa), "the host has another <cpu> with this numaid");
    Node node;
    node.kind = NodeKind::numa;
    node.name = named("numa" + (numa < 0 ? std::string("?") : std::to_string(numa)), host);
    node.host = host;
    node.numa = numa;
    const int index = add(std::move(node));
    numa_nodes_[host].push_back(index);
    const PciPosition position{index, host, numa, index};
    for (Xml child : elements(cpu, 2)) {
      if (is(child, "pci"))
        add_pci(child, position, 3);
      else if (is(child, "nic"))
        add_nic(child, position, "", 3);
      else if (is(child, "gpu")) {
        warn(child, "<gpu> outside of <pci>: NCCL ignores it, kept");
        add_gpu(child, position, "", 3);
      } else
        ignore(child, cpu);
    }
  }

  std::string address_of(Xml element, const char* attribute) const {
    const std::string text = element.attribute(attribute).value();
    const std::optional<std::string> bus_id = bus_id_from(text);
    if (!bus_id)
      fail(line(element), text,
           std::string(attribute) + " of <" + element.name() + "> must be a PCI address such as 0000:1b:00.0");
    return *bus_id;
  }

  void add_pci(Xml pci, const PciPosition& parent, int depth) {
    const std::string bus_id = address_of(pci, "busid");
    if (!addresses_.insert({parent.host, bus_id}).second)
      fail(line(pci), bus_id, "the host has another device at this PCI address");
    const std::string_view kind = pci.attribute("class").value();
    if (kind.empty()) warn(pci, bus_id + ": <pci> without a class, which NCCL refuses: its class follows from its contents");
    const std::vector<Xml> children = elements(pci, depth);
    const auto holds = [&](std::string_view name) {
      return std::any_of(children.begin(), children.end(), [&](Xml child) { return is(child, name); });
    };
    if (!holds("gpu") && !holds("nic") && !holds("pci")) {
      if (is_gpu_class(kind)) {
        ++without_gpu_element_;
        warn(pci, bus_id + " is a GPU by its class but has no <gpu>: NCCL ignores it, left out");
        return;
      }
      if (kind.starts_with("0x02")) {
        warn(pci, bus_id + " is a NIC by its class but has no <nic>: NCCL ignores it, kept without a speed");
        return add_nic({}, parent, bus_id, depth + 1);
      }
    }
    if (kind.starts_with("0x0680")) return;  // an NVSwitch or a bridge to it: where GPUs are at it, they say so
    PciPosition position = parent;
    if (!holds("gpu") && !holds("nic")) {
      Node node;
      node.kind = NodeKind::pcie_switch;
      node.name = named(bus_id, parent.host);
      node.host = parent.host;
      node.numa = parent.numa_id;
      node.bus_id = bus_id;
      position.node = add(std::move(node));
      switches_[{parent.host, bus_id}] = position.node;
      connect(parent.node, position.node, LinkKind::pcie, pcie_gb_per_s);
    }
    for (Xml child : children) {
      if (is(child, "pci"))
        add_pci(child, position, depth + 1);
      else if (is(child, "gpu"))
        add_gpu(child, position, bus_id, depth + 1);
      else if (is(child, "nic"))
        add_nic(child, position, bus_id, depth + 1);
      else if (is(child, "pcilink"))
        pci_links_.push_back({child, {parent.host, bus_id}});
      else
        ignore(child, pci);
    }
  }

  std::string model_of(Xml gpu) {
    std::string gcn = gpu.attribute("gcn").value();  // AMD: there `sm` is the number of compute units
    if (!gcn.empty()) {
      gcn = gcn.substr(0, gcn.find(':'));
      return gcn.starts_with("gfx") ? gcn : "gfx" + gcn;
    }
    const std::optional<int> sm = integer_if_any(gpu, "sm");
    if (!sm) warn(gpu, "<gpu> without sm, which NCCL refuses: its lanes count as those of V100 to H200");
    return sm ? "sm" + std::to_string(*sm) : "";
  }

  void add_gpu(Xml gpu, const PciPosition& position, const std::string& bus_id, int depth) {
    Node node;
    node.kind = NodeKind::gpu;
    node.index = bounded(gpu, "dev", 0, 1 << 16);
    if (!gpu_numbers_.insert({position.host, node.index}).second)
      fail(line(gpu), std::to_string(node.index), "the host has another <gpu> with this dev");
    node.name = named("gpu" + std::to_string(node.index), position.host);
    node.host = position.host;
    node.numa = position.numa_id;
    node.bus_id = bus_id;
    node.model = model_of(gpu);
    if (!gpu.attribute("rank")) warn(gpu, node.name + " has no rank: NCCL ignores it, kept");
    const int index = add(std::move(node));
    if (!bus_id.empty() && !gpus_.emplace(Address{position.host, bus_id}, index).second)
      warn(gpu, imported_.graph.nodes[static_cast<std::size_t>(index)].name +
                    " is at the PCI address of another <gpu>: links to there are taken as the first one's");
    connect(position.node, index, LinkKind::pcie, pcie_gb_per_s);
    for (Xml child : elements(gpu, depth)) {
      if (is(child, "nvlink") || is(child, "xgmi"))
        nvlinks_.push_back({child, index, position});
      else if (is(child, "c2c"))
        add_c2c(child, index, position);
      else
        ignore(child, gpu);
    }
  }

  void add_c2c(Xml c2c, int gpu, const PciPosition& position) {
    const int lanes = bounded(c2c, "count", 1, max_lanes);
    const double gb_per_s = bounded(c2c, "bw", 1, 1'000'000) * static_cast<double>(lanes) / 1000;  // the file: MB/s a lane
    connect(gpu, position.numa_node, LinkKind::c2c, gb_per_s, lanes);
    imported_.graph.edges.back().bandwidth_from = Origin::imported;
  }

  void add_nic(Xml nic, const PciPosition& position, const std::string& bus_id, int depth) {
    Node node;
    node.kind = NodeKind::nic;
    node.host = position.host;
    node.numa = position.numa_id;
    node.bus_id = bus_id;
    for (Xml net : elements(nic, depth)) {
      if (is(net, "gin") || is(net, "rma")) continue;  // other uses of the same ports
      if (!is(net, "net")) {
        ignore(net, nic);
        continue;
      }
      const std::string label = net.attribute("name").value();
      if (node.name.empty()) node.name = label;
      if (!net.attribute("dev")) warn(net, "<net name=\"" + label + "\"> has no dev: NCCL ignores it, kept");
      int speed = integer_if_any(net, "speed").value_or(0);  // Mbit/s
      if (speed > 100'000'000) fail(line(net), std::to_string(speed), "speed of <net> must be at most 100000000 (Mbit/s)");
      if (speed <= 0) {
        warn(net, "<net name=\"" + label + "\"> has no speed: 10 Gbit/s is assumed, as in NCCL");
        speed = static_cast<int>(network_gb_per_s * 8000);
      }
      node.port_gb_per_s += speed / 8000.0;
    }
    node.name = named(!node.name.empty() ? node.name : bus_id.empty() ? "nic" : bus_id, position.host);
    connect(position.node, add(std::move(node)), LinkKind::pcie, pcie_gb_per_s);
  }

  double lane_gb_per_s(int gpu, Xml link) {
    const Node& node = imported_.graph.nodes[static_cast<std::size_t>(gpu)];
    if (const std::optional<double> known = nominal_lane_gb_per_s(node.model)) return *known;
    if (!node.model.empty() && warned_models_.insert(node.model).second)
      warn(link,
           node.model + ": no nominal bandwidth of a lane is known, taken as " + (is(link, "xgmi") ? "24" : "20.6") + " GB/s");
    return is(link, "xgmi") ? 24 : unknown_lane_gb_per_s;
  }

  static bool is_hidden(const std::string& target) {
    const auto all = [&](char digit) {
      return !target.empty() && std::all_of(target.begin(), target.end(), [&](char c) {
        return c == digit || c == static_cast<char>(digit - 'a' + 'A') || c == ':' || c == '.';
      });
    };
    return all('f') || (target.find_first_not_of("0:.") == std::string::npos && !target.empty());
  }

  void connect_nvlinks() {
    std::map<std::pair<int, int>, Listed> listed;  // (from, to) of GPUs
    std::map<std::pair<int, int>, LinkKind> kinds;
    std::map<int, Listed> at_switch, at_cpu;
    std::map<int, Xml> element_of;
    for (const NvLinkElement& link : nvlinks_) {
      const std::string name = imported_.graph.nodes[static_cast<std::size_t>(link.gpu)].name;
      const int lanes = bounded(link.element, "count", 1, max_lanes);
      const std::string target = link.element.attribute("target").value();
      const std::string_view kind = link.element.attribute("tclass").value();
      const std::optional<std::string> address = bus_id_from(target);
      const auto found = address ? gpus_.find({link.position.host, *address}) : gpus_.end();
      element_of.emplace(link.gpu, link.element);
      Listed* entry = nullptr;
      if (found != gpus_.end()) {
        if (found->second == link.gpu) {
          warn(link.element, name + " lists a link to itself: ignored");
          continue;
        }
        if (!kind.empty() && !is_gpu_class(kind)) warn(link.element, name + ": " + target + " is a GPU, despite its tclass");
        kinds[{link.gpu, found->second}] = is(link.element, "xgmi") ? LinkKind::xgmi : LinkKind::nvlink;
        entry = &listed[{link.gpu, found->second}];
      } else if (is_hidden(target)) {
        entry = &at_switch[link.gpu];
      } else if (is_gpu_class(kind)) {
        warn(link.element, name + " lists a link to " + target + ", which is not a GPU in this file: ignored, as NCCL does");
        continue;
      } else if (kind == "0x068001") {
        entry = &at_cpu[link.gpu];
      } else {
        if (target.empty() && kind.empty())
          fail(line(link.element), "", "<" + std::string(link.element.name()) + "> has no target");
        if (kind.empty())
          warn(link.element, name + ": " + target + " is not in this file: taken for an NVSwitch, as NCCL does");
        else if (kind != "0x068000")
          warn(link.element,
               name + ": a link to a device of class " + std::string(kind) + " is taken for one to an NVSwitch, as NCCL does");
        entry = &at_switch[link.gpu];
      }
      entry->lanes += lanes;
      if (entry->line == 0) entry->line = line(link.element);
      if (entry->lanes > max_lanes)
        fail(line(link.element), std::to_string(entry->lanes), "more lanes to one device than any GPU has");
    }
    for (const auto& [ends, entry] : listed) connect_pair(ends, entry, listed, kinds.at(ends), element_of.at(ends.first));
    if (!at_switch.empty()) {
      Node node;
      node.kind = NodeKind::nvswitch;
      node.name = "nvswitch";
      node.host = hosts_.size() > 1 ? -1 : 0;
      const int index = add(std::move(node));
      for (const auto& [gpu, entry] : at_switch)
        connect(gpu, index, LinkKind::nvlink, entry.lanes * lane_gb_per_s(gpu, element_of.at(gpu)), entry.lanes);
    }
    for (const NvLinkElement& link : nvlinks_) {
      const auto found = at_cpu.find(link.gpu);
      if (found == at_cpu.end()) continue;
      const int lanes = found->second.lanes;
      connect(link.gpu, link.position.numa_node, LinkKind::nvlink, lanes * lane_gb_per_s(link.gpu, link.element), lanes);
      at_cpu.erase(found);
    }
  }

  // Called once for each end that lists the link; the lower end makes the edge.
  void connect_pair(std::pair<int, int> ends, const Listed& entry, const std::map<std::pair<int, int>, Listed>& listed,
                    LinkKind kind, Xml element) {
    const auto& nodes = imported_.graph.nodes;
    const std::string here = nodes[static_cast<std::size_t>(ends.first)].name,
                      there = nodes[static_cast<std::size_t>(ends.second)].name;
    const auto back = listed.find({ends.second, ends.first});
    if (back == listed.end()) {
      imported_.warnings.push_back({entry.line, here + " lists a link to " + there + ", which lists none back: ignored"});
      return;
    }
    if (ends.first > ends.second) return;
    if (back->second.lanes != entry.lanes) {
      imported_.warnings.push_back({entry.line, here + " lists " + std::to_string(entry.lanes) + " lanes to " + there +
                                                    ", which lists " + std::to_string(back->second.lanes) +
                                                    " back: the lower number is used"});
    }
    const int lanes = std::min(entry.lanes, back->second.lanes);
    const double each = std::min(lane_gb_per_s(ends.first, element), lane_gb_per_s(ends.second, element));
    connect(ends.first, ends.second, kind, lanes * each, lanes);
  }

  void connect_pci_links() {
    std::map<std::pair<int, int>, Xml> listed;
    for (const PciLinkElement& link : pci_links_) {
      const std::string target = address_of(link.element, "target");
      const auto from = switches_.find(link.from), to = switches_.find({link.from.first, target});
      if (from == switches_.end())
        warn(link.element, "<pcilink> of " + link.from.second + ", which is not a PCIe switch: ignored");
      else if (to == switches_.end())
        warn(link.element, "<pcilink> to " + target + ", which is not a PCIe switch in this file: ignored, as NCCL does");
      else if (from == to)
        warn(link.element, "<pcilink> of " + target + " to itself: ignored");
      else if (!listed.emplace(std::pair(from->second, to->second), link.element).second)
        warn(link.element, "<pcilink> to " + target + " is listed twice: once is enough");
    }
    for (const auto& [ends, element] : listed) {
      if (!listed.contains({ends.second, ends.first})) {
        warn(element, "<pcilink> to " + imported_.graph.nodes[static_cast<std::size_t>(ends.second)].name +
                          ", which lists none back: ignored");
      } else if (ends.first < ends.second) {
        connect(ends.first, ends.second, LinkKind::pcie_peer, pcie_peer_gb_per_s);
      }
    }
  }

  void connect_numa_nodes() {
    std::size_t pairs = 0;
    for (const auto& [host, nodes] : numa_nodes_) {
      if (nodes.size() > 1024) fail(0, std::to_string(nodes.size()), "a host has more than 1024 <cpu>");
      pairs += nodes.size() * nodes.size() / 2;
      if (pairs > max_edges) fail(0, "", "its <cpu> have more than " + std::to_string(max_edges) + " links");
      for (std::size_t i = 0; i < nodes.size(); ++i) {
        for (std::size_t j = i + 1; j < nodes.size(); ++j) connect(nodes[i], nodes[j], LinkKind::smp, smp_gb_per_s);
      }
    }
  }

  struct NvLinkElement {
    Xml element;
    int gpu;
    PciPosition position;
  };
  struct PciLinkElement {
    Xml element;
    Address from;
  };

  std::string name_;
  TextLines lines_;
  pugi::xml_document document_;
  Imported imported_;
  int elements_ = 0;
  int without_gpu_element_ = 0;
  std::map<std::string, int> hosts_;  // by host_hash
  std::map<std::string, int> names_;  // how often each is used
  std::set<std::pair<int, int>> numa_ids_, gpu_numbers_;
  std::set<Address> addresses_;
  std::set<std::string> warned_models_;
  std::map<Address, int> gpus_, switches_;
  std::map<int, std::vector<int>> numa_nodes_;
  std::vector<NvLinkElement> nvlinks_;
  std::vector<PciLinkElement> pci_links_;
};

}  // namespace

Imported import_nccl_xml(std::string_view text, const std::string& name) { return XmlReader(text, name).read(); }

}  // namespace plait::topology
