#include "comm/p2p/transport.h"

#include <array>

#include "core/error.h"

namespace plait::comm::p2p {
namespace {

template <typename Choice>
struct Named {
  Choice choice;
  const char* name;
};

constexpr std::array<Named<Transport>, 6> transports{{{Transport::direct, "direct"},
                                                      {Transport::ipc, "ipc"},
                                                      {Transport::vmm, "vmm"},
                                                      {Transport::relay, "relay"},
                                                      {Transport::host, "host"},
                                                      {Transport::nccl, "nccl"}}};

constexpr std::array<Named<Mover>, 3> movers{
    {{Mover::copy_engine, "copy_engine"}, {Mover::sm_write, "sm_write"}, {Mover::sm_read, "sm_read"}}};

template <typename Table, typename Choice>
std::string name_in(const Table& table, Choice choice) {
  for (const auto& entry : table) {
    if (entry.choice == choice) return entry.name;
  }
  throw InternalError("a transport or mover without a name");
}

template <typename Choice, std::size_t count>
std::optional<Choice> choice_in(const std::array<Named<Choice>, count>& table, const std::string& name) {
  for (const auto& entry : table) {
    if (name == entry.name) return entry.choice;
  }
  return std::nullopt;
}

}  // namespace

std::string to_string(Transport transport) { return name_in(transports, transport); }
std::string to_string(Mover mover) { return name_in(movers, mover); }
std::optional<Transport> transport_named(const std::string& name) { return choice_in(transports, name); }
std::optional<Mover> mover_named(const std::string& name) { return choice_in(movers, name); }

}  // namespace plait::comm::p2p
