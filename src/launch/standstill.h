// Explains in words why a job stands still, and who waits for whom, from the state that every rank reports.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/word.h"
#include "core/limits.h"
#include "parallel/mesh.h"
#include "runtime/progress_board.h"

namespace plait::launch {

// A rank's answer.
struct RankStanding {
  // A stream whose first instruction is not held back by anything on this rank: it is working, or waits for peers.
  struct Stream {
    std::string instruction;      // "receive_gradient micro-batch 0 chunk 0"
    std::vector<int> peers = {};  // ranks it waits for
    int from = -1, to = -1;       // of a message: rank at the other end
    friend bool operator==(const Stream&, const Stream&) = default;
  };
  int rank = 0;
  std::int64_t process = 0;
  std::string host = {};
  std::vector<Stream> streams = {};
  std::string next = {};  // the instruction that the rank's thread enqueues next; empty: it is not within a program
  std::map<int, std::uint64_t> sent = {}, received = {};  // messages, by the rank at the other end
  friend bool operator==(const RankStanding&, const RankStanding&) = default;
};

// The standing of rank `rank`. `ends`: see parallel::Layout::members.
RankStanding rank_standing(int rank, const parallel::Layout& layout, parallel::ModelEnds ends,
                           const runtime::ProgressBoard::Reading& reading);

// Numbers of messages, [[rank, count], ...].
struct CountsByRank {
  std::map<int, std::uint64_t> read(const JsonField& field) const;
  nlohmann::ordered_json write(const std::map<int, std::uint64_t>& counts) const { return counts; }
};

void declare(auto& field, Of<RankStanding::Stream> auto& stream) {
  constexpr record::Whole rank = record::whole(-1, limits::ranks.most);
  field("instruction", stream.instruction);
  field("peers", stream.peers,
        record::at_most(limits::ranks.most, record::whole(std::numeric_limits<int>::min(), std::numeric_limits<int>::max())));
  field("from", stream.from, rank);
  field("to", stream.to, rank);
}

void declare(auto& field, Of<RankStanding> auto& standing) {
  field("rank", standing.rank, record::whole(0, limits::ranks.most));
  field("process", standing.process, record::whole(0));
  field("host", standing.host);
  field("streams", standing.streams, record::at_most(1024));
  field("next", standing.next);
  field("sent", standing.sent, CountsByRank());
  field("received", standing.received, CountsByRank());
}

// Whether all ranks that it names are among `size`, which only what a peer said may not be.
bool is_among(const RankStanding& standing, int size);

// The known facts about a rank that gave no answer.
struct Silence {
  enum class Kind {
    unknown,  // it may be slow, hang, or not be ready to answer yet
    dead,     // or stopped: the others cannot go on
    failed,   // by an error of its own, which it prints itself
    done,     // finished its part
  };
  Kind kind = Kind::unknown;
  std::string words;  // completes a sentence that begins "rank 1 "
};

struct Explanation {
  std::string culprit;  // one line: the ranks or the event that the others wait for
  std::string details;  // a line for each rank that reports something; may be empty
  bool certain =
      false;  // the culprit is dead, stopped, or failed: then it holds at any time, not only when everything else stands still
};

// `answers` by rank; nullopt for a rank without one, which `silence` describes.
Explanation explain_standstill(const std::vector<std::optional<RankStanding>>& answers,
                               const std::function<Silence(int rank)>& silence);

}  // namespace plait::launch
