// Memory that two ranks share, without GPUs.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "comm/p2p/region.h"
#include "core/error.h"
#include "core/stream.h"
#include "descriptor_count.h"
#include "rank_processes.h"
#include "rank_threads.h"

namespace plait::comm::p2p {
namespace {

using std::chrono::seconds;
using test::outcome_of_ranks;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t region_bytes = 100'001;  // no multiple of a page

RegionSpec spec_of(RegionKind kind, const std::string& name, std::size_t bytes = region_bytes) {
  RegionSpec spec;
  spec.kind = kind;
  spec.name = name;
  spec.bytes = bytes;
  return spec;
}

bool is_zero(const Region& region) {
  return std::all_of(region.data(), region.data() + region.bytes(), [](std::byte b) { return b == std::byte{0}; });
}

// The two ends write in turn, by counters in the region's own first bytes, and see what the other wrote everywhere.
void converse(const Region& region, int rank) {
  auto* const turn = reinterpret_cast<std::uint32_t*>(region.data());
  for (std::uint32_t round = 0; round < 50; ++round) {
    await_counter(turn, 2 * round + static_cast<std::uint32_t>(rank));
    std::byte* const first = region.data() + 64;
    std::byte* const last = region.data() + region.bytes();
    if (round > 0 || rank == 1) {
      const auto theirs = static_cast<std::byte>(3 * (rank == 1 ? round : round - 1) + (rank == 1 ? 1 : 2));
      EXPECT_TRUE(std::all_of(first, last, [&](std::byte b) { return b == theirs; })) << "round " << round;
    }
    std::fill(first, last, static_cast<std::byte>(3 * round + (rank == 0 ? 1 : 2)));
    write_counter(turn, 2 * round + static_cast<std::uint32_t>(rank) + 1);
  }
}

class P2pRegion : public test::NothingLeftBehind {
 protected:
  std::shared_ptr<Rendezvous> store = make_thread_rendezvous();
};

class P2pRegionKind : public P2pRegion, public testing::WithParamInterface<RegionKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, P2pRegionKind, testing::Values(RegionKind::thread_memory, RegionKind::host_memory),
                         [](const auto& kind) { return kind.param == RegionKind::host_memory ? "host" : "thread"; });

TEST_P(P2pRegionKind, IsTheSameMemoryForTwoThreads) {
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    Meeting meeting(*store, "pair", rank, 2, seconds(30));
    HandleExchange exchange(meeting);
    const RegionSpec spec = spec_of(GetParam(), "region");
    const auto region = rank == 0 ? export_region(spec, exchange) : import_region(spec, exchange);
    ASSERT_EQ(region->bytes(), region_bytes);
    if (rank == 1) {
      EXPECT_TRUE(is_zero(*region));
      store->set("seen as zero", "");
    } else {
      store->get("seen as zero", seconds(30));
    }
    converse(*region, rank);
  });
  EXPECT_THAT(outcome, ElementsAre("", ""));
}

TEST_P(P2pRegionKind, LivesUntilBothHaveLetGo) {
  std::unique_ptr<Region> imported;
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    Meeting meeting(*store, "pair", rank, 2, seconds(30));
    HandleExchange exchange(meeting);
    const RegionSpec spec = spec_of(GetParam(), "region");
    if (rank == 0) {
      const auto region = export_region(spec, exchange);
      std::fill_n(region->data(), region->bytes(), std::byte{7});
      store->set("written", "");
    } else {
      imported = import_region(spec, exchange);
      store->get("written", seconds(30));
    }
  });
  EXPECT_THAT(outcome, ElementsAre("", ""));
  EXPECT_TRUE(std::all_of(imported->data(), imported->data() + region_bytes, [](std::byte b) { return b == std::byte{7}; }));
}

TEST_P(P2pRegionKind, SizesThatDisagreeAreRefused) {
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    Meeting meeting(*store, "pair", rank, 2, seconds(30));
    HandleExchange exchange(meeting);
    if (rank == 0) {
      export_region(spec_of(GetParam(), "region", 8192), exchange);
    } else {
      import_region(spec_of(GetParam(), "region", 16384), exchange);
    }
  });
  EXPECT_THAT(outcome[1], AllOf(HasSubstr("'region'"), HasSubstr("8192"), HasSubstr("16384")));
}

const plait::test::ChildProcess host_memory_child("P2pRegionHostMemory", [] {
  test::ProcessPlace place;
  Meeting meeting(*place.store, "pair", place.rank, 2, seconds(30));
  HandleExchange exchange(meeting);
  const std::size_t descriptors = test::open_descriptors();
  {
    const RegionSpec spec = spec_of(RegionKind::host_memory, "region");
    const auto region = place.rank == 0 ? export_region(spec, exchange) : import_region(spec, exchange);
    EXPECT_EQ(test::lines_with("/proc/self/maps", "plait-mailbox"), 1);
    converse(*region, place.rank);
  }
  EXPECT_EQ(test::open_descriptors(), descriptors);
  EXPECT_EQ(test::lines_with("/proc/self/maps", "plait-mailbox"), 0);
});

TEST_F(P2pRegion, HostMemoryIsTheSameForTwoProcesses) {
  for (const test::Ended& rank : test::run_processes(host_memory_child, 2)) {
    EXPECT_TRUE(WIFEXITED(rank.status) && WEXITSTATUS(rank.status) == 0) << rank.output;
  }
}

const plait::test::ChildProcess thread_memory_child("P2pRegionThreadMemory", [] {
  test::ProcessPlace place;
  Meeting meeting(*place.store, "pair", place.rank, 2, seconds(2));
  HandleExchange exchange(meeting);
  const RegionSpec spec = spec_of(RegionKind::thread_memory, "region");
  if (place.rank == 0) {
    EXPECT_THROW(export_region(spec, exchange), InternalError);
    place.store->set(meeting.key("region", 0), "140737488355328");
  } else {
    EXPECT_THROW(import_region(spec, exchange), InternalError) << "a pointer of another process";
  }
});

TEST_F(P2pRegion, ThreadMemoryDoesNotCrossProcesses) {
  for (const test::Ended& rank : test::run_processes(thread_memory_child, 2)) {
    EXPECT_TRUE(WIFEXITED(rank.status) && WEXITSTATUS(rank.status) == 0) << rank.output;
  }
}

// What importing `file` as a host region says.
std::string refusal_of(Rendezvous& store, int file) {
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    Meeting meeting(store, "pair", rank, 2, seconds(30));
    HandleExchange exchange(meeting);
    if (rank == 0) return exchange.give_descriptor("file" + std::to_string(file), file);
    import_region(spec_of(RegionKind::host_memory, "file" + std::to_string(file), 8192), exchange);
  });
  EXPECT_EQ(outcome[0], "");
  return outcome[1];
}

FileDescriptor memory_file(off_t bytes, int seals) {
  FileDescriptor file(::memfd_create("region-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(file.get(), bytes), 0);
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

TEST_F(P2pRegion, OnlySealedMemoryOfTheRightSizeIsMapped) {
  constexpr int sealed = F_SEAL_SHRINK | F_SEAL_GROW;
  const FileDescriptor good = memory_file(8192, sealed), truncated = memory_file(4096, sealed), empty = memory_file(0, sealed),
                       larger = memory_file(12288, sealed), growing = memory_file(8192, F_SEAL_SHRINK),
                       shrinking = memory_file(8192, F_SEAL_GROW), no_file(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)),
                       zero(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(refusal_of(*store, good.get()), "");
  EXPECT_THAT(refusal_of(*store, truncated.get()), HasSubstr("has 4096 bytes instead of 8192"));
  EXPECT_THAT(refusal_of(*store, empty.get()), HasSubstr("has 0 bytes instead of 8192"));
  EXPECT_THAT(refusal_of(*store, larger.get()), HasSubstr("has 12288 bytes instead of 8192"));
  EXPECT_THAT(refusal_of(*store, growing.get()), HasSubstr("not sealed"));
  EXPECT_THAT(refusal_of(*store, shrinking.get()), HasSubstr("not sealed"));
  EXPECT_THAT(refusal_of(*store, no_file.get()), HasSubstr("not shared memory"));
  EXPECT_THAT(refusal_of(*store, zero.get()), HasSubstr("not shared memory"));
}

TEST_F(P2pRegion, ImpossibleSizesAreErrorsInWords) {
  Meeting meeting(*store, "pair", 0, 2, seconds(1));
  HandleExchange exchange(meeting);
  try {
    export_region(spec_of(RegionKind::host_memory, "huge", std::size_t{1} << 62), exchange);
    FAIL() << "4 EiB of shared memory";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'huge'"), HasSubstr("are available")));
  }
}

TEST_F(P2pRegion, KindsAndDevicesMustFit) {
  Meeting meeting(*store, "pair", 0, 2, seconds(1));
  HandleExchange exchange(meeting);
  RegionSpec spec = spec_of(RegionKind::vmm, "vmm of a CPU");
  EXPECT_THROW(export_region(spec, exchange), InternalError);
  EXPECT_THROW(import_region(spec, exchange), InternalError);
  spec.kind = RegionKind::host_memory;
  spec.memory_on = {DeviceKind::cuda, 0};
  EXPECT_THROW(export_region(spec, exchange), InternalError);
  EXPECT_THROW(export_region(spec_of(RegionKind::host_memory, "empty", 0), exchange), InternalError);
  EXPECT_THROW(export_region(spec_of(RegionKind::host_memory, ""), exchange), InternalError);
}

}  // namespace
}  // namespace plait::comm::p2p
