// What plait promises of messages between GPUs that NVLink joins; `plait bench p2p --check` holds a run against it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace plait::train {

// A figure and what it has to be: `at_least` the limit, or at most.
struct Bar {
  std::string what;
  std::string pair;  // "0 -> 1"
  double value = 0;
  double limit = 0;
  bool at_least = true;
  bool measured = true;  // false: the run has no such figure, which is as bad as a wrong one
  bool met() const { return measured && (at_least ? value >= limit : value <= limit); }
  std::string to_string() const;
};

// For each pair with NVLink of the result of a run (p2p_benchmark.h). With "best" the best of the mailboxes, one way unless said:
//   best >= 1.08 x NCCL's send and receive at 16, 64 and 256 MB      best of both ways >= 1.9 x best of one way at these
//   best <= 10 us for 1 MB, <= 7 us for 4 KB, back to back
//   slowdown of products beside messages of 16 MB: the smallest of the mailboxes <= half of NCCL's, each of the end that suffers more
//   a plain copy without peer access <= a fifth of best at 256 MB: the cliff is seen (where ranks are threads)
// A result without any such pair has one bar, which is not met.
std::vector<Bar> evaluate_bars(const nlohmann::ordered_json& result);

nlohmann::ordered_json to_json(const std::vector<Bar>& bars);  // {"passed", "bars", "missed"}

}  // namespace plait::train
