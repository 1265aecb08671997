// Memory that two GPU ranks share, the kernel that copies in it, and what is found out about GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "comm/p2p/choice.h"
#include "comm/p2p/mover.h"
#include "comm/p2p/region.h"
#include "core/error.h"
#include "core/error_of.h"
#include "core/format.h"
#include "core/stream.h"
#include "descriptor_count.h"
#include "gpu_ranks.h"
#include "rank_processes.h"

namespace plait::comm::p2p {
namespace {

using std::chrono::seconds;
using test::outcome_of_ranks;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::size_t some_bytes = 5'000'001;  // no multiple of a block or page

template <int count>
class GpuP2p : public testing::Test {
 protected:
  void SetUp() override { test::skip_below(count); }
};
using GpuP2pOfOne = GpuP2p<1>;
using GpuP2pOfTwo = GpuP2p<2>;
using GpuP2pOfThree = GpuP2p<3>;

Device gpu(int index) { return {DeviceKind::cuda, index}; }

// Bytes that differ from their neighbours and between seeds.
std::vector<unsigned char> pattern(std::size_t bytes, unsigned seed) {
  std::vector<unsigned char> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<unsigned char>((i * 131 + (i >> 8) * 17 + seed * 59 + 1) % 251);
  return data;
}

std::vector<unsigned char> read_back(Device device, const std::byte* memory, std::size_t bytes) {
  std::vector<unsigned char> data(bytes);
  const Stream stream(device);
  stream.ref().copy(data.data(), memory, bytes);
  stream.ref().synchronize();
  return data;
}

void write_to(Device device, std::byte* memory, const std::vector<unsigned char>& data) {
  const Stream stream(device);
  stream.ref().copy(memory, data.data(), data.size());
  stream.ref().synchronize();
}

struct Shared {
  RegionKind kind = RegionKind::thread_memory;
  int memory_on = 0;  // the GPU whose memory it is
  std::string name() const {
    const char* const kinds[] = {"thread", "ipc", "vmm", "host"};
    return std::string(kinds[static_cast<int>(kind)]) + "_on_" + std::to_string(memory_on);
  }
};

RegionSpec spec_of(const Shared& shared, Device used_by, const std::string& name) {
  RegionSpec spec;
  spec.kind = shared.kind;
  spec.name = name;
  spec.bytes = some_bytes;
  spec.memory_on = shared.kind == RegionKind::host_memory ? Device{} : gpu(shared.memory_on);
  spec.used_by = used_by;
  return spec;
}

// Rank 0 exports, rank 1 imports; each sees what the other's GPU wrote, by copy engine, kernel and counters.
void exercise(int rank, const Shared& shared, Rendezvous& store, const std::string& name, Device device) {
  make_current(device);
  Meeting meeting(store, name, rank, 2, seconds(60));
  HandleExchange exchange(meeting);
  const std::string done = name + "/";
  const RegionSpec spec = spec_of(shared, device, name);
  auto region = rank == 0 ? export_region(spec, exchange) : import_region(spec, exchange);
  ASSERT_EQ(region->bytes(), some_bytes);
  const auto theirs = [&](const std::string& what) { store.get(done + what, seconds(60)); };
  if (rank == 1) {
    const auto zero = read_back(device, region->data(), some_bytes);
    EXPECT_TRUE(std::all_of(zero.begin(), zero.end(), [](unsigned char c) { return c == 0; })) << "not cleared";
    write_to(device, region->data(), pattern(some_bytes, 1));
    store.set(done + "first", "");
    theirs("second");
    EXPECT_EQ(read_back(device, region->data(), some_bytes), pattern(some_bytes, 2));
  } else {
    theirs("first");
    EXPECT_EQ(read_back(device, region->data(), some_bytes), pattern(some_bytes, 1));
    DeviceMemory memory(device);
    const Buffer own = memory.allocate(some_bytes);
    write_to(device, static_cast<std::byte*>(own.data()), pattern(some_bytes, 2));
    const Stream stream(device);
    copy_by_kernel(stream, region->data(), own.data(), some_bytes);
    stream.ref().synchronize();
    store.set(done + "second", "");
  }
  meeting.meet("compared");
  // Counters in turn: 1, 2, 3, ... each by the stream of one end.
  auto* const counter = reinterpret_cast<std::uint32_t*>(region->data());
  {
    const Stream stream(device);
    if (rank == 0) stream.ref().write_value(counter, 0);
    if (rank == 0) stream.ref().synchronize();
    meeting.meet("counting");
    for (std::uint32_t turn = 0; turn < 100; ++turn) {
      stream.ref().wait_value(counter, 2 * turn + static_cast<std::uint32_t>(rank));
      stream.ref().write_value(counter, 2 * turn + static_cast<std::uint32_t>(rank) + 1);
    }
    stream.ref().synchronize();
  }
  meeting.meet("counted");
  if (rank == 1) region.reset();
  meeting.meet("let go");
}

class GpuP2pRegion : public testing::TestWithParam<Shared> {
 protected:
  void SetUp() override { test::skip_below(2); }
};
INSTANTIATE_TEST_SUITE_P(Threads, GpuP2pRegion,
                         testing::Values(Shared{RegionKind::thread_memory, 0}, Shared{RegionKind::thread_memory, 1},
                                         Shared{RegionKind::vmm, 0}, Shared{RegionKind::host_memory, 0}),
                         [](const auto& shared) { return shared.param.name(); });

TEST_P(GpuP2pRegion, IsTheSameMemoryForGpusOfTwoThreads) {
  const auto store = make_thread_rendezvous();
  for (const bool both_on_one : {false, true}) {
    const std::string name = both_on_one ? "one GPU" : "two GPUs";
    EXPECT_THAT(outcome_of_ranks(2, [&](int rank) { exercise(rank, GetParam(), *store, name, gpu(both_on_one ? 0 : rank)); }),
                ElementsAre("", ""))
        << name;
  }
}

// A child's environment tells which memory, and whether each process sees its own GPU only.
const plait::test::ChildProcess shared_region("GpuP2pRegion", [] {
  test::ProcessPlace place;
  const Shared shared{static_cast<RegionKind>(std::atoi(std::getenv("PLAIT_TEST_KIND"))), 0};
  const bool alone = std::string(std::getenv("PLAIT_TEST_VISIBLE")) == "own";
  if (alone) ::setenv("CUDA_VISIBLE_DEVICES", std::to_string(place.rank).c_str(), 1);
  exercise(place.rank, shared, *place.store, "region", gpu(alone ? 0 : place.rank));
  EXPECT_EQ(test::lines_with("/proc/self/maps", "plait-mailbox"), 0);
});

class GpuP2pProcesses : public testing::TestWithParam<std::tuple<RegionKind, const char*>> {
 public:
  static std::string name(const ParamType& test_case) {
    return Shared{std::get<0>(test_case), 0}.name() + "_seeing_" + std::get<1>(test_case);
  }

 protected:
  void SetUp() override { test::skip_below(2); }
};
INSTANTIATE_TEST_SUITE_P(Kinds, GpuP2pProcesses,
                         testing::Combine(testing::Values(RegionKind::ipc, RegionKind::vmm, RegionKind::host_memory),
                                          testing::Values("all", "own")),
                         [](const auto& shared) { return GpuP2pProcesses::name(shared.param); });

TEST_P(GpuP2pProcesses, ShareMemory) {
  const auto [kind, visible] = GetParam();
  const std::vector<std::string> environment = {"PLAIT_TEST_KIND=" + std::to_string(static_cast<int>(kind)),
                                                std::string("PLAIT_TEST_VISIBLE=") + visible};
  for (const test::Ended& rank : test::run_processes(shared_region, 2, environment)) {
    EXPECT_TRUE(WIFEXITED(rank.status) && WEXITSTATUS(rank.status) == 0) << rank.output;
  }
}

// A third GPU's memory, which is how a relay's slots are made.
TEST_F(GpuP2pOfThree, RelayMemoryIsSeenByTwoOtherGpus) {
  const auto store = make_thread_rendezvous();
  const Shared shared{RegionKind::vmm, 2};
  EXPECT_THAT(outcome_of_ranks(2, [&](int rank) { exercise(rank, shared, *store, "bridge", gpu(rank)); }), ElementsAre("", ""));
}

TEST_F(GpuP2pOfOne, ErrorsSayWhatWasRefused) {
  make_current(gpu(0));
  const auto store = make_thread_rendezvous();
  Meeting importers(*store, "pair", 1, 2, seconds(1));
  HandleExchange exchange(importers);
  for (const RegionKind kind : {RegionKind::thread_memory, RegionKind::ipc, RegionKind::vmm}) {
    RegionSpec spec = spec_of({kind, 0}, gpu(0), "huge");
    spec.bytes = std::size_t{1} << 46;
    EXPECT_THAT(error_of<Error>([&] { export_region(spec, exchange); }),
                HasSubstr(format_bytes(static_cast<double>(spec.bytes))))
        << static_cast<int>(kind);
  }
  // A descriptor of something that is no GPU's memory.
  RegionSpec spec = spec_of({RegionKind::vmm, 0}, gpu(0), "not memory");
  store->set("pair/not memory/0", R"({"length": 8388608, "fabric": false})");
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    Meeting meeting(*store, "pair", rank, 2, seconds(30));
    HandleExchange between(meeting);
    if (rank == 0) return between.give_descriptor("not memory/descriptor", 0);
    make_current(gpu(0));
    import_region(spec, between);
  });
  EXPECT_THAT(outcome[1], testing::AllOf(HasSubstr("'not memory'"), HasSubstr("cuMem")));
  // An IPC handle that nobody made.
  spec.kind = RegionKind::ipc;
  spec.name = "no handle";
  store->set("pair/no handle/0", Json{{"handle", std::string(128, '0')}, {"offset", 0}, {"bytes", some_bytes}}.dump());
  EXPECT_THAT(error_of<Error>([&] { import_region(spec, exchange); }), HasSubstr("cannot open the peer's memory"));
  // The failures are no one else's: a launch after them is fine.
  DeviceMemory memory(gpu(0));
  const Buffer buffer = memory.allocate(64);
  const Stream stream(gpu(0));
  copy_by_kernel(stream, static_cast<std::byte*>(buffer.data()) + 32, buffer.data(), 32);
  stream.ref().synchronize();
}

// Sizes and addresses that are no multiples of anything; the bytes around stay as they are.
void check_copies(Device runs, Device from_device, Device to_device) {
  constexpr std::size_t largest = (std::size_t{1} << 22) + 77, margin = 64;
  DeviceMemory from_memory(from_device), to_memory(to_device);
  const Buffer from = from_memory.allocate(largest + 2 * margin), to = to_memory.allocate(largest + 2 * margin);
  auto* const from_bytes = static_cast<std::byte*>(from.data());
  auto* const to_bytes = static_cast<std::byte*>(to.data());
  const auto source = pattern(largest + 2 * margin, 3);
  write_to(from_device, from_bytes, source);
  const std::vector<unsigned char> untouched(largest + 2 * margin, 255);
  make_current(runs);
  const Stream stream(runs);
  const std::pair<std::size_t, std::size_t> offsets[] = {{0, 0}, {16, 0}, {3, 3}, {13, 29}, {4, 8}, {1, 0}, {0, 7}, {2, 4}};
  const std::size_t sizes[] = {0, 1, 2, 3, 4, 15, 16, 17, 31, 33, 255, 4096, 8191, 65'537, 1'000'003, largest};
  for (const std::size_t size : sizes) {
    for (const auto& [to_offset, from_offset] : offsets) {
      for (const int ctas : {1, 16}) {
        if (ctas == 1 && size > 10'000) continue;
        stream.ref().copy(to_bytes, untouched.data(), std::min(untouched.size(), size + 2 * margin));
        copy_by_kernel(stream, to_bytes + to_offset, from_bytes + from_offset, size, ctas);
        stream.ref().synchronize();
        const auto got = read_back(to_device, to_bytes, size + 2 * margin);
        make_current(runs);
        auto expected = std::vector<unsigned char>(size + 2 * margin, 255);
        std::copy_n(source.data() + from_offset, size, expected.data() + to_offset);
        ASSERT_TRUE(got == expected) << size << " bytes to +" << to_offset << " from +" << from_offset << " by " << ctas
                                     << " CTAs";
      }
    }
  }
}

TEST_F(GpuP2pOfOne, CopyKernelCopiesWithinTheGpu) {
  make_current(gpu(0));
  check_copies(gpu(0), gpu(0), gpu(0));
}

TEST_F(GpuP2pOfOne, SeveralCopiesAreOneKernel) {
  make_current(gpu(0));
  DeviceMemory memory(gpu(0));
  const Stream stream(gpu(0));
  constexpr std::size_t room = (std::size_t{1} << 20) + 64;
  const Buffer from = memory.allocate(most_copies * room), to = memory.allocate(most_copies * room);
  const auto source = pattern(most_copies * room, 5);
  write_to(gpu(0), static_cast<std::byte*>(from.data()), source);
  for (const std::size_t shift : {0, 4, 3}) {  // by words of 16 bytes, of four and of one
    for (const int count : {1, 3, most_copies}) {
      std::vector<unsigned char> expected(most_copies * room, 255);
      stream.ref().copy(to.data(), expected.data(), expected.size());
      std::vector<Copy> copies;
      for (int c = 0; c < count; ++c) {
        const auto at = static_cast<std::size_t>(c) * room;
        const std::size_t bytes = c == 1 ? 0 : c == 2 ? 5 : (std::size_t{1} << 20) - static_cast<std::size_t>(c) * 37;
        copies.push_back({static_cast<std::byte*>(to.data()) + at + shift, static_cast<std::byte*>(from.data()) + at, bytes});
        std::copy_n(source.data() + at, bytes, expected.data() + at + shift);
      }
      copy_all(stream, copies);
      stream.ref().synchronize();
      ASSERT_TRUE(read_back(gpu(0), static_cast<std::byte*>(to.data()), expected.size()) == expected)
          << count << " copies, shifted by " << shift;
    }
  }
}

TEST_F(GpuP2pOfTwo, CopyKernelWritesToAPeerAndReadsFromIt) {
  // Importing a region of the peer's enables access to all of cudaMalloc's memory there.
  const auto store = make_thread_rendezvous();
  RegionSpec spec = spec_of({RegionKind::thread_memory, 1}, gpu(0), "access");
  Meeting meeting(*store, "pair", 0, 2, seconds(10));
  HandleExchange exchange(meeting);
  make_current(gpu(0));
  const auto region = export_region(spec, exchange);
  check_copies(gpu(0), gpu(0), gpu(1));
  check_copies(gpu(0), gpu(1), gpu(0));
}

TEST_F(GpuP2pOfTwo, FactsAreToldOfEveryPair) {
  const int count = cuda_device_count();
  std::vector<EndFacts> ends;
  for (int index = 0; index < count; ++index) {
    make_current(gpu(index));
    ends.push_back(end_facts(index, gpu(index)));
    const EndFacts& end = ends.back();
    EXPECT_THAT(end.bus_id, testing::MatchesRegex("[0-9a-f]+:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-9a-f]"));
    EXPECT_TRUE(end.stream_memory_operations);
    EXPECT_EQ(end.fabric, end.why_no_fabric.empty());
    EXPECT_EQ(Json(end).get<EndFacts>(), end);
    std::cout << "GPU " << index << " " << end.bus_id << " " << end.name << ": vmm " << end.vmm << ", fabric "
              << (end.fabric ? "yes" : "no: " + end.why_no_fabric) << "\n";
  }
  for (const EndFacts& from : ends) {
    for (const EndFacts& to : ends) {
      if (from.rank == to.rank) continue;
      const PathFacts path = path_facts(from, to);
      EXPECT_TRUE(path.visible);
      EXPECT_FALSE(path.same_memory);
      if (path.peer_access) {
        EXPECT_EQ(path.why_no_access, "");
      }
      EXPECT_NE(path.link(), "same memory");
      EXPECT_EQ(Json(path).get<PathFacts>(), path);
      const PairFacts pair{from, to, path, path_facts(to, from)};
      std::cout << from.rank << " -> " << to.rank << "  " << path.link() << ", PCIe " << path.pcie_path << ", access "
                << path.peer_access << ", atomics " << path.native_atomics << ", rank " << path.performance_rank << ", bridges "
                << path.bridges.size() << ": " << to_string(choices(pair, candidates(pair), std::nullopt).front()) << "\n";
      if (path.peer_access && pair.from_receiver.peer_access) {
        EXPECT_EQ(choices(pair, candidates(pair), std::nullopt).front(), Transport::direct);
        EXPECT_EQ(pair.bridges().empty(), count == 2);
      }
    }
  }
}

TEST_F(GpuP2pOfOne, FactsOfOneGpuTwiceAreOfOneMemory) {
  make_current(gpu(0));
  const PathFacts path = path_facts(end_facts(0, gpu(0)), end_facts(1, gpu(0)));
  EXPECT_TRUE(path.same_memory && path.peer_access && path.visible);
  EXPECT_EQ(path.link(), "same memory");
}

}  // namespace
}  // namespace plait::comm::p2p
