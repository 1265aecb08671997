// Which plait this is.
#pragma once

#include <string>

namespace plait {

struct BuildVersion {
  std::string version;  // "0.1.0", of CMakeLists.txt
  // "3753508fd2c1"; "-dirty" behind it where the sources had been changed since. "" where they came without their history.
  std::string commit;
};

BuildVersion build_version();  // as of when this was built

// "0.1.0 (commit 3753508fd2c1)", or only the number.
inline std::string to_string(const BuildVersion& build) {
  return build.commit.empty() ? build.version : build.version + " (commit " + build.commit + ")";
}

}  // namespace plait
