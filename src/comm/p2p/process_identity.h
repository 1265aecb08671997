// The identity of this process, so that others can tell whether it is the same process, on the same machine, or on another one.
#pragma once

#include <cstdint>
#include <string>

namespace plait::comm::p2p {

// Equal host, process, start and pid_namespace mean the same process. (Process ids repeat in other PID namespaces, and over
// time.)
struct ProcessIdentity {
  std::string host;           // boot id of the kernel: one running machine, under any name that containers give it
  std::int64_t process = 0;   // in its PID namespace
  std::string start;          // clock ticks from boot to its start
  std::string pid_namespace;  // these three are "" if /proc does not say
  std::string ipc_namespace;
  std::string network_namespace;  // names of Unix sockets are valid within it

  bool is_same_process(const ProcessIdentity& other) const;
  // True on one machine and in one network namespace: each reaches the other's loopback addresses and Unix sockets. Containers
  // of one machine mostly do not, and then count as different hosts. An unknown namespace counts as the same.
  bool shares_network_with(const ProcessIdentity& other) const;
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// CommError if /proc lacks the needed entries.
ProcessIdentity this_process();

}  // namespace plait::comm::p2p
