// Which machine this is.
#pragma once

#include <string>

namespace plait {

// The kernel's name of this host, of at most 255 characters; "localhost" where it has none.
std::string host_name();

}  // namespace plait
