// The version of this plait.
#pragma once

#include <string>

namespace plait {

struct BuildVersion {
  std::string version;  // "0.1.0", from CMakeLists.txt
  // "3753508fd2c1"; followed by "-dirty" if the sources had been changed since. "" without the sources' history.
  std::string commit;
};

BuildVersion build_version();  // at build time

// "0.1.0 (commit 3753508fd2c1)", or only the number.
inline std::string to_string(const BuildVersion& build) {
  return build.commit.empty() ? build.version : build.version + " (commit " + build.commit + ")";
}

}  // namespace plait
