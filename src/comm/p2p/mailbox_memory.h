// Builds a mailbox's memory from regions, for each transport.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/p2p/handle_exchange.h"
#include "comm/p2p/link.h"
#include "comm/p2p/mailbox.h"
#include "core/choices.h"

namespace plait::comm::p2p {

struct MailboxSpec {
  std::string name;                         // unique in the job; both ends give the same
  Transport transport = Transport::direct;  // not nccl
  Mover mover = Mover::copy_engine;
  std::size_t message_bytes = 0;   // of the largest message; 0: announcements only
  int slots = 2;                   // messages on their way at once, if a message fits a slot
  std::vector<Place> places = {};  // instead of slots, if arrives_in_place()
  Device device;                   // of this end
  Device peer_device;              // of the other one, if that is in this process
  bool fabric = false;             // vmm by fabric handles: both ends' machines allow them
  std::optional<Device> bridge;    // relay: the GPU in between, as the receiver's process numbers it
};

// True if one copy brings a message from the sender's memory to the receiver's; otherwise it stops in memory of the host or of
// a third GPU.
bool takes_one_hop(Transport transport);

// True if messages can be put straight into the receiver's memory: the sender moves them, and in one hop.
bool arrives_in_place(Transport transport, Mover mover, DeviceKind kind);

// Collective over the two ends. The slots are in the receiver's memory (sm_read: the sender's; relay: the bridge's; host: the
// host's), each counter in the memory of the end that waits for it (relay and host: the host's).
MailboxMemory make_mailbox_memory(End end, const MailboxSpec& spec, HandleExchange& exchange);

}  // namespace plait::comm::p2p
