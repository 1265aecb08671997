// Explains in words why a job stands still, and who waits for whom, from the state that every rank reports.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

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

// JSON for a meeting; reading anything else throws InvalidWord, or nlohmann::json's own exception.
void to_json(nlohmann::ordered_json& json, const RankStanding& standing);
void from_json(const nlohmann::ordered_json& json, RankStanding& standing);
// True if all ranks that it names are among `size`; a peer's word may name others.
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
