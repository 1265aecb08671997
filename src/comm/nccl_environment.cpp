#include "comm/nccl_environment.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>

#include "core/error.h"

namespace plait::comm {
namespace {

// State of the process, like NCCL's own, which it mirrors.
struct Settled {
  std::mutex mutex;
  std::optional<PeerAccessUse> access;
  std::map<std::string, std::string> variables;
  void set(const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), 1);
    variables[name] = value;
  }
};

Settled& settled() {
  static Settled state;
  return state;
}

// The descriptor stays open as long as the process, as NCCL's own does. It is kept by process id, because a child process must
// not take it for its own.
std::optional<std::string> memory_file() {
  const int memory = ::memfd_create("plait-nccl-log", MFD_CLOEXEC);
  if (memory < 0) return std::nullopt;
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(memory);
}

}  // namespace

void settle_nccl_environment(PeerAccessUse access) {
  Settled& state = settled();
  const std::lock_guard lock(state.mutex);
  if (state.access) {
    if (*state.access == access) return;
    throw ConfigError({{"comm.peer_access", to_string(access),
                        "an earlier job of this process had " + to_string(*state.access) +
                            ", and NCCL reads it once in a process: run it in a process of its own",
                        "", 0}});
  }
  state.access = access;
  if (access == PeerAccessUse::off) {
    state.set("NCCL_P2P_DISABLE", "1");
    state.set("NCCL_NVLS_ENABLE", "0");
  }
  // Registered buffers may use other channels, and so add up in another order than the same call outside of a graph.
  if (!std::getenv("NCCL_GRAPH_REGISTER")) state.set("NCCL_GRAPH_REGISTER", "0");
  if (std::getenv("NCCL_DEBUG") || std::getenv("NCCL_DEBUG_FILE")) return;
  if (const auto file = memory_file()) {
    state.set("NCCL_DEBUG", "INFO");
    state.set("NCCL_DEBUG_SUBSYS", "INIT");  // nothing is written for each call
    state.set("NCCL_DEBUG_FILE", *file);
  }
}

bool is_set_for_nccl(const std::string& variable) {
  Settled& state = settled();
  const std::lock_guard lock(state.mutex);
  const auto found = state.variables.find(variable);
  const char* const now = std::getenv(variable.c_str());
  return found != state.variables.end() && now && found->second == now;
}

}  // namespace plait::comm
