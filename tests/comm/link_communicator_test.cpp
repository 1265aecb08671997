// Collectives over links: every element of every result, by every transport, and their end when a rank fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "collective_check.h"
#include "comm/p2p/link_communicator.h"
#include "core/collective.h"
#include "core/error.h"
#include "forwarding_link.h"
#include "gpu_ranks.h"
#include "rank_threads.h"

namespace plait::comm::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

p2p::LinkCommunicatorSpec link_group(int rank, int size, std::size_t slice_bytes, std::optional<Transport> transport,
                                     Device device = {}) {
  p2p::LinkCommunicatorSpec spec;
  spec.group = {.name = "links", .rank = rank, .size = size, .device = device};
  // Ranks of the job need not be those of the group.
  for (int member = 0; member < size; ++member) spec.members.push_back(10 + 3 * member);
  spec.slice_bytes = slice_bytes;
  spec.transport = [transport](int, int) { return transport; };
  return spec;
}

std::vector<std::string> on_links(int size, std::size_t slice_bytes, std::optional<Transport> transport,
                                  const std::function<void(Communicator&)>& body) {
  const auto store = make_thread_rendezvous();
  return outcome_of_ranks(size, [&](int rank) {
    p2p::LinkCommunicator communicator(link_group(rank, size, slice_bytes, transport), *store);
    body(communicator);
  });
}

struct LinkGroupCase {
  int size;
  Transport transport;
  friend void PrintTo(const LinkGroupCase& c, std::ostream* out) { *out << c.size << "_" << to_string(c.transport); }
};

class LinkCommunicatorOf : public testing::TestWithParam<LinkGroupCase> {};
INSTANTIATE_TEST_SUITE_P(Groups, LinkCommunicatorOf,
                         testing::Values(LinkGroupCase{2, Transport::direct}, LinkGroupCase{3, Transport::direct},
                                         LinkGroupCase{4, Transport::direct}, LinkGroupCase{2, Transport::host},
                                         LinkGroupCase{3, Transport::host}),
                         testing::PrintToStringParamName());

TEST_P(LinkCommunicatorOf, TellsTheWayToEachOther) {
  const auto [size, transport] = GetParam();
  const auto outcome = on_links(size, 64, transport, [transport = transport](Communicator& communicator) {
    const Paths paths = communicator.paths();
    EXPECT_EQ(paths.by, "links");
    EXPECT_EQ(paths.pairs.size(), static_cast<std::size_t>(communicator.size() - 1));
    for (const PairPath& path : paths.pairs) {
      EXPECT_EQ(path.from, communicator.rank());
      EXPECT_NE(path.to, communicator.rank());
      EXPECT_EQ(path.via, to_string(transport));
    }
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(LinkCommunicatorOf, EveryOperationTypeAndOddCount) {
  const auto [size, transport] = GetParam();
  const auto outcome = on_links(size, 64, transport, [](Communicator& communicator) {
    CollectiveCheck check(communicator, {}, 1031, 1);
    check.every_operation({0, 1, 3, 17, 1031}, {DType::f32, DType::f64, DType::bf16, DType::i32, DType::u8});
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST_P(LinkCommunicatorOf, RandomCallsInPiecesOfAnySize) {
  const auto [size, transport] = GetParam();
  for (const std::size_t slice : {std::size_t{1}, std::size_t{200}, std::size_t{4096}}) {
    const auto outcome = on_links(size, slice, transport, [](Communicator& communicator) {
      CollectiveCheck check(communicator, {}, 97, 2);
      for (std::uint64_t call = 0; call < 150; ++call) check.random_call(call);
    });
    EXPECT_THAT(outcome, Each(IsEmpty())) << "slices of " << slice << " bytes";
  }
}

TEST(LinkCommunicator, SumsHaveTheSameBitsOnAllRanksAndByAnyTransport) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<std::string> bits;
    for (const Transport transport : {Transport::direct, Transport::host}) {
      std::vector<std::string> of_ranks(3);
      const auto outcome = on_links(3, 256, transport, [&](Communicator& communicator) {
        CollectiveCheck check(communicator, {}, 4099, 4);
        of_ranks[static_cast<std::size_t>(communicator.rank())] = check.reduced_bits(dtype, 4099);
      });
      EXPECT_THAT(outcome, Each(IsEmpty()));
      bits.insert(bits.end(), of_ranks.begin(), of_ranks.end());
    }
    for (const std::string& other : bits) EXPECT_TRUE(other == bits[0]) << to_string(dtype);
  }
}

// 1 + 2^-8 + 2^-8 is 1 + 2^-7 in fp32, which bf16 holds; added up in bf16 it would stay 1.
TEST(LinkCommunicator, SumsOfBf16AreRoundedOnce) {
  const auto outcome = on_links(3, 64, Transport::direct, [](Communicator& communicator) {
    std::vector<BFloat16> values(8, BFloat16(communicator.rank() == 0 ? 1.0f : 1.0f / 256));
    const Stream stream(Device{});
    communicator.all_reduce(stream, {values.data(), DType::bf16, {8}}, Reduction::sum);
    stream.ref().synchronize();
    for (const BFloat16 v : values) ASSERT_EQ(static_cast<float>(v), 1.0f + 1.0f / 128);
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

// What is no number is left out of a largest one, wherever it stands; of nothing else the result is none either.
TEST(LinkCommunicator, TheLargestLeavesOutWhatIsNoNumber) {
  const float none = std::nanf("");
  const auto outcome = on_links(3, 64, Transport::direct, [none](Communicator& communicator) {
    const std::vector<std::vector<float>> of_rank{{none, 1, -2, none}, {-5, none, -3, none}, {-4, -1, none, none}};
    std::vector<float> values = of_rank[static_cast<std::size_t>(communicator.rank())];
    const Stream stream(Device{});
    communicator.all_reduce(stream, {values.data(), DType::f32, {4}}, Reduction::max);
    stream.ref().synchronize();
    EXPECT_EQ(values[0], -4);
    EXPECT_EQ(values[1], 1);
    EXPECT_EQ(values[2], -2);
    EXPECT_TRUE(std::isnan(values[3]));
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

// Ranks on a device each; of GPUs, on those with their numbers.
// On a machine with a single GPU all ranks share it.
Device link_device(DeviceKind kind, int rank) {
  if (kind == DeviceKind::host) return {kind, 0};
  const bool shared = cuda_device_count() < 2;
  return {kind, shared ? 0 : rank, shared};
}

// One of several calls that nobody waits for in between.
struct QueuedCall {
  enum class Kind { sum, gather } kind;
  std::int64_t count;
  int number;
  float value(int rank, std::int64_t i) const { return static_cast<float>((i + 3 * rank + 7 * number) % 9); }
  std::int64_t elements(int size) const { return kind == Kind::gather ? count * size : count; }
  float expected(int size, std::int64_t i) const {
    if (kind == Kind::gather) return value(static_cast<int>(i / count), i);
    float sum = 0;
    for (int rank = 0; rank < size; ++rank) sum += value(rank, i);
    return sum;
  }
  void enqueue(Communicator& communicator, StreamRef stream, float* data) const {
    const View all(data, DType::f32, {elements(communicator.size())});
    if (kind == Kind::sum) return communicator.all_reduce(stream, all, Reduction::sum);
    communicator.all_gather(stream, all.rows(count * communicator.rank(), count), all);
  }
};

// Every kind with every size: some are one kernel, some pushes of one thread block or of several, some of copy engines, some in
// pieces. What tells of free places goes with whatever comes next.
void queued_calls(Communicator& communicator, Device device, std::int64_t longest_by_kernel) {
  std::vector<QueuedCall> calls;
  const std::int64_t limit = longest_by_kernel / 4, summed_at_once = link_collectives::most_summed_by_one_kernel / 4;
  for (const std::int64_t count :
       {limit, std::int64_t{1}, limit + 1, summed_at_once, 3 * limit + 3, limit - 1, summed_at_once / 3}) {
    for (const QueuedCall::Kind kind : {QueuedCall::Kind::gather, QueuedCall::Kind::sum})
      calls.push_back({kind, count, static_cast<int>(calls.size())});
  }
  const int size = communicator.size(), rank = communicator.rank();
  const Stream stream(device);
  DeviceMemory memory(device);
  std::vector<Buffer> buffers;
  std::vector<std::vector<float>> values;
  for (const QueuedCall& call : calls) {
    std::vector<float>& own = values.emplace_back(call.elements(size));
    for (std::size_t i = 0; i < own.size(); ++i) own[i] = call.value(rank, static_cast<std::int64_t>(i));
    buffers.push_back(memory.allocate(own.size() * sizeof(float)));
    stream.ref().copy(buffers.back().data(), own.data(), own.size() * sizeof(float));
  }
  stream.ref().synchronize();
  for (std::size_t n = 0; n < calls.size(); ++n) calls[n].enqueue(communicator, stream, static_cast<float*>(buffers[n].data()));
  stream.ref().synchronize();
  for (std::size_t n = 0; n < calls.size(); ++n) {
    stream.ref().copy(values[n].data(), buffers[n].data(), values[n].size() * sizeof(float));
    stream.ref().synchronize();
    for (std::size_t i = 0; i < values[n].size(); ++i) {
      ASSERT_EQ(values[n][i], calls[n].expected(size, static_cast<std::int64_t>(i)))
          << "rank " << rank << ", call " << n << " of " << calls[n].count << " elements, element " << i;
    }
  }
}

// `through_host`: the first two ranks, whose messages come by slots.
std::vector<std::string> queue_on_links(int size, DeviceKind kind, std::size_t slice_bytes, std::size_t longest_by_kernel,
                                        bool through_host = false) {
  const auto store = make_thread_rendezvous();
  return outcome_of_ranks(size, [&](int rank) {
    const Device device = link_device(kind, rank);
    make_current(device);
    p2p::LinkCommunicatorSpec spec = link_group(rank, size, slice_bytes, std::nullopt, device);
    spec.longest_by_kernel = longest_by_kernel;
    const auto is_slow = [&](int from, int to) { return through_host && from + to == spec.members[0] + spec.members[1]; };
    spec.transport = [&](int from, int to) { return is_slow(from, to) ? std::optional(Transport::host) : std::nullopt; };
    spec.make_link = [&](p2p::LinkSpec link, Rendezvous& rendezvous) {
      if (is_slow(link.from, link.to)) link.places.clear();  // which between CPUs host memory has too
      return p2p::make_link(link, rendezvous);
    };
    p2p::LinkCommunicator communicator(spec, *store);
    queued_calls(communicator, device, static_cast<std::int64_t>(longest_by_kernel));
  });
}

constexpr std::size_t short_push = link_collectives::longest_short_push;

TEST(LinkCommunicator, QueuedCallsTellOfFreePlacesWithLaterOnes) {
  for (const int size : {2, 3, 5}) EXPECT_THAT(queue_on_links(size, DeviceKind::host, 4096, 4096), Each(IsEmpty())) << size;
}

TEST(LinkCommunicator, OnePairMayComeBySlots) {
  for (const int size : {2, 3, 4})
    EXPECT_THAT(queue_on_links(size, DeviceKind::host, 4096, 4096, true), Each(IsEmpty())) << size;
}

// Everybody pushes before it takes, so a slice that no ring of slots holds would have all wait for each other.
TEST(LinkCommunicator, SlicesLargerThanAllSlotsGoInPieces) {
  const auto store = make_thread_rendezvous();
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    constexpr std::size_t slice = std::size_t{9} << 20;  // a ring by host memory holds 8 MiB
    p2p::LinkCommunicatorSpec spec = link_group(rank, 2, slice, Transport::host);
    spec.make_link = [](p2p::LinkSpec link, Rendezvous& rendezvous) {
      link.places.clear();
      return p2p::make_link(link, rendezvous);
    };
    p2p::LinkCommunicator communicator(spec, *store);
    std::vector<float> values(2 * slice / sizeof(float), static_cast<float>(rank + 1));
    const Stream stream(Device{});
    communicator.all_reduce(stream, {values.data(), DType::f32, {std::ssize(values)}}, Reduction::sum);
    stream.ref().synchronize();
    EXPECT_THAT(values, Each(3.0f));
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

// While ranks prepare for the first step they do so alone, whenever each of them comes to it.
TEST(LinkCommunicator, AloneARankStandsForAll) {
  const auto outcome = on_links(3, 16, Transport::direct, [](Communicator& communicator) {
    const auto mine = static_cast<float>(communicator.rank() + 1);
    std::vector<float> sums(9, mine), whole(9, -1), part(3, mine);
    sums[8] = 0;  // between tensors there are zeros that nothing writes
    const Stream stream(Device{});
    auto& links = dynamic_cast<p2p::LinkCommunicator&>(communicator);
    const View all(sums.data(), DType::f32, {9}), gathered(whole.data(), DType::f32, {9}), own(part.data(), DType::f32, {3});
    if (communicator.rank() > 0) {  // the others exchange nothing meanwhile
      links.set_alone(true);
      communicator.all_reduce(stream, all, Reduction::sum);
      communicator.all_gather(stream, own, gathered);
      communicator.reduce_scatter(stream, gathered, own, Reduction::sum);
      EXPECT_EQ(communicator.reduce_scatter_addends(stream, gathered, own).size(), 3u);
      communicator.release_addends(stream);
      stream.ref().synchronize();
      links.set_alone(false);
      for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(sums[i], 3 * mine);
      EXPECT_EQ(sums[8], 0);
      EXPECT_THAT(whole, Each(mine));
      EXPECT_THAT(part, Each(3 * mine));
    }
    std::fill(part.begin(), part.end(), mine);
    communicator.all_gather(stream, own, gathered);
    stream.ref().synchronize();
    EXPECT_EQ(whole, (std::vector<float>{1, 1, 1, 2, 2, 2, 3, 3, 3}));
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

// Rounds that nobody waits for in between, all at the same places of symmetric memory: in each a call in which all wait for
// each other, then a gather that arrives there at once, and a copy of what is there. One rank takes its time before that copy.
void gather_into_symmetric_memory(p2p::LinkCommunicator& communicator, Device device, std::int64_t most, bool takes_its_time) {
  const int size = communicator.size(), rank = communicator.rank();
  const auto value = [](int of, int round, std::int64_t i) { return static_cast<float>((5 * of + 3 * round + i) % 97); };
  struct Round {
    std::int64_t count, first;
    Buffer part, sums, addends, arrived;
  };
  const Stream stream(device);
  DeviceMemory memory(device);
  std::vector<float> host(static_cast<std::size_t>(most * size));
  std::vector<Round> rounds(12);
  for (int n = 0; n < std::ssize(rounds); ++n) {
    Round& r = rounds[static_cast<std::size_t>(n)];
    r.count = n % 3 == 0 ? most : n % 3 == 1 ? std::int64_t{4} : most / 2 + 1;
    r.first = n % 2 == 0 ? 0 : 64;
    const auto bytes = static_cast<std::size_t>(r.count) * sizeof(float);
    for (Buffer* part : {&r.part, &r.sums, &r.addends}) *part = memory.allocate(bytes * static_cast<std::size_t>(size));
    r.arrived = memory.allocate(bytes * static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < r.count; ++i) host[static_cast<std::size_t>(i)] = value(rank, n, i);
    stream.ref().copy(r.part.data(), host.data(), bytes);
    stream.ref().zero(r.addends.data(), r.addends.bytes());
    stream.ref().synchronize();
  }
  auto* const memory_of_all = reinterpret_cast<float*>(communicator.symmetric_memory());
  for (int n = 0; n < std::ssize(rounds); ++n) {
    const Round& r = rounds[static_cast<std::size_t>(n)];
    const View all(r.addends.data(), DType::f32, {r.count * size}), sum(r.sums.data(), DType::f32, {r.count});
    if (n % 4 == 3) {
      communicator.all_reduce(stream, sum, Reduction::sum);
    } else {
      communicator.reduce_scatter_addends(stream, all, sum);
      communicator.release_addends(stream);
    }
    const View gathered(memory_of_all + r.first, DType::f32, {r.count * size});
    View part(r.part.data(), DType::f32, {r.count});
    if (n % 2 == 0) {  // in place
      const View own = gathered.rows(r.count * rank, r.count);
      stream.ref().copy(own.data, part.data, part.bytes());
      part = own;
    }
    communicator.all_gather_into_free(stream, part, gathered);
    if (takes_its_time) {
      stream.ref().enqueue_host([] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
    }
    stream.ref().copy(r.arrived.data(), gathered.data, gathered.bytes());
  }
  for (int n = 0; n < std::ssize(rounds); ++n) {
    const Round& r = rounds[static_cast<std::size_t>(n)];
    stream.ref().copy(host.data(), r.arrived.data(), static_cast<std::size_t>(r.count * size) * sizeof(float));
    stream.ref().synchronize();
    for (std::int64_t i = 0; i < r.count * size; ++i) {
      ASSERT_EQ(host[static_cast<std::size_t>(i)], value(static_cast<int>(i / r.count), n, i % r.count))
          << "rank " << rank << ", round " << n << ", element " << i;
    }
  }
}

std::vector<std::string> gather_symmetrically(int size, DeviceKind kind, std::int64_t most, std::size_t longest_by_kernel,
                                              const std::function<std::optional<Transport>(int from, int to)>& transport) {
  const auto store = make_thread_rendezvous();
  return outcome_of_ranks(size, [&](int rank) {
    const Device device = link_device(kind, rank);
    make_current(device);
    const auto bytes = static_cast<std::size_t>(most) * sizeof(float);
    p2p::LinkCommunicatorSpec spec = link_group(rank, size, bytes, std::nullopt, device);
    spec.symmetric_bytes = bytes * static_cast<std::size_t>(size) + 256;
    spec.longest_by_kernel = longest_by_kernel;
    spec.transport = transport;
    p2p::LinkCommunicator communicator(spec, *store);
    gather_into_symmetric_memory(communicator, device, most, kind == DeviceKind::host && rank == 1);
  });
}

TEST_P(LinkCommunicatorOf, SymmetricMemoryIsWrittenToWhenItIsFree) {
  const auto [size, transport] = GetParam();
  const auto same = [transport = transport](int, int) { return std::optional(transport); };
  EXPECT_THAT(gather_symmetrically(size, DeviceKind::host, 1000, 4096, same), Each(IsEmpty()));
}

TEST(LinkCommunicator, SymmetricMemoryServesWherePairsGoByDifferentWaysToo) {
  const auto mixed = [](int from, int to) { return std::optional(from + to == 23 ? Transport::host : Transport::direct); };
  EXPECT_THAT(gather_symmetrically(3, DeviceKind::host, 1000, 4096, mixed), Each(IsEmpty()));
}

TEST(LinkCommunicator, SymmetricMemoryOfTwoSizesIsAnError) {
  const auto store = make_thread_rendezvous();
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    p2p::LinkCommunicatorSpec spec = link_group(rank, 2, 64, Transport::direct);
    spec.symmetric_bytes = rank == 0 ? 512 : 1024;
    p2p::LinkCommunicator communicator(spec, *store);
  });
  EXPECT_THAT(outcome, Each(HasSubstr("bytes")));
}

TEST(LinkCommunicator, APairWithoutLinksIsAnErrorOfAllRanksBeforeAnyLinkIsMade) {
  const auto store = make_thread_rendezvous();
  std::atomic<int> links = 0;
  const auto outcome = outcome_of_ranks(3, [&](int rank) {
    p2p::LinkCommunicatorSpec spec = link_group(rank, 3, 64, std::nullopt);
    // Of three pairs only the last one.
    spec.transport = [](int from, int to) { return from == 13 && to == 16 ? std::optional(Transport::ipc) : std::nullopt; };
    spec.make_link = [&](const p2p::LinkSpec& link, Rendezvous& rendezvous) {
      ++links;
      return p2p::make_link(link, rendezvous);
    };
    p2p::LinkCommunicator communicator(spec, *store);
  });
  EXPECT_THAT(outcome, Each(AllOf(HasSubstr("comm.exchanges=links cannot be used between ranks 10, 13, 16"),
                                  HasSubstr("13 -> 16: ipc (comm.p2p or comm.p2p_pairs) cannot be used: for GPUs only"),
                                  HasSubstr("comm.exchanges=library"))));
  EXPECT_EQ(links, 0);
}

TEST(LinkCommunicator, ALinkThatHoldsNothingIsAnErrorOfAllRanks) {
  const auto store = make_thread_rendezvous();
  const auto outcome = outcome_of_ranks(3, [&](int rank) {
    p2p::LinkCommunicatorSpec spec = link_group(rank, 3, 64, std::nullopt);
    spec.make_link = [](p2p::LinkSpec link, Rendezvous& rendezvous) {
      if (link.from == 10 && link.to == 13) link.transport = Transport::nccl;
      return p2p::make_link(link, rendezvous);
    };
    p2p::LinkCommunicator communicator(spec, *store);
  });
  EXPECT_THAT(outcome, Each(AllOf(HasSubstr("comm.exchanges=links cannot be used between ranks 10, 13, 16"),
                                  HasSubstr("10 -> 13 goes by nccl"), HasSubstr("comm.exchanges=library"))));
}

TEST(LinkCommunicator, ATrialThatFailsNamesTheWayOut) {
  const auto store = make_thread_rendezvous();
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    p2p::LinkCommunicatorSpec spec = link_group(rank, 2, 64, std::nullopt);
    spec.make_link = [](p2p::LinkSpec link, Rendezvous& rendezvous) {
      link.transport = Transport::ipc;  // which the facts of the pair, as asked for, did not rule out
      return p2p::make_link(link, rendezvous);
    };
    p2p::LinkCommunicator communicator(spec, *store);
  });
  EXPECT_THAT(outcome, Each(AllOf(HasSubstr("comm.exchanges=links cannot be used between ranks 10, 13"),
                                  HasSubstr("comm.p2p=ipc cannot be used"), HasSubstr("comm.exchanges=library"))));
}

TEST(LinkCommunicator, TooManyRanksAreTheUsersError) {
  const auto store = make_thread_rendezvous();
  try {
    p2p::LinkCommunicator communicator(link_group(0, link_collectives::most_ranks + 1, 64, std::nullopt), *store);
    FAIL() << "73 ranks";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("comm.exchanges=links cannot be used"), HasSubstr("they are more than 72"),
                                    HasSubstr("comm.exchanges=library")));
  }
}

// Says when it goes.
class LeavingLink final : public ForwardingLink {
 public:
  LeavingLink(std::shared_ptr<p2p::Link> inner, std::function<void()> gone)
      : ForwardingLink(std::move(inner)), gone_(std::move(gone)) {}
  ~LeavingLink() override { gone_(); }

 private:
  const std::function<void()> gone_;
};

// The time begins when the group lets go of its links, and is one for all of them.
TEST(LinkCommunicator, LinksLeaveWithinOneTimeThatBeginsAtTheEnd) {
  using std::chrono::milliseconds;
  const auto store = make_thread_rendezvous();
  const auto outcome = outcome_of_ranks(2, [&](int rank) {
    std::vector<milliseconds> times;
    std::shared_ptr<p2p::SharedByLinks> shared;
    {
      p2p::LinkCommunicatorSpec spec = link_group(rank, 2, 64, Transport::direct);
      spec.make_link = [&](const p2p::LinkSpec& link, Rendezvous& rendezvous) -> std::unique_ptr<p2p::Link> {
        shared = link.shared;
        return std::make_unique<LeavingLink>(p2p::make_link(link, rendezvous), [&] {
          times.push_back(shared->left_to_go());
          std::this_thread::sleep_for(milliseconds(10));
        });
      };
      p2p::LinkCommunicator communicator(spec, *store);
      std::this_thread::sleep_for(milliseconds(5));
      EXPECT_EQ(shared->left_to_go(), milliseconds(2000));
    }
    ASSERT_EQ(times.size(), 2U);
    EXPECT_GT(times[0], milliseconds(0));
    EXPECT_LE(times[1], times[0] - milliseconds(9));
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

TEST(LinkCommunicator, AnAbortEndsTheWaitForARankThatDoesNotCome) {
  for (const int size : {2, 3}) {
    const auto store = make_thread_rendezvous();
    const auto outcome = outcome_of_ranks(size, [&](int rank) {
      p2p::LinkCommunicator communicator(link_group(rank, size, 64, Transport::direct), *store);
      if (rank == size - 1) return;  // and never calls
      std::vector<float> values(16);
      const Stream stream(Device{});
      communicator.all_reduce(stream, {values.data(), DType::f32, {16}}, Reduction::sum);
      std::jthread aborter([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        communicator.abort();
      });
      try {
        stream.ref().synchronize();
      } catch (const Error&) {
        // What a host stream says of it.
      }
      aborter.join();
      EXPECT_THROW(communicator.all_reduce(stream, {values.data(), DType::f32, {16}}, Reduction::sum), CommError);
    });
    EXPECT_THAT(outcome, Each(IsEmpty()));
  }
}

TEST(LinkCommunicator, HasNoMessages) {
  const auto outcome = on_links(2, 64, Transport::direct, [](Communicator& communicator) {
    float value = 0;
    const Stream stream(Device{});
    EXPECT_THROW(communicator.send(stream, {&value, DType::f32, {1}}, 1 - communicator.rank()), InternalError);
    EXPECT_THROW(communicator.receive(stream, {&value, DType::f32, {1}}, 1 - communicator.rank()), InternalError);
  });
  EXPECT_THAT(outcome, Each(IsEmpty()));
}

class GpuLinkCommunicator : public testing::Test {
 protected:
  void SetUp() override { skip_below(1); }
  const bool shared_ = cuda_device_count() < 2;
  const int ranks_ = shared_ ? 4 : cuda_device_count();
};

// Ranks of two GPUs and more, or four that share one, by all transports that reach each other's memory, by copy engines and by
// kernels of one thread block and of several.
TEST_F(GpuLinkCommunicator, ThousandsOfRandomCalls) {
  struct Way {
    std::optional<Transport> transport;
    std::size_t slice_bytes, longest_by_kernel;
  };
  constexpr std::size_t slice = 1 << 16;
  for (const auto& [transport, slice_bytes, longest_by_kernel] :
       {Way{{}, slice, slice}, Way{{}, slice, 0}, Way{{}, slice, slice / 4}, Way{{}, 8 * slice, 8 * slice},
        Way{Transport::host, slice, slice}}) {
    if (shared_ && transport) continue;  // these go by direct alone
    const auto store = make_thread_rendezvous();
    const auto outcome = outcome_of_ranks(ranks_, [&](int rank) {
      const Device device = link_device(DeviceKind::cuda, rank);
      make_current(device);
      p2p::LinkCommunicatorSpec spec = link_group(rank, ranks_, slice_bytes, transport, device);
      spec.longest_by_kernel = longest_by_kernel;
      p2p::LinkCommunicator communicator(spec, *store);
      CollectiveCheck check(communicator, device, 60'007, 2);
      for (std::uint64_t call = 0; call < 1000; ++call) check.random_call(call);
    });
    EXPECT_THAT(outcome, Each(IsEmpty())) << slice_bytes << ", " << longest_by_kernel;
  }
}

TEST_F(GpuLinkCommunicator, QueuedCallsTellOfFreePlacesWithLaterOnes) {
  for (const std::size_t longest_by_kernel :
       {short_push, 4 * short_push, 16 * short_push}) {  // up to 2, 8 and 16 thread blocks
    for (const std::size_t slice_bytes : {longest_by_kernel, 2 * longest_by_kernel}) {
      for (int turn = 0; turn < 3; ++turn)
        EXPECT_THAT(queue_on_links(ranks_, DeviceKind::cuda, slice_bytes, longest_by_kernel), Each(IsEmpty())) << slice_bytes;
    }
  }
}

TEST_F(GpuLinkCommunicator, SymmetricMemoryIsWrittenToWhenItIsFree) {
  const auto best = [](int, int) { return std::optional<Transport>(); };
  for (const std::size_t longest_by_kernel : {std::size_t{0}, std::size_t{64} << 20}) {
    for (const std::int64_t most : {1000, 1'000'000})
      EXPECT_THAT(gather_symmetrically(ranks_, DeviceKind::cuda, most, longest_by_kernel, best), Each(IsEmpty())) << most;
  }
}

TEST_F(GpuLinkCommunicator, OnePairMayGoThroughTheHost) {
  skip_below(3);
  if (IsSkipped()) return;
  for (const std::size_t slice_bytes : {short_push, 2 * short_push})
    EXPECT_THAT(queue_on_links(ranks_, DeviceKind::cuda, slice_bytes, short_push, true), Each(IsEmpty())) << slice_bytes;
}

}  // namespace
}  // namespace plait::comm::test
