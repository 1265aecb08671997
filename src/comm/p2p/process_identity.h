// Which process this is, so that others can tell whether they are the same process, on the same machine, or on another one.
#pragma once

#include <cstdint>
#include <string>

namespace plait::comm::p2p {

// Equal in host, process, start and pid_namespace: the same process. (Numbers repeat in other PID namespaces, and over time.)
struct ProcessIdentity {
  std::string host;           // boot id of the kernel: one running machine, whatever its containers call it
  std::int64_t process = 0;   // in its PID namespace
  std::string start;          // clock ticks from boot to its start
  std::string pid_namespace;  // these three are "" where /proc does not say
  std::string ipc_namespace;
  std::string network_namespace;  // names of Unix sockets are valid within it

  bool is_same_process(const ProcessIdentity& other) const;
  // On one machine and in one network namespace: the one reaches the other's loopback addresses and Unix sockets. Containers of
  // one machine mostly do not, and are different hosts to each other then. A namespace that is not known counts as the same.
  bool shares_network_with(const ProcessIdentity& other) const;
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// CommError where /proc lacks what is needed.
ProcessIdentity this_process();

}  // namespace plait::comm::p2p
