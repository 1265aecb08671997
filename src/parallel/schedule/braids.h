// Braids: pairs of passes that a rank computes together, segment by segment by turns. What one of them waits for, an exchange
// between tensor-parallel ranks, then goes on behind a segment of the other.
//
// A backward hides most of its exchanges by itself, behind its weight parts; a forward has nothing to hide them behind. So a
// forward goes with the backward before it, as DeepSeek-AI 2024 ("DualPipe") pairs them, or with another forward. Where any
// other pass of the rank would hold up the rank that waits for the first of a pair, the two may be halves of one micro-batch,
// each of half the sequences: the pair sends when the pass of the whole micro-batch would have.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace plait::parallel {

// Passes [first, first + count) of a rank, which it computes together: one, or two that are braided. Messages that they need
// are there before, and what they send is sent when both have been computed.
struct Turn {
  std::size_t first = 0, count = 1;
  std::size_t end() const { return first + count; }
};
// The turn that begins with pass `first`.
Turn turn_at(const std::vector<Pass>& passes, std::size_t first);
std::vector<Turn> turns(const std::vector<Pass>& passes);
std::span<const Pass> passes_of(const std::vector<Pass>& passes, const Turn& turn);

// The part-th part of what a pass of a turn computes of its segment-th segment.
struct BraidedPart {
  std::size_t pass = 0, segment = 0, part = 0;
  friend bool operator==(const BraidedPart&, const BraidedPart&) = default;
};
// In which order the parts of a turn's passes come, of which parts[pass][segment] says how many there are, none 0: the segments
// by turns, each pass at an even pace from the turn's beginning to its end, and each segment at an even pace through its parts.
// So what one pass waits for goes on behind a part of the other.
std::vector<BraidedPart> order_of_parts(const std::vector<std::vector<std::size_t>>& parts);

// Says which passes are braided. Pairs that a file marks stay, and there are no others; of one that needs the other, on this
// rank or by way of others, the two are computed one after the other. Else, where one rank has all stages nobody waits for its
// messages, so each forward is paired with the pass before or after it. Elsewhere a pair holds up the rank that waits for the
// first of it, which pays where ranks have several stages: that message has other passes to wait behind. There each forward is
// paired with the backward (or input part) next to it: all with the one behind, or all with the one before them, whichever the
// pipeline ends sooner with, as estimated; none if it ends no sooner with either.
void braid(Schedule& schedule);
// Of one rank with all stages: each forward but the first comes one forward sooner, so that the first two are beside each other
// and braid() leaves none by itself. Every pass that needs another still comes behind it. One more micro-batch is in flight.
void begin_ahead(Schedule& schedule);
// Of micro-batches of half the sequences, twice as many: each pass of micro-batch m becomes those of 2m and of 2m + 1. Forwards
// and input parts are braided, which have nothing else to hide their exchanges behind. A whole backward has its weight parts,
// and a weight part exchanges nothing: one after the other, the first half's gradients are sent on sooner.
void halve(Schedule& schedule);
// No passes are.
void unbraid(Schedule& schedule);

}  // namespace plait::parallel
