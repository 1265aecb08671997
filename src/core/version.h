// Which plait this is.
#pragma once

#include <string>

namespace plait {

// "0.1.0 (commit 3753508fd2c1)", as of when this was built; "-dirty" behind the commit where the sources had been changed
// since. Only the number where they did not come with their history.
std::string version();

}  // namespace plait
