#include "comm/p2p/process_identity.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <sstream>

#include "core/error.h"

namespace plait::comm::p2p {
namespace {

std::string line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line.empty()) {
    throw CommError("cannot read " + path + ", which tells ranks whether they are on one machine; is /proc mounted?");
  }
  return line;
}

// Field 22 of /proc/self/stat. The second field is the program's name in parentheses, which may contain anything.
std::string start_of_process() {
  const std::string stat = line_of("/proc/self/stat");
  std::istringstream after_name(stat.substr(std::min(stat.rfind(')'), stat.size() - 1) + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) after_name >> field;
  if (!after_name || !std::all_of(field.begin(), field.end(), [](unsigned char c) { return std::isdigit(c); })) {
    throw CommError("cannot read this process's start time from /proc/self/stat: '" + stat + "'");
  }
  return field;
}

// "pid:[4026531836]" -> "4026531836".
std::string namespace_of(const std::string& kind) {
  std::array<char, 64> target{};
  const ssize_t length = ::readlink(("/proc/self/ns/" + kind).c_str(), target.data(), target.size());
  const std::string text(target.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  const std::size_t open = text.find('['), close = text.find(']');
  return open == std::string::npos || close == std::string::npos || close < open ? "" : text.substr(open + 1, close - open - 1);
}

}  // namespace

bool ProcessIdentity::is_same_process(const ProcessIdentity& other) const {
  return host == other.host && process == other.process && start == other.start && pid_namespace == other.pid_namespace;
}

bool ProcessIdentity::shares_network_with(const ProcessIdentity& other) const {
  const bool unknown = network_namespace.empty() || other.network_namespace.empty();
  return host == other.host && (unknown || network_namespace == other.network_namespace);
}

ProcessIdentity this_process() {
  return {line_of("/proc/sys/kernel/random/boot_id"),
          ::getpid(),
          start_of_process(),
          namespace_of("pid"),
          namespace_of("ipc"),
          namespace_of("net")};
}

}  // namespace plait::comm::p2p
