#include "comm/p2p/facts.h"

#include <unistd.h>

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

namespace {

struct JoinedBridge {
  std::string bus_id;
  int nvlinks = 0, performance_rank = 0;  // of its worse side

  bool is_better_than(const JoinedBridge& other) const {
    return nvlinks != other.nvlinks ? nvlinks > other.nvlinks : performance_rank < other.performance_rank;
  }
};

std::vector<JoinedBridge> bridges_of_both(const PairFacts& facts) {
  std::vector<JoinedBridge> both;
  for (const topology::Bridge& one : facts.from_sender.bridges) {
    const auto& others = facts.from_receiver.bridges;
    const auto other =
        std::find_if(others.begin(), others.end(), [&](const topology::Bridge& b) { return b.bus_id == one.bus_id; });
    if (other == others.end()) continue;
    both.push_back(
        {one.bus_id, std::min(one.nvlinks, other->nvlinks), std::max(one.performance_rank, other->performance_rank)});
  }
  std::stable_sort(both.begin(), both.end(), [](const JoinedBridge& x, const JoinedBridge& y) { return x.is_better_than(y); });
  return both;
}

}  // namespace

std::string PairFacts::link() const {
  return from_receiver.nvlinks > from_sender.nvlinks ? from_receiver.link() : from_sender.link();
}

bool PairFacts::peer_access() const {
  return sender.peer_access && receiver.peer_access && from_sender.peer_access && from_receiver.peer_access;
}

int PairFacts::nvlinks() const { return std::max(from_sender.nvlinks, from_receiver.nvlinks); }

std::vector<std::string> PairFacts::bridges() const {
  std::vector<std::string> both;
  for (const JoinedBridge& bridge : bridges_of_both(*this)) both.push_back(bridge.bus_id);
  return both;
}

std::vector<std::string> PairFacts::best_bridges() const {
  const std::vector<JoinedBridge> all = bridges_of_both(*this);
  std::vector<std::string> best;
  for (const JoinedBridge& bridge : all) {
    if (!all.front().is_better_than(bridge)) best.push_back(bridge.bus_id);
  }
  return best;
}

EndFacts end_facts(int rank, Device device, PeerAccessUse access) {
  EndFacts facts;
  facts.rank = rank;
  facts.process = this_process();
  facts.kind = device.kind;
  facts.ordinal = device.index;
  facts.shared = device.shared;
  facts.peer_access = access == PeerAccessUse::automatic;
  facts.name = as_field(device_name(device));
  if (device.is_cuda()) describe_gpu(device, facts);
  return facts;
}

PathFacts path_facts(const EndFacts& from, const EndFacts& to) {
  PathFacts facts;
  if (from.process.host != to.process.host || from.kind != to.kind) return facts;
  if (from.kind == DeviceKind::cuda) {
    facts = topology::gpu_path(from.ordinal, from.bus_id, to.bus_id);
    facts.why_no_access = as_field(facts.why_no_access);
    return facts;
  }
  facts.visible = facts.same_memory = facts.peer_access = facts.native_atomics = true;
  return facts;
}

// A rank reports only paths to the ranks of its host, in their order: a job may have thousands of ranks, and about the others
// nothing is known.
JobFacts::JobFacts(Device device, PeerAccessUse access, Meeting& meeting)
    : ends_(meeting.gather("facts/end", end_facts(meeting.rank(), device, access))) {
  const auto neighbours = [&](int rank) {
    std::vector<int> of_host;
    for (int other = 0; other < ranks(); ++other) {
      if (other != rank && same_host(rank, other)) of_host.push_back(other);
    }
    return of_host;
  };
  std::vector<PathFacts> own;
  for (const int to : neighbours(meeting.rank())) own.push_back(path_facts(end(meeting.rank()), end(to)));
  const std::vector<std::vector<PathFacts>> told = meeting.gather("facts/paths", own);
  paths_.resize(ends_.size());
  for (int from = 0; from < ranks(); ++from) {
    const auto at = static_cast<std::size_t>(from);
    const std::vector<int> others = neighbours(from);
    if (told[at].size() != others.size()) meeting.refuse("facts/paths", from, "it is not one path to each rank of its host");
    for (std::size_t n = 0; n < others.size(); ++n) paths_[at].emplace(others[n], told[at][n]);
  }
}

PairFacts JobFacts::pair(int from, int to) const {
  const auto path = [&](int a, int b) {
    const auto& known = paths_[static_cast<std::size_t>(a)];
    const auto found = known.find(b);
    return found == known.end() ? PathFacts{} : found->second;
  };
  return {end(from), end(to), path(from, to), path(to, from)};
}

}  // namespace plait::comm::p2p
