#include "launch/launch_environment.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "comm/tcp/rendezvous.h"
#include "comm/tcp/socket.h"
#include "config/tcp_place.h"
#include "core/error.h"
#include "core/parse_number.h"
#include "core/units.h"
#include "launch/launch_processes.h"
#include "site/devices.h"
#include "site/outside_launcher.h"

namespace plait::launch {
namespace {

constexpr const char* token_variable = "PLAIT_TOKEN";
constexpr std::size_t shortest_token = 16, longest_token = 4096;

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

[[noreturn]] void refuse(const std::string& path, const std::string& value, const std::string& rule) {
  throw ConfigError({{path, value, rule, "", 0}});
}

std::string read_token_file(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) refuse("launch.token_file", path, "cannot be read: " + errno_text());
  if (!S_ISREG(status.st_mode)) refuse("launch.token_file", path, "is not a file");
  if ((status.st_mode & 007) != 0) {
    refuse("launch.token_file", path,
           "is open to every user of this host: chmod 600 (of a Kubernetes secret, defaultMode: 0400)");
  }
  std::ifstream file(path, std::ios::binary);
  std::string token(longest_token + 1, '\0');
  file.read(token.data(), static_cast<std::streamsize>(token.size()));
  if (!file.eof() && !file) refuse("launch.token_file", path, "cannot be read: " + errno_text());
  token.resize(static_cast<std::size_t>(file.gcount()));
  return token;
}

comm::Secret token_of(const Config& config) {
  const bool from_file = !config.launch.token_file.empty();
  std::string token = from_file ? read_token_file(config.launch.token_file) : variable(token_variable);
  const std::string path = from_file ? "launch.token_file" : std::string("environment variable ") + token_variable;
  const std::string value = from_file ? config.launch.token_file : "";  // a secret is not shown
  while (!token.empty() && std::strchr(" \t\r\n", token.back())) token.pop_back();
  if (token.empty() && !from_file) {
    refuse(
        path, value,
        "is missing: with launch.rendezvous=tcp all ranks need the same secret, there or in launch.token_file; make one with "
        "`openssl rand -hex 32`");
  }
  if (token.size() < shortest_token || token.size() > longest_token) {
    refuse(path, value,
           "has " + std::to_string(token.size()) + " characters; must have " + std::to_string(shortest_token) + " to " +
               std::to_string(longest_token) + ", which nobody can guess: `openssl rand -hex 32`");
  }
  return comm::Secret::from_token(token);
}

// The variables of PyTorch launchers fill in what launch.rendezvous leaves open.
TcpPlace complete(TcpPlace place, const std::string& text) {
  const bool needs_port = place.port == 0;
  if (place.host.empty()) place.host = variable("MASTER_ADDR");
  if (needs_port) {
    place.port = whole_number<int>(variable("MASTER_PORT")).value_or(0);
    if (place.port < 1 || place.port > 65535) place.port = 0;
  }
  std::vector<ConfigProblem> problems;
  const auto lacks = [&](const char* name, const char* instead) {
    problems.push_back(
        {std::string("environment variable ") + name, variable(name),
         "launch.rendezvous=" + text + " needs it, and no launcher has set it rightly; or name the place: " + instead, "", 0});
  };
  if (place.host.empty()) lacks("MASTER_ADDR", "tcp://HOST:PORT");
  if (place.port == 0) lacks("MASTER_PORT", "tcp://:PORT");
  if (!problems.empty()) throw ConfigError(std::move(problems));
  if (needs_port && variable("TORCHELASTIC_USE_AGENT_STORE") == "True") {
    refuse("launch.rendezvous", text,
           "torchrun itself listens at MASTER_PORT (" + std::to_string(place.port) +
               ") and says so by TORCHELASTIC_USE_AGENT_STORE; name another port, the same for all ranks: tcp://:" +
               std::to_string(place.port == 65535 ? 29500 : place.port + 1));
  }
  return place;
}

std::shared_ptr<comm::Rendezvous> over_tcp(const Config& config, const TcpPlace& given, int rank, int size,
                                           const std::string& job) {
  const TcpPlace place = complete(given, config.launch.rendezvous);
  const comm::TcpRendezvousSpec spec{.host = place.host,
                                     .port = place.port,
                                     .token = token_of(config),
                                     .ranks = size,
                                     .job = job + ", " + std::to_string(size) + " ranks",
                                     .timeout = milliseconds_of(config.comm.timeout_s)};
  if (rank != 0) return comm::join_tcp_rendezvous(spec);
  try {
    return comm::serve_tcp_rendezvous(
        spec, comm::rendezvous_addresses(place.host, comm::local_address(config.comm.interface), spec.timeout));
  } catch (CommError& error) {
    error.add_prefix("launch.rendezvous=" + config.launch.rendezvous + ", where rank 0 (this process) is to listen: ");
    throw;
  }
}

Device external_device(const Config& config, int local_rank) {
  const site::DeviceChoice devices = site::choose_devices(config);
  if (devices.kind == DeviceKind::host) return {DeviceKind::host, local_rank};
  if (devices.count == 1) return {DeviceKind::cuda, 0};  // the launcher shows each rank its own GPU only
  if (local_rank >= devices.count) {
    throw ConfigError({{"environment variable " + site::local_rank_variable(), std::to_string(local_rank),
                        "this host has only " + std::to_string(devices.count) + " GPUs, and each rank needs its own", "", 0}});
  }
  return {DeviceKind::cuda, local_rank};
}

RankContext outside_context(const Config& config) {
  const site::OutsidePlace place = site::outside_place(config);
  RankContext context;
  context.rank = place.rank;
  context.size = place.size;
  context.local_rank = place.local_rank;
  context.is_main = place.rank == 0;
  return context;
}

RankContext child_place() {
  std::vector<ConfigProblem> problems;
  RankContext context;
  context.rank = site::number_of(rank_variable, problems);
  context.size = site::number_of(size_variable, problems, 1);
  const int launcher = site::number_of(launcher_variable, problems);
  site::check_place(context.rank, context.size, rank_variable, problems);

  // No rank outlives its launcher. If the launcher died before this call, this process already has another parent.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) throw CommError(std::string("prctl(PR_SET_PDEATHSIG): ") + std::strerror(errno));
  if (::getppid() != launcher) throw CommError("rank " + std::to_string(context.rank) + ": the launcher is gone");

  context.local_rank = context.rank;
  context.is_main = context.rank == 0;
  return context;
}

}  // namespace

std::shared_ptr<comm::Rendezvous> open_rendezvous(const Config& config, int rank, int size, const std::string& job) {
  const std::string& text = config.launch.rendezvous;
  if (const auto place = tcp_place(text)) return over_tcp(config, *place, rank, size, job);
  std::error_code error;
  std::filesystem::create_directories(text, error);
  if (error) refuse("launch.rendezvous", text, "cannot be created: " + error.message());
  return comm::make_directory_rendezvous((std::filesystem::path(text) / job).string());
}

std::optional<RankContext> place_from_environment(const Config& config) {
  if (site::launch_mode(config) == LaunchMode::external) return outside_context(config);
  if (config.launch.mode == LaunchMode::processes && std::getenv(rank_variable)) return child_place();
  return std::nullopt;
}

std::shared_ptr<comm::Rendezvous> rendezvous_of(const RankContext& place, const Config& config) {
  if (site::launch_mode(config) == LaunchMode::external)
    return open_rendezvous(config, place.rank, place.size, site::outside_job_name());
  std::vector<ConfigProblem> problems;
  const int memory = site::number_of(rendezvous_variable, problems);
  if (!problems.empty()) throw ConfigError(std::move(problems));
  auto rendezvous = comm::make_memory_rendezvous(memory);
  ::fcntl(memory, F_SETFD, FD_CLOEXEC);  // left open for this process alone
  return rendezvous;
}

std::optional<RankContext> rank_from_environment(const Config& config, std::shared_ptr<comm::Rendezvous> joined) {
  std::optional<RankContext> context = place_from_environment(config);
  if (!context) return context;
  context->device = site::launch_mode(config) == LaunchMode::external
                        ? external_device(config, context->local_rank)
                        : site::placed_device(config, site::choose_devices(config), context->rank, context->size);
  context->rendezvous = joined ? std::move(joined) : rendezvous_of(*context, config);
  return context;
}

}  // namespace plait::launch
