#include "comm/nccl_environment.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <optional>

#include "core/device.h"
#include "core/error.h"

namespace plait::comm {
namespace {

// State of the process, like NCCL's own, which it mirrors.
struct Settled {
  std::mutex mutex;
  std::optional<PeerAccessUse> access;
  std::map<std::string, std::string> variables;
  void set(const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), 1);
    variables[name] = value;
  }
};

Settled& settled() {
  static Settled state;
  return state;
}

// The descriptor stays open as long as the process, as NCCL's own does. It is kept by process id, because a child process must
// not take it for its own.
std::optional<std::string> memory_file() {
  const int memory = ::memfd_create("plait-nccl-log", MFD_CLOEXEC);
  if (memory < 0) return std::nullopt;
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(memory);
}

}  // namespace

void settle_nccl_environment(PeerAccessUse access) {
  Settled& state = settled();
  const std::lock_guard lock(state.mutex);
  if (state.access) {
    if (*state.access == access) return;
    throw ConfigError({{"comm.peer_access", to_string(access),
                        "an earlier job of this process had " + to_string(*state.access) +
                            ", and NCCL reads it once in a process: run it in a process of its own",
                        "", 0}});
  }
  state.access = access;
  if (access == PeerAccessUse::off) {
    state.set("NCCL_P2P_DISABLE", "1");
    state.set("NCCL_NVLS_ENABLE", "0");
  }
  // Registered buffers may use other channels, and so add up in another order than the same call outside of a graph.
  if (!std::getenv("NCCL_GRAPH_REGISTER")) state.set("NCCL_GRAPH_REGISTER", "0");
  if (std::getenv("NCCL_DEBUG") || std::getenv("NCCL_DEBUG_FILE")) return;
  if (const auto file = memory_file()) {
    state.set("NCCL_DEBUG", "INFO");
    state.set("NCCL_DEBUG_SUBSYS", "INIT");  // nothing is written for each call
    state.set("NCCL_DEBUG_FILE", *file);
  }
}

bool is_set_for_nccl(const std::string& variable) {
  Settled& state = settled();
  const std::lock_guard lock(state.mutex);
  const auto found = state.variables.find(variable);
  const char* const now = std::getenv(variable.c_str());
  return found != state.variables.end() && now && found->second == now;
}

namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{64} << 20;
constexpr std::size_t longest_line = 4096, longest_via = 64;
constexpr int most_channels = 1024;

// A line, word by word.
class Words {
 public:
  explicit Words(std::string_view text) : left_(text) {}
  bool skip(std::string_view word) {
    if (!left_.starts_with(word)) return false;
    left_.remove_prefix(word.size());
    return true;
  }
  // Skips to the first `word` and returns whether there is one.
  bool skip_to(std::string_view word) {
    const std::size_t at = left_.find(word);
    if (at == std::string_view::npos) return false;
    left_.remove_prefix(at + word.size());
    return true;
  }
  std::optional<int> number(int most) {
    int value = -1;
    const auto end = std::from_chars(left_.data(), left_.data() + left_.size(), value);
    if (end.ec != std::errc() || value < 0 || value > most) return std::nullopt;
    left_.remove_prefix(static_cast<std::size_t>(end.ptr - left_.data()));
    return value;
  }
  std::string_view word() const { return left_.substr(0, left_.find(' ')); }
  std::string_view left() const { return left_; }

 private:
  std::string_view left_;
};

std::optional<Carrier> carrier_of(std::string_view via) {
  if (via.starts_with("P2P/")) return Carrier::p2p;
  if (via.starts_with("SHM/")) return Carrier::shm;
  if (!via.starts_with("NET/") && !via.starts_with("COLLNET/")) return std::nullopt;
  return via.find("/GDRDMA") == std::string_view::npos ? Carrier::net : Carrier::gdrdma;
}

// Leaves out the NIC of a channel: "NET/IB/0(3)/GDRDMA/Shared" becomes NET/IB/GDRDMA.
std::string named_way(std::string_view via, Carrier carrier) {
  if (carrier != Carrier::net && carrier != Carrier::gdrdma) return std::string(via);
  const std::size_t kind = via.find('/') + 1;
  const std::size_t end = std::min(via.find('/', kind), via.size());
  return std::string(via.substr(0, end)) + (carrier == Carrier::gdrdma ? "/GDRDMA" : "");
}

class Reader {
 public:
  explicit Reader(const NcclLogLines& whose)
      : whose_(whose),
        process_(":" + std::to_string(whose.process) + ":"),
        gpu_("[" + std::to_string(whose.gpu) + "] NCCL INFO ") {}

  void line(std::string_view text) {
    if (text.size() > longest_line) return;
    // "host:4711:4720 [0] NCCL INFO ...", after a time if NCCL_DEBUG_TIMESTAMP_LEVELS asks for one
    Words words(text);
    if (!words.skip_to(process_) || !words.number(std::numeric_limits<int>::max()) || !words.skip(" ") || !words.skip(gpu_))
      return;
    if (Words channel = words; channel.skip("Channel ")) return connection(channel);
    if (words.left().starts_with("Connected all rings")) return algorithm("ring");
    if (words.left().starts_with("Connected all trees")) return algorithm("tree");
    if (words.left().starts_with("Connected binomial trees")) return algorithm("pat");
    if (words.left().starts_with("Connected NVLS tree") || words.left().starts_with("NVLS comm ")) return algorithm("nvls");
    if (words.left().find("Connected CollNet") != std::string_view::npos) return algorithm("collnet");
    // "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer"
    if (const auto channels = words.number(most_channels); channels && words.skip(" coll channels"))
      paths_.channels = *channels;
  }

  Paths take() {
    if (paths_.pairs.empty()) paths_.unknown = "NCCL's log names no connection of this rank";
    return std::move(paths_);
  }

 private:
  // "00/0 : 0[0] -> 1[1] via P2P/CUMEM/read"; "00 : 0[0] -> 1[1] via SHM/direct/direct"; "00/0 : 7[7] -> 8[0] [send] via
  // NET/IB/0(3)/GDRDMA". "00/24 : 0 1 2 3" is the order of a ring, not a connection.
  void connection(Words words) {
    if (!words.number(most_channels)) return;
    if (words.skip("/") && !words.number(most_channels)) return;
    if (!words.skip(" : ")) return;
    const auto from = words.number(whose_.size - 1);
    if (!from || !words.skip("[") || !words.skip_to("] -> ")) return;
    const auto to = words.number(whose_.size - 1);
    if (!to || !words.skip("[") || !words.skip_to("] ")) return;
    const bool receives = words.skip("[receive] ");
    static_cast<void>(words.skip("[send] "));
    if (!words.skip("via ")) return;
    const std::string_view rest = words.left();
    const std::string_view via = rest.starts_with("P2P/direct pointer") ? rest.substr(0, 18) : words.word();
    const auto carrier = carrier_of(via);
    const bool printable = std::all_of(via.begin(), via.end(), [](unsigned char c) { return std::isprint(c) != 0; });
    if (receives || !carrier || !printable || via.size() > longest_via || *from != whose_.rank || *from == *to) return;
    const std::string way = named_way(via, *carrier);
    const auto known = std::find_if(paths_.pairs.begin(), paths_.pairs.end(),
                                    [&](const PairPath& path) { return path.to == *to && path.via == way; });
    if (known != paths_.pairs.end()) {
      ++known->channels;
    } else {
      paths_.pairs.push_back({*from, *to, *carrier, way, 1});
    }
  }

  void algorithm(const char* name) {
    if (std::find(paths_.algorithms.begin(), paths_.algorithms.end(), name) == paths_.algorithms.end())
      paths_.algorithms.emplace_back(name);
  }

  const NcclLogLines whose_;
  const std::string process_, gpu_;
  Paths paths_;
};

// Expands %h and %p of NCCL_DEBUG_FILE.
std::string expanded(std::string_view pattern) {
  std::string path;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      path += pattern[i];
      continue;
    }
    const char what = pattern[++i];
    if (what == 'h') {
      path += host_name();
    } else if (what == 'p') {
      path += std::to_string(::getpid());
    } else {
      path += what == '%' ? "%" : std::string("%") + what;
    }
  }
  return path;
}

bool tells_of_connections(std::string level, std::string_view subsystems) {
  std::transform(level.begin(), level.end(), level.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const bool all = subsystems.empty() || subsystems.starts_with('^') || subsystems.find("INIT") != std::string_view::npos ||
                   subsystems.find("ALL") != std::string_view::npos;
  return (level == "INFO" || level == "TRACE") && all;
}

}  // namespace

Paths read_nccl_log(std::string_view text, const NcclLogLines& whose) {
  Reader reader(whose);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    reader.line(text.substr(at, end - at));
    at = end + 1;
  }
  return reader.take();
}

NcclLog::NcclLog() {
  const char* const level = std::getenv("NCCL_DEBUG");
  const char* const file = std::getenv("NCCL_DEBUG_FILE");
  const char* const subsystems = std::getenv("NCCL_DEBUG_SUBSYS");
  if (file && level && tells_of_connections(level, subsystems ? subsystems : "")) {
    path_ = expanded(file);
  } else if (level || file) {
    why_unread_ =
        "NCCL's log goes where the environment says, and plait cannot read it there: unset NCCL_DEBUG and NCCL_DEBUG_FILE, or "
        "set NCCL_DEBUG=INFO and NCCL_DEBUG_FILE to a file name with %p";
  } else {
    why_unread_ = "nothing keeps NCCL's log";
  }
}

std::uint64_t NcclLog::size() const {
  std::error_code error;
  const std::uint64_t bytes = path_.empty() ? 0 : std::filesystem::file_size(path_, error);
  return error ? 0 : bytes;
}

std::string NcclLog::since(std::uint64_t offset) const {
  const std::uint64_t end = size();
  if (end <= offset) return "";
  const std::uint64_t bytes = std::min(end - offset, most_bytes);
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(end - bytes));
  std::string text(bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount())));
  return text;
}

}  // namespace plait::comm
