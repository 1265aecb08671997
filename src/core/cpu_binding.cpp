#include "core/cpu_binding.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace plait {
namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_t set) const { hwloc_bitmap_free(set); }
};
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, FreeBitmap>;

Bitmap make_bitmap() { return Bitmap(hwloc_bitmap_alloc()); }

std::string list_of(hwloc_const_bitmap_t set) {
  char* text = nullptr;
  if (hwloc_bitmap_list_asprintf(&text, set) < 0) return "";
  std::string list = text;
  std::free(text);
  return list;
}

hwloc_obj_t numa_node(hwloc_topology_t topology, int numa) {
  return numa < 0 ? nullptr : hwloc_get_numanode_obj_by_os_index(topology, static_cast<unsigned>(numa));
}

}  // namespace

struct CpuTopology::Handle {
  hwloc_topology_t topology = nullptr;
  bool usable = false;
  Handle() { hwloc_topology_init(&topology); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { hwloc_topology_destroy(topology); }
};

struct CpuBindingAccess {
  static hwloc_topology_t of(const CpuTopology& topology) {
    return topology.handle_->usable ? topology.handle_->topology : nullptr;
  }
};

CpuTopology::CpuTopology() : handle_(std::make_unique<Handle>()) {
  handle_->usable = hwloc_topology_load(handle_->topology) == 0;
}

CpuTopology::CpuTopology(const std::string& description) : handle_(std::make_unique<Handle>()) {
  const hwloc_topology_t topology = handle_->topology;
  const bool xml = description.starts_with("<");
  const int set = xml ? hwloc_topology_set_xmlbuffer(topology, description.c_str(), static_cast<int>(description.size()) + 1)
                      : hwloc_topology_set_synthetic(topology, description.c_str());
  if (set != 0 || hwloc_topology_load(topology) != 0)
    throw ConfigError(
        {{"machine", description.substr(0, 64), "must be hwloc's synthetic description of a machine, or its XML", "", 0}});
  handle_->usable = true;
}

CpuTopology::~CpuTopology() = default;

std::vector<int> CpuTopology::numa_nodes() const {
  std::vector<int> numbers;
  const hwloc_topology_t topology = CpuBindingAccess::of(*this);
  if (!topology) return numbers;
  for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;)
    numbers.push_back(static_cast<int>(node->os_index));
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

CpuBinding binding_for(const CpuTopology& machine, int numa, const std::string& allowed) {
  CpuBinding binding;
  binding.numa = numa;
  const hwloc_topology_t topology = CpuBindingAccess::of(machine);
  if (!topology) {
    binding.obstacle = "the machine's processors and NUMA nodes are not known";
    return binding;
  }
  if (machine.numa_nodes().empty()) {
    binding.obstacle = "no NUMA node may be used here";
    return binding;
  }
  const std::string own = allowed.empty() ? cpus_of_this_thread() : allowed;
  const Bitmap mine = make_bitmap();
  const hwloc_const_bitmap_t usable = hwloc_topology_get_topology_cpuset(topology);
  const hwloc_obj_t node = numa_node(topology, numa);
  const bool is_told = !own.empty() && hwloc_bitmap_list_sscanf(mine.get(), own.c_str()) == 0;
  if (is_told && !hwloc_bitmap_isincluded(usable, mine.get())) {
    // A thread that is already bound to the node, by anyone, is in its place.
    if (node && !hwloc_bitmap_iszero(node->cpuset) && hwloc_bitmap_isequal(mine.get(), node->cpuset)) {
      binding.cpus = list_of(node->cpuset);
      return binding;
    }
    binding.obstacle = "bound from outside to processors " + own + " of " + list_of(usable) + ": left as it is";
    return binding;
  }
  if (machine.numa_nodes().size() == 1 && (numa < 0 || numa == machine.numa_nodes().front())) {
    binding.obstacle = "the machine has one NUMA node";
    binding.useful = false;
    return binding;
  }
  if (numa < 0) {
    binding.obstacle = "its NUMA node is not known";
    return binding;
  }
  if (!node || hwloc_bitmap_iszero(node->cpuset)) {
    binding.obstacle = "no processor of NUMA node " + std::to_string(numa) + " may be used here (cpuset of a cgroup?)";
    return binding;
  }
  if (hwloc_bitmap_isequal(node->cpuset, usable)) {
    binding.obstacle = "all processors that may be used are of NUMA node " + std::to_string(numa);
    binding.useful = false;
    return binding;
  }
  binding.cpus = list_of(node->cpuset);
  return binding;
}

std::string bind_this_thread(const CpuTopology& machine, const CpuBinding& binding) {
  if (!binding.possible()) return binding.obstacle;
  const hwloc_topology_t topology = CpuBindingAccess::of(machine);
  const hwloc_obj_t node = topology ? numa_node(topology, binding.numa) : nullptr;
  if (!node) return "the machine has no NUMA node " + std::to_string(binding.numa);
  if (hwloc_set_cpubind(topology, node->cpuset, HWLOC_CPUBIND_THREAD) != 0)
    return "the kernel does not bind to processors " + binding.cpus + ": " + std::strerror(errno);
  // Not strict, only preferred. Containers usually forbid set_mempolicy; a bound thread's first touch then has the same effect.
  hwloc_set_membind(topology, node->nodeset, HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET);
  return "";
}

std::string cpus_of_this_thread() {
  // Asks the kernel itself, because a topology read from XML answers from the XML.
  const Bitmap bitmap = make_bitmap();
  // The kernel refuses a set smaller than its own.
  for (std::size_t words = 16; words <= 1024; words *= 2) {
    std::vector<unsigned long> set(words, 0);
    const std::size_t bytes = words * sizeof(unsigned long), bits = 8 * sizeof(unsigned long);
    if (::sched_getaffinity(0, bytes, reinterpret_cast<cpu_set_t*>(set.data())) != 0) {
      if (errno == EINVAL) continue;
      return "";
    }
    for (std::size_t cpu = 0; cpu < words * bits; ++cpu) {
      if ((set[cpu / bits] >> (cpu % bits) & 1) != 0) hwloc_bitmap_set(bitmap.get(), static_cast<unsigned>(cpu));
    }
    break;
  }
  return list_of(bitmap.get());
}

}  // namespace plait
