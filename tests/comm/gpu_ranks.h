// Groups of GPU ranks for tests, one thread and one GPU each.
#pragma once

#include <gtest/gtest.h>

#include "rank_threads.h"

namespace plait::comm::test {

inline GroupSpec gpu_group(int rank, int size, std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  GroupSpec spec = host_group(rank, size, timeout);
  spec.device = {DeviceKind::cuda, rank};
  return spec;
}

// Runs `body` on every rank of a group that `adjust` has had its say on.
inline std::vector<std::string> on_gpu_group(
    int size, const std::function<void(Communicator&, Device)>& body,
    const std::function<void(GroupSpec&)>& adjust = [](GroupSpec&) {}) {
  const auto store = make_thread_rendezvous();
  return outcome_of_ranks(size, [&](int rank) {
    GroupSpec spec = gpu_group(rank, size);
    adjust(spec);
    make_current(spec.device);
    const auto communicator = make_communicator(spec, *store);
    body(*communicator, spec.device);
  });
}

inline void skip_below(int needed) {
  std::string why;
  const int devices = cuda_device_count(&why);
  if (devices < needed) {
    GTEST_SKIP() << "needs " << needed << " GPUs, has " << devices << (why.empty() ? "" : " (" + why + ")");
  }
}

// By number of ranks; those with more than there are GPUs are skipped.
class GpuRanks : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { skip_below(GetParam()); }
};

class TwoGpuRanks : public testing::Test {
 protected:
  void SetUp() override { skip_below(2); }
};

}  // namespace plait::comm::test
