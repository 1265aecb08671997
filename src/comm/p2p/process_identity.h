// Which process this is, so that others can tell whether they are in it, beside it, or on another machine.
#pragma once

#include <cstdint>
#include <string>

namespace plait::comm::p2p {

// Equal in host, process, start and pid_namespace: the same process. (Numbers repeat in other PID namespaces, and over time.)
struct ProcessIdentity {
  std::string host;           // boot id of the kernel: one running machine, whatever its containers call it
  std::int64_t process = 0;   // in its PID namespace
  std::string start;          // clock ticks from boot to its start
  std::string pid_namespace;  // of these three: "" where /proc does not tell
  std::string ipc_namespace;
  std::string network_namespace;  // where names of Unix sockets are known

  bool is_same_process(const ProcessIdentity& other) const;
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// CommError where /proc does not tell what it must.
ProcessIdentity this_process();

}  // namespace plait::comm::p2p
