// The choices of configuration keys, with their names in files. A key that may be left open (`auto`) is an Auto
// (config/auto.h) of one of these.
#pragma once

#include "core/names.h"

namespace plait {

// model.norm
enum class NormKind { layer_norm, rms_norm };
template <>
inline constexpr auto names<NormKind> =
    std::to_array<Name<NormKind>>({{NormKind::layer_norm, "layer_norm"}, {NormKind::rms_norm, "rms_norm"}});

// model.mlp
enum class Mlp { gelu, swiglu };
template <>
inline constexpr auto names<Mlp> = std::to_array<Name<Mlp>>({{Mlp::gelu, "gelu"}, {Mlp::swiglu, "swiglu"}});

// model.position
enum class Position { learned, rope };
template <>
inline constexpr auto names<Position> =
    std::to_array<Name<Position>>({{Position::learned, "learned"}, {Position::rope, "rope"}});

// data.documents: with `joined`, attention and positions continue from one document of a sequence into the next
enum class Documents { joined, separate };
template <>
inline constexpr auto names<Documents> =
    std::to_array<Name<Documents>>({{Documents::joined, "joined"}, {Documents::separate, "separate"}});

// data.document_token.place
enum class DocumentTokenPlace { begin, end };
template <>
inline constexpr auto names<DocumentTokenPlace> =
    std::to_array<Name<DocumentTokenPlace>>({{DocumentTokenPlace::begin, "begin"}, {DocumentTokenPlace::end, "end"}});

// data.chat_template: how a chat is written out for a model (data/chat.h)
enum class ChatFormat { none, chatml, qwen2, qwen2_5, llama2, llama3, llama3_1, mistral, zephyr, custom };
template <>
inline constexpr auto names<ChatFormat> = std::to_array<Name<ChatFormat>>({{ChatFormat::none, "none"},
                                                                           {ChatFormat::chatml, "chatml"},
                                                                           {ChatFormat::qwen2, "qwen2"},
                                                                           {ChatFormat::qwen2_5, "qwen2.5"},
                                                                           {ChatFormat::llama2, "llama2"},
                                                                           {ChatFormat::llama3, "llama3"},
                                                                           {ChatFormat::llama3_1, "llama3.1"},
                                                                           {ChatFormat::mistral, "mistral"},
                                                                           {ChatFormat::zephyr, "zephyr"},
                                                                           {ChatFormat::custom, "custom"}});

// train.optimizer.schedule: the learning rate after the warm-up (train/learning_rate.h)
enum class Decay { constant, cosine, linear, wsd };
template <>
inline constexpr auto names<Decay> = std::to_array<Name<Decay>>(
    {{Decay::constant, "constant"}, {Decay::cosine, "cosine"}, {Decay::linear, "linear"}, {Decay::wsd, "wsd"}});

// train.optimizer.decay_shape: how the learning rate falls at the end of `wsd` (train/learning_rate.h)
enum class DecayShape { linear, cosine, minus_sqrt };
template <>
inline constexpr auto names<DecayShape> = std::to_array<Name<DecayShape>>(
    {{DecayShape::linear, "linear"}, {DecayShape::cosine, "cosine"}, {DecayShape::minus_sqrt, "minus_sqrt"}});

// parallel.recompute: what backward recomputes instead of keeping it
enum class Recompute { none, selective, full };
template <>
inline constexpr auto names<Recompute> =
    std::to_array<Name<Recompute>>({{Recompute::none, "none"}, {Recompute::selective, "selective"}, {Recompute::full, "full"}});

// precision.matmul: the operands of the blocks' matrix products
enum class MatmulType { bf16, fp8 };
template <>
inline constexpr auto names<MatmulType> =
    std::to_array<Name<MatmulType>>({{MatmulType::bf16, "bf16"}, {MatmulType::fp8, "fp8"}});

// comm.backend
enum class Backend { nccl, gloo };
template <>
inline constexpr auto names<Backend> = std::to_array<Name<Backend>>({{Backend::nccl, "nccl"}, {Backend::gloo, "gloo"}});

// comm.p2p: where a mailbox's memory is and how both ends see it. The best first.
enum class Transport {
  direct,  // one process: pointers, with peer access between GPUs
  vmm,     // GPUs of two processes: cuMemCreate and file descriptors; only the mailbox is shared
  ipc,     // GPUs of two processes: IPC handles of cudaMalloc's memory
  relay,   // slots in the memory of a third GPU that both ends reach
  host,    // slots in pinned host memory (CPUs: in memory that two processes share)
  nccl,    // no mailbox: send and receive of the communication library (Gloo's for CPUs)
};
template <>
inline constexpr auto names<Transport> = std::to_array<Name<Transport>>({{Transport::direct, "direct"},
                                                                         {Transport::ipc, "ipc"},
                                                                         {Transport::vmm, "vmm"},
                                                                         {Transport::relay, "relay"},
                                                                         {Transport::host, "host"},
                                                                         {Transport::nccl, "nccl"}});

// All transports except through host memory and by the library's own choice.
constexpr bool needs_peer_access(Transport transport) { return transport < Transport::host; }

inline constexpr std::string_view transport_meanings =
    "Mailboxes: `direct` (GPUs with peer access, or CPUs, in one process), `vmm` and `ipc` (GPUs of two processes; `vmm` also "
    "of "
    "two hosts that one NVLink fabric joins), `relay` (through the memory of a third GPU), `host` (through pinned host memory; "
    "through shared memory between CPUs). `nccl`: send and receive of the communication library (Gloo's between CPUs), for "
    "comparison and between hosts.";

// comm.peer_access: whether GPUs use each other's memory
enum class PeerAccessUse {
  automatic,  // where the machine permits it
  off,        // never, neither by mailboxes nor by NCCL
};
template <>
inline constexpr auto names<PeerAccessUse> =
    std::to_array<Name<PeerAccessUse>>({{PeerAccessUse::automatic, "auto"}, {PeerAccessUse::off, "off"}});

// comm.require: the path without which a run does not start (comm/communicator.h)
enum class RequiredPath {
  none,
  p2p,   // within a host: GPU to GPU
  rdma,  // between hosts: GPUDirect RDMA
};
template <>
inline constexpr auto names<RequiredPath> =
    std::to_array<Name<RequiredPath>>({{RequiredPath::none, "none"}, {RequiredPath::p2p, "p2p"}, {RequiredPath::rdma, "rdma"}});

// comm.exchanges, comm.reductions: how the collectives of a group of ranks communicate
enum class CollectiveWay {
  links,    // as messages between stages do (comm/p2p/link_communicator.h)
  library,  // collectives of NCCL or Gloo
};
template <>
inline constexpr auto names<CollectiveWay> =
    std::to_array<Name<CollectiveWay>>({{CollectiveWay::links, "links"}, {CollectiveWay::library, "library"}});

// comm.braid: which passes are computed alternately, segment by segment (parallel/schedule/braids.h)
enum class Braid {
  none,
  passes,  // neighbouring passes, if that delays no other rank, and the pairs of a schedule file
  ahead,   // likewise on a rank with all stages, with the first forward too: another is computed before the first backward
  halves,  // the halves of a micro-batch, if there are no such passes
};
template <>
inline constexpr auto names<Braid> = std::to_array<Name<Braid>>(
    {{Braid::none, "none"}, {Braid::passes, "passes"}, {Braid::ahead, "ahead"}, {Braid::halves, "halves"}});

// comm.mover: who moves the bytes
enum class Mover {
  copy_engine,  // pushes to the receiver's memory; takes no SM from compute (a CPU: its stream's memcpy)
  sm_write,     // a kernel of the sender writes to the receiver's memory
  sm_read,      // a kernel of the receiver reads from the sender's memory
};
template <>
inline constexpr auto names<Mover> = std::to_array<Name<Mover>>(
    {{Mover::copy_engine, "copy_engine"}, {Mover::sm_write, "sm_write"}, {Mover::sm_read, "sm_read"}});

// launch.bind: automatic runs a rank on the processors near its GPU (site/rank_binding.h)
enum class RankBinding { automatic, none };
template <>
inline constexpr auto names<RankBinding> =
    std::to_array<Name<RankBinding>>({{RankBinding::automatic, "auto"}, {RankBinding::none, "none"}});

// train.graph: what is launched together as a CUDA graph
enum class GraphUse {
  automatic,     // instructions, and whole steps if a trial finds that faster (runtime/graph_trial.h)
  instructions,  // instructions that would otherwise delay the device (runtime/instruction_graphs.h)
  on,            // whole steps
  off,
};
template <>
inline constexpr auto names<GraphUse> = std::to_array<Name<GraphUse>>(
    {{GraphUse::automatic, "auto"}, {GraphUse::instructions, "instructions"}, {GraphUse::on, "on"}, {GraphUse::off, "off"}});

// placement.strategy
enum class PlacementStrategy {
  automatic,  // the cheapest placement
  order,      // rank r on GPU r
  worst,      // the costliest, to see what placement is worth
  given,      // placement.devices
};
template <>
inline constexpr auto names<PlacementStrategy> =
    std::to_array<Name<PlacementStrategy>>({{PlacementStrategy::automatic, "auto"},
                                            {PlacementStrategy::order, "order"},
                                            {PlacementStrategy::worst, "worst"},
                                            {PlacementStrategy::given, "explicit"}});

// launch.mode; auto: external under an outside launcher, else threads
enum class LaunchMode { threads, processes, external };
template <>
inline constexpr auto names<LaunchMode> = std::to_array<Name<LaunchMode>>(
    {{LaunchMode::threads, "threads"}, {LaunchMode::processes, "processes"}, {LaunchMode::external, "external"}});

// study.scaling: what grows with the number of ranks
enum class Scaling { strong, weak, model, isoflop };
template <>
inline constexpr auto names<Scaling> = std::to_array<Name<Scaling>>(
    {{Scaling::strong, "strong"}, {Scaling::weak, "weak"}, {Scaling::model, "model"}, {Scaling::isoflop, "isoflop"}});

// study.measure.order
enum class RoundOrder { shuffled, listed };
template <>
inline constexpr auto names<RoundOrder> =
    std::to_array<Name<RoundOrder>>({{RoundOrder::shuffled, "shuffled"}, {RoundOrder::listed, "listed"}});

// study.simulate.network (topology/assumed_topology.h)
enum class SimulatedNetwork { rail, flat };
template <>
inline constexpr auto names<SimulatedNetwork> =
    std::to_array<Name<SimulatedNetwork>>({{SimulatedNetwork::rail, "rail"}, {SimulatedNetwork::flat, "flat"}});

}  // namespace plait
