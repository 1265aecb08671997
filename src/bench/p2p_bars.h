// What plait promises of messages between GPUs that NVLink joins; `plait bench p2p --check` holds a run against it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace plait::bench {

// A figure and what it has to be: `at_least` the limit, or at most.
struct Bar {
  std::string what;
  std::string pair;  // "0 -> 1"
  double value = 0;
  double limit = 0;
  bool at_least = true;
  bool measured = true;        // false: the run has no such figure, which is as bad as a wrong one
  std::string undecided = {};  // why the figures of this run say neither that it is met nor that it is missed
  bool met() const { return undecided.empty() && measured && (at_least ? value >= limit : value <= limit); }
  bool missed() const { return undecided.empty() && !met(); }
  std::string to_string() const;
};

// For each pair with NVLink of the result of a run (p2p_benchmark.h). With "best" the best of the mailboxes, one way unless
// said:
//   best >= 1.08 x NCCL's send and receive at 16, 64 and 256 MB      best of both ways >= 1.9 x best of one way at these
//   best <= 10 us for 1 MB, <= 7 us for 4 KB, back to back
//   slowdown of products beside messages of 16 MB: the smallest of the mailboxes <= half of NCCL's, each of the end that
//   suffers more.
//     Of those that moved as many messages as NCCL, and in time (nine tenths before the products were done). Undecided where
//     NCCL's did not come in time, or where half of its slowdown is less than the noise of products alone
//   a plain copy without peer access <= a fifth of best at 256 MB: the cliff is seen (where ranks are threads)
// A result without any such pair has one bar, which is not met.
std::vector<Bar> evaluate_bars(const nlohmann::ordered_json& result);

nlohmann::ordered_json to_json(
    const std::vector<Bar>& bars);  // {"passed": none is missed, "bars", "missed": [text], "undecided": [text]}

}  // namespace plait::bench
