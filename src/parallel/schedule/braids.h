// Braids: pairs of passes that a rank computes together, segment by segment by turns. While one of them waits for an exchange
// between tensor-parallel ranks, a segment of the other is computed.
//
// A backward hides most of its exchanges by itself, behind its weight parts; a forward has nothing to hide them behind. So a
// forward goes with the backward before it, as DeepSeek-AI 2024 ("DualPipe") pairs them, or with another forward. If any other
// pass of the rank would hold up the rank that waits for the first of a pair, the two may be halves of one micro-batch, each of
// half the sequences: the pair sends when the pass of the whole micro-batch would have.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "parallel/schedule/schedule.h"

namespace plait::parallel {

// Passes [first, first + count) of a rank that it computes together: one, or two that are braided. The messages that they need
// are there before, and what they send is sent when both have been computed.
struct Turn {
  std::size_t first = 0, count = 1;
  std::size_t end() const { return first + count; }
};
// The turn that begins with pass `first`.
Turn turn_at(const std::vector<Pass>& passes, std::size_t first);
std::vector<Turn> turns(const std::vector<Pass>& passes);
std::span<const Pass> passes_of(const std::vector<Pass>& passes, const Turn& turn);

// One part of the work of a pass of a turn: the part-th part of its segment-th segment.
struct BraidedPart {
  std::size_t pass = 0, segment = 0, part = 0;
  friend bool operator==(const BraidedPart&, const BraidedPart&) = default;
};
// The order of the parts of a turn's passes. parts[pass][segment] is the number of parts, which is never 0. The segments come
// by turns, each pass at an even pace from the turn's beginning to its end, and each segment at an even pace through its parts.
// So what one pass waits for goes on behind a part of the other.
std::vector<BraidedPart> order_of_parts(const std::vector<std::vector<std::size_t>>& parts);

// Chooses the passes that are braided. Pairs that a file marks stay, and there are no others; if one pass of a pair needs the
// other, on this rank or by way of others, the two are computed one after the other. Otherwise, if one rank has all stages,
// nobody waits for its messages, so each forward is paired with the pass before or after it. With more ranks, a pair holds up
// the rank that waits for its first pass, which pays only if ranks have several stages: that message has other passes to wait
// behind. There, each forward is paired with the backward (or input part) next to it: all with the one behind, or all with the
// one before them, whichever ends the pipeline sooner, as estimated; none if neither does.
void braid(Schedule& schedule);
// For one rank with all stages: moves each forward but the first one forward ahead, so that the first two are beside each other
// and braid() leaves none by itself. Every pass that needs another still comes behind it. One more micro-batch is in flight.
void begin_ahead(Schedule& schedule);
// Makes a schedule of twice as many micro-batches of half the sequences: each pass of micro-batch m becomes those of 2m and of
// 2m + 1. Forwards and input parts are braided, because they have nothing else to hide their exchanges behind. A whole backward
// has its weight parts, and a weight part exchanges nothing: one after the other, the first half's gradients are sent on
// sooner.
void halve(Schedule& schedule);
// Marks no passes as braided.
void unbraid(Schedule& schedule);

}  // namespace plait::parallel
