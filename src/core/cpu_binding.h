// Binds a thread, and so the memory it allocates, to the processors and memory of one NUMA node. Uses hwloc.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace plait {

// The processors and NUMA nodes of a machine, as far as this process may use them (a cgroup may forbid some). Immutable and
// thread-safe.
class CpuTopology {
 public:
  // This machine. Never throws: if hwloc fails, there are no NUMA nodes.
  CpuTopology();
  // An invented machine, for tests: hwloc's synthetic description ("numa:2 core:4 pu:2") or its XML (starts with '<').
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

// The processors on which a thread should run.
struct CpuBinding {
  int numa = -1;
  std::string cpus;  // the kernel's list, "0-15,32-47": the node's processors that this process may use; "" if not to be bound
  std::string obstacle;  // reason for not binding, in words
  bool useful = true;    // false: nothing to gain, because all allowed processors are near that node already
  bool possible() const { return obstacle.empty(); }
  friend bool operator==(const CpuBinding&, const CpuBinding&) = default;
};

// Binds to the processors near NUMA node `numa` (-1: unknown). Impossible if the node does not exist or none of its processors
// may be used; not useful on a machine with one NUMA node. `allowed` is a kernel's list of processors; "" means those the
// calling thread may run on. If it leaves out processors that the process could use, something outside has already bound the
// process (taskset, numactl, Slurm, mpirun). That binding is kept, and the obstacle says so, unless it is exactly that node's
// processors.
CpuBinding binding_for(const CpuTopology& topology, int numa, const std::string& allowed = "");

// Binds the calling thread and the threads it starts later. Memory that they touch first, or that a driver pins for them, then
// comes from the node; if the kernel permits, only as a preference, so that a full node is not an error. Returns "" or, if the
// kernel refused, the reason: the thread then runs where it ran before.
std::string bind_this_thread(const CpuTopology& topology, const CpuBinding& binding);

// The processors that the calling thread may run on, as the kernel's list; "" if unknown.
std::string cpus_of_this_thread();

}  // namespace plait
