// Pipeline schedules from files, in the CSV form that PyTorch's torch.distributed.pipelining writes (_dump_csv) and torchtitan
// loads.
//
// One line per pipeline rank, in order; cells are separated by commas, an empty one is idle. A cell is
//   <stage>F<micro-batch>   forward            <stage>B<micro-batch>   whole backward
//   <stage>I<micro-batch>   its input part     <stage>W<micro-batch>   its weight part
//   (<action>;<action>)OVERLAP_F_B             a forward and a backward (B or I), which may run together: in this order
// Actions that PyTorch's runtime needs and plait adds by itself are skipped: SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, RESHARD
// and REDUCE_GRAD. The rank of a stage follows from the lines that name it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

enum class PassKind {
  forward,
  backward,         // both parts
  backward_input,   // gradient of the stage's input (B in Qi et al. 2023)
  backward_weight,  // gradients of its weights (W)
};

// What the stage before goes on with: a whole backward, or its input part.
constexpr bool yields_gradient(PassKind kind) { return kind == PassKind::backward || kind == PassKind::backward_input; }
// After it the stage's weights have its micro-batch's gradient: a whole backward, or its weight part.
constexpr bool adds_to_weights(PassKind kind) { return kind == PassKind::backward || kind == PassKind::backward_weight; }

struct StagePass {
  PassKind kind = PassKind::forward;
  int stage = 0, micro_batch = 0;
  bool braided = false;  // may run together with the pass before it on its rank
  friend bool operator==(const StagePass&, const StagePass&) = default;
};

std::string to_string(const StagePass& pass);  // "3B1"

// A valid schedule: every stage is on one rank and goes forward and backward through every micro-batch once, in an order that
// does not deadlock.
struct ScheduleFile {
  std::string path;
  std::string text;                           // contents of the file
  std::vector<std::vector<StagePass>> ranks;  // of each pipeline rank, in order
  std::vector<int> rank_of_stage;
  int micro_batches = 0;
  bool splits_backward = false;  // some weight part is a separate pass
};

// Files are not trusted: larger ones are refused.
inline constexpr std::size_t most_schedule_bytes = std::size_t{16} << 20;

// Null if it cannot be read or cannot run; `problem` then gives the reason, with rank and position if there is one.
std::shared_ptr<const ScheduleFile> read_schedule_file(const std::string& path, std::string& problem);
std::shared_ptr<const ScheduleFile> parse_schedule(std::string text, const std::string& path, std::string& problem);

// A hash of the passes: files that differ in more than form have different ones, except for one chance in 2^64.
std::string fingerprint(const ScheduleFile& file);

// Writes that form, without idle cells. Braided passes are marked if they are a forward and a backward.
std::string schedule_csv(const std::vector<std::vector<StagePass>>& ranks);

}  // namespace plait
