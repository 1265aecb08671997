// The name of this machine.
#pragma once

#include <string>

namespace plait {

// The kernel's name of this host, of at most 255 characters; "localhost" if it has none.
std::string host_name();

}  // namespace plait
