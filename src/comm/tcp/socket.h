// TCP sockets: where this process may listen, and how it reaches others. None of them blocks (except while a name is looked
// up), none survives exec.
#pragma once

#include <string>
#include <vector>

#include "core/file.h"

namespace plait::comm {

// The current addresses, as numbers, of `host` (a name, or an address). CommError if there is none: a name may get one later.
std::vector<std::string> addresses_of(const std::string& host);

// The address, as a number, that comm.interface means on this host: `wanted` is an address or a name of this host, the name of
// a network interface ("eth0"), or a subnet ("10.1.0.0/16"), which means this host's first address in it. ConfigError, listing
// the possibilities, if it means none.
std::string local_address(const std::string& wanted);
std::string interfaces_text();                 // "lo 127.0.0.1, eth0 10.1.0.7", for messages
bool is_local(const std::string& address);     // this host can listen on it
bool is_wildcard(const std::string& address);  // means every address of a host
bool is_loopback(const std::string& address);  // only processes of this host (and network namespace) reach it

// Port 0 means any free one. CommError naming both.
FileDescriptor listen_on(const std::string& address, int port);
int port_of(const FileDescriptor& socket);

// Applied to every connection: small messages go at once, and a silently lost other end is detected.
void set_up_connection(const FileDescriptor& socket);

// A connection in progress; CommError if it fails at once. Writable once it is made or has failed, see problem_of().
FileDescriptor begin_connecting(const std::string& address, int port);
std::string problem_of(const FileDescriptor& connection);  // "" if it was made

std::string at(const std::string& host, int port);  // "node-1:29500", "[::1]:29500"

}  // namespace plait::comm
