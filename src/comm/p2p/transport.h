// The names of the ways a message can take. Each is two choices: where a mailbox's memory is and how both ends see it
// (Transport), and who moves the bytes (Mover).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace plait::comm::p2p {

// The best first.
enum class Transport {
  direct,  // one process: pointers, with peer access between GPUs
  vmm,     // GPUs of two processes: cuMemCreate and file descriptors; only the mailbox is shared
  ipc,     // GPUs of two processes: IPC handles of cudaMalloc's memory
  relay,   // slots in the memory of a third GPU that both ends reach
  host,    // slots in pinned host memory (CPUs: in memory that two processes share)
  nccl,    // no mailbox: send and receive of the communication library (Gloo's for CPUs)
};

enum class Mover {
  copy_engine,  // pushes to the receiver's memory; takes no SM from compute (a CPU: its stream's memcpy)
  sm_write,     // a kernel of the sender writes to the receiver's memory
  sm_read,      // a kernel of the receiver reads from the sender's memory
};

std::string to_string(Transport transport);
std::string to_string(Mover mover);
std::optional<Transport> transport_named(const std::string& name);  // nothing for "auto" and names that there are not
std::optional<Mover> mover_named(const std::string& name);

}  // namespace plait::comm::p2p
