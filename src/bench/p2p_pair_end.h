// One end of a pair of ranks that measure their links: memory, streams, a link in each direction for every method, and the
// timed loops. Both ends call the same functions in the same order.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/link_methods.h"
#include "bench/pattern.h"
#include "comm/meeting.h"
#include "launch/rank_context.h"

namespace plait::bench {

struct PairSpec {
  std::string name;      // unique in the job
  int from = 0, to = 1;  // ranks; this rank is one of them
  comm::p2p::PairFacts facts;
  std::size_t largest_bytes = 0;
  std::chrono::milliseconds timeout{60'000};  // of one loop
  std::string host_interface = "127.0.0.1";
};

// Links in both directions, for messages of up to `bytes`.
struct PairLinks {
  std::size_t bytes = 0;
  LinkEnds ends;
};

// A method and its links, or the reason why there are none. A link is made for its largest message, and one for short messages
// differs: it has more slots, and another mover may copy. So there are links for messages of up to 64 KB, for up to 1 MB, and
// for all; the library's serve all sizes.
struct PairMethod {
  LinkMethod method;
  std::string obstacle;
  std::vector<PairLinks> links;  // ascending
  bool works() const { return !links.empty(); }
  const PairLinks& links_for(std::size_t bytes) const;
};

class PairEnd {
 public:
  // Makes the links of all `choices` that are possible; a link that cannot be made becomes an obstacle.
  PairEnd(launch::RankContext& rank, const PairSpec& spec, const std::vector<MethodChoice>& choices,
          const comm::p2p::LinkMaker& make_link);
  PairEnd(const PairEnd&) = delete;
  PairEnd& operator=(const PairEnd&) = delete;

  const PairSpec& spec() const { return spec_; }
  bool is_from() const { return rank_.rank == spec_.from; }
  const std::vector<PairMethod>& methods() const { return methods_; }
  Device device() const { return rank_.device; }
  DeviceMemory& memory() { return memory_; }

  // Microseconds per message, in stream time, of `messages` back to back after some that are not counted. Messages of at most 1
  // MB are all enqueued before the first may leave, so that the host's speed does not matter. With `check`, CommError unless
  // the last messages arrived as they were sent.
  struct Loop {
    std::size_t bytes = 0;
    int messages = 0;
    bool check = true;
  };
  // Measured on `to`; 0 on the other end.
  double synchronize_one_way(const PairMethod& method, const Loop& loop);
  // Both directions at once: the time of a message in each, as seen from this end; uses the larger of the two ends' counts.
  double synchronize_both_ways(const PairMethod& method, const Loop& loop);
  // Half of a round trip, measured on `from`; 0 on the other end.
  double synchronize_latency(const PairMethod& method, const Loop& loop);

  // The parts of measurements during compute. Message number `message` of the current case.
  void begin_case() { ++case_; }
  void send(const PairMethod& method, std::size_t bytes, int message);
  // `more`: another message follows, and may come while this one is in transit.
  void receive(const PairMethod& method, std::size_t bytes, int message, bool more = false);
  void check(const PairMethod& method, std::size_t bytes, int message);
  StreamRef out() const { return out_; }  // for outgoing messages
  StreamRef in() const { return in_; }    // for incoming ones
  StreamRef compute() const { return compute_; }

  // Sends a word to the other end and returns the other end's. Each topic once.
  template <typename T>
  T swap(const std::string& topic, const T& own) {
    meeting_.say(topic, own);
    return meeting_.hear<T>(topic, meeting_.peer());
  }
  [[noreturn]] void refuse(const std::string& topic, const std::string& why) const {
    meeting_.refuse(topic, meeting_.peer(), why);
  }
  std::string label(const PairMethod& method, std::size_t bytes) const;  // for errors
  // Returns the result of `work`. If it throws, the rank is aborted, and no stream waits for the other end any more.
  template <typename Work>
  auto run(Work work) {
    return rank_.life->run(work, [this] { drain(); });
  }

 private:
  std::vector<std::size_t> link_sizes(const LinkMethod& method) const;
  comm::p2p::LinkSpec link_of(const LinkMethod& method, int from, int to, std::size_t bytes) const;
  View outgoing(std::size_t bytes, int message) const;
  View incoming(const PairMethod& method, std::size_t bytes, int message) const;
  static int place_of(const comm::p2p::Link& link, int message);
  void send_on(StreamRef stream, const PairMethod& method, std::size_t bytes, int message);
  void receive_on(StreamRef stream, const PairMethod& method, std::size_t bytes, int message);
  std::uint64_t shift(int message) const;
  void hold(StreamRef stream) const;
  void open_gate() noexcept;
  void drain() noexcept;
  void synchronize(const Event& event, const PairMethod& method, std::size_t bytes) const;
  void check_last(const PairMethod& method, const Loop& loop, int messages);

  launch::RankContext& rank_;
  PairSpec spec_;
  comm::Meeting meeting_;  // of the two ends
  DeviceMemory memory_;
  Buffer gate_, source_, targets_[2];
  PatternTraffic traffic_;
  Pattern pattern_;
  // Declared after the memory that they use and before the links that they wait for; next to each other, since a GPU deals out
  // its hardware queues in turn and the many streams of links could put two of these into one.
  Stream out_, in_, compute_;
  std::vector<PairMethod> methods_;
  std::uint32_t gate_turn_ = 1;
  std::uint64_t case_ = 0;
};

}  // namespace plait::bench
