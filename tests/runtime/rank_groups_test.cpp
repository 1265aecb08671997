// Ranks make and leave their communicators and links in the right order.
#include "runtime/rank_groups.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/forwarding_link.h"
#include "runtime/rank_threads.h"

namespace plait::runtime {
namespace {

using Hop = std::pair<int, int>;  // from, to

// A link that reports its end.
class Departing final : public comm::test::ForwardingLink {
 public:
  Departing(std::shared_ptr<comm::p2p::Link> inner, std::function<void()> goes)
      : ForwardingLink(std::move(inner)), goes_(std::move(goes)) {}
  ~Departing() override { goes_(); }

 private:
  std::function<void()> goes_;
};

std::vector<Hop> between(const std::vector<Hop>& hops, int a, int b) {
  std::vector<Hop> shared;
  for (const Hop& hop : hops) {
    if (std::minmax(hop.first, hop.second) == std::minmax(a, b)) shared.push_back(hop);
  }
  return shared;
}

// Each end of a link may wait for the other when it is destroyed (NCCL and IPC between processes do).
TEST(RankGroups, BothEndsLeaveTheirLinksInOneOrder) {
  Config config = small_job(6);
  config.train.global_batch = 6;
  config.parallel.size[Axis::pipeline] = 3, config.parallel.schedule = ScheduleKind::interleaved,
  config.parallel.virtual_stages = 2;
  std::mutex mutex;
  std::map<int, std::vector<Hop>> made, left;  // by rank
  run_ranks(
      config, 3, DeviceKind::host, [](Interpreter&, SyntheticBatches&) {}, {},
      [&](GroupOptions& groups) {
        groups.make_link = [&](const comm::p2p::LinkSpec& spec, comm::Rendezvous& store) {
          auto link = comm::p2p::make_link(spec, store);
          const Hop hop(spec.from, spec.to);
          const std::lock_guard making(mutex);
          made[spec.rank].push_back(hop);
          return std::make_unique<Departing>(std::move(link), [&, rank = spec.rank, hop] {
            const std::lock_guard leaving(mutex);
            left[rank].push_back(hop);
          });
        };
      });
  for (int a = 0; a < 3; ++a) {
    EXPECT_EQ(made[a].size(), 4u) << "both ways to both neighbours in the ring";
    EXPECT_EQ(left[a].size(), 4u);
    for (int b = 0; b < a; ++b) {
      EXPECT_EQ(between(made[a], a, b), between(made[b], a, b));
      EXPECT_EQ(between(left[a], a, b), between(left[b], a, b));
    }
  }
}

}  // namespace
}  // namespace plait::runtime
