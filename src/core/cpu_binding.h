// Binds a thread, and by it what it allocates, to the processors and memory of one NUMA node. Over hwloc.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace plait {

// The processors and NUMA nodes of a machine, as far as this process may use them (a cgroup may forbid some). Immutable:
// several threads may ask one.
class CpuTopology {
 public:
  // This machine. Never throws: where hwloc cannot look, there are no NUMA nodes.
  CpuTopology();
  // A machine that is made up, for tests: hwloc's synthetic description ("numa:2 core:4 pu:2") or its XML (starts with '<').
  // ConfigError for anything else. Binding to it does nothing.
  explicit CpuTopology(const std::string& description);
  ~CpuTopology();
  CpuTopology(const CpuTopology&) = delete;
  CpuTopology& operator=(const CpuTopology&) = delete;

  std::vector<int> numa_nodes() const;  // their numbers, ascending

 private:
  friend struct CpuBindingAccess;
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

// Where a thread shall run.
struct CpuBinding {
  int numa = -1;
  std::string cpus;      // the kernel's list, "0-15,32-47": those of the node that this process may use; "" if not to be bound
  std::string obstacle;  // why not, in words
  bool useful = true;    // false: there is nothing to gain, for all processors that may be used are near that node
  bool possible() const { return obstacle.empty(); }
  friend bool operator==(const CpuBinding&, const CpuBinding&) = default;
};

// To the processors near NUMA node `numa` (-1: not known). Not possible where there is no such node, or none of its processors
// may be used; nor useful on a machine with one NUMA node. If `allowed` (a kernel's list; what the calling thread may run on
// when this is "") leaves out processors that the process could use, somebody outside has bound it already (taskset, numactl,
// Slurm, mpirun): that stays, and the obstacle says so, unless it is that node's processors.
CpuBinding binding_for(const CpuTopology& topology, int numa, const std::string& allowed = "");

// Binds the calling thread and those that it will start. Memory that they touch first, or that a driver pins for them, is then
// the node's; where the kernel permits it, also by preference, so that a full node is no failure. Returns "" or, where the
// kernel refused, why: the thread then runs wherever it ran before.
std::string bind_this_thread(const CpuTopology& topology, const CpuBinding& binding);

// The processors that the calling thread may run on, as the kernel's list; "" where that cannot be told.
std::string cpus_of_this_thread();

}  // namespace plait
