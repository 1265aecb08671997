#include "data/huggingface/byte_pairs.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/error.h"

namespace plait::data {
namespace {

constexpr unsigned alphabet_end = 0x100 + 68;

constexpr std::array<int, alphabet_end> byte_of_character = [] {
  std::array<int, alphabet_end> bytes{};
  bytes.fill(-1);
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    bytes[printable ? byte : next++] = static_cast<int>(byte);
  }
  return bytes;
}();

}  // namespace

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string bytes;
  for (std::size_t i = 0; i < token.size(); ++i) {
    unsigned character = static_cast<unsigned char>(token[i]);
    if (character >= 0x80) {
      // All of the alphabet is below U+0800: two bytes.
      if (character >= 0xe0 || i + 1 == token.size()) return std::nullopt;
      character = (character & 0x1fu) << 6 | (static_cast<unsigned char>(token[++i]) & 0x3fu);
    }
    if (character >= alphabet_end || byte_of_character[character] < 0) return std::nullopt;
    bytes += static_cast<char>(byte_of_character[character]);
  }
  return bytes;
}

namespace {

constexpr std::uint64_t mixer = 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio: Fibonacci hashing
constexpr std::size_t short_piece = 24;               // up to here, checking all pairs is quicker than a heap
constexpr std::uint32_t no_symbol = UINT32_MAX, no_rank = UINT32_MAX;

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

std::uint64_t hash_of_piece(std::string_view piece) {
  std::uint64_t hash = piece.size() * mixer;
  const char* at = piece.data();
  std::size_t left = piece.size();
  for (; left > 8; left -= 8, at += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, at, 8);
    hash = (std::rotl(hash, 29) ^ eight) * mixer;
    hash ^= hash >> 32;
  }
  std::uint64_t rest = 0;
  std::memcpy(&rest, at, left);
  hash = (std::rotl(hash, 29) ^ rest) * mixer;
  return hash ^ hash >> 29;
}

}  // namespace

BytePairEncoder::BytePairEncoder(const BytePairModel& model)
    : bytes_(model.bytes), unknown_(model.unknown), fuse_unknown_(model.fuse_unknown), whole_(model.whole) {
  require(model.merges.size() < no_rank, "BytePairEncoder: too many merges");
  table_.resize(std::bit_ceil(2 * model.merges.size() + 2));
  shift_ = 64 - static_cast<unsigned>(std::countr_zero(table_.size()));
  for (std::size_t rank = 0; rank < model.merges.size(); ++rank) {
    const BytePairMerge& merge = model.merges[rank];
    const std::uint64_t pair = pair_of(merge.left, merge.right);
    std::size_t slot = pair * mixer >> shift_;
    while (table_[slot].pair != no_pair && table_[slot].pair != pair) slot = (slot + 1) & (table_.size() - 1);
    table_[slot] = {pair, static_cast<std::uint32_t>(rank), merge.merged};
  }
}

const BytePairEncoder::Merge* BytePairEncoder::find(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = pair_of(left, right);
  for (std::size_t slot = pair * mixer >> shift_;; slot = (slot + 1) & (table_.size() - 1)) {
    if (table_[slot].pair == pair) return &table_[slot];
    if (table_[slot].pair == no_pair) return nullptr;
  }
}

void BytePairEncoder::encode(std::string_view piece, BytePairScratch& scratch, std::vector<std::int32_t>& tokens) const {
  using Scratch = BytePairScratch;
  Scratch::Remembered* remembered = nullptr;
  if (piece.size() <= Scratch::longest_remembered) {
    remembered = &scratch.remembered_[hash_of_piece(piece) % Scratch::remembered_pieces];
    if (remembered->length == piece.size() && std::memcmp(remembered->piece.data(), piece.data(), piece.size()) == 0) {
      tokens.insert(tokens.end(), remembered->tokens.begin(), remembered->tokens.begin() + remembered->count);
      return;
    }
  }
  const std::size_t first = tokens.size();
  const auto whole = whole_.empty() ? whole_.end() : whole_.find(std::string(piece));
  if (whole != whole_.end()) {
    tokens.push_back(whole->second);
  } else {
    start(piece, tokens);
    tokens.size() - first <= short_piece ? merge_short(scratch, tokens, first) : merge_long(scratch, tokens, first);
  }
  const std::size_t count = tokens.size() - first;
  if (remembered == nullptr || count > Scratch::most_remembered_tokens) return;
  remembered->length = static_cast<std::uint8_t>(piece.size());
  remembered->count = static_cast<std::uint8_t>(count);
  std::copy(piece.begin(), piece.end(), remembered->piece.begin());
  std::copy(tokens.begin() + static_cast<std::ptrdiff_t>(first), tokens.end(), remembered->tokens.begin());
}

// Appends the tokens of the bytes.
void BytePairEncoder::start(std::string_view piece, std::vector<std::int32_t>& symbols) const {
  bool was_unknown = false;
  for (const char byte : piece) {
    const std::int32_t token = bytes_[static_cast<unsigned char>(byte)];
    const bool is_unknown = token == BytePairModel::no_token;
    require(!is_unknown || unknown_ != BytePairModel::no_token, "BytePairEncoder: a byte has no token");
    if (!is_unknown) symbols.push_back(token);
    if (is_unknown && !(was_unknown && fuse_unknown_)) symbols.push_back(unknown_);
    was_unknown = is_unknown;
  }
}

void BytePairEncoder::merge_short(BytePairScratch& scratch, std::vector<std::int32_t>& tokens, std::size_t first) const {
  std::vector<std::uint32_t>& ranks = scratch.ranks_;  // [i]: rank of tokens[first + i] with the next
  std::size_t count = tokens.size() - first;
  std::int32_t* symbols = tokens.data() + first;
  const auto rank_of = [&](std::size_t i) {
    const Merge* merge = find(symbols[i], symbols[i + 1]);
    return merge == nullptr ? no_rank : merge->rank;
  };
  ranks.resize(count);
  for (std::size_t i = 0; i + 1 < count; ++i) ranks[i] = rank_of(i);
  while (count > 1) {
    const auto lowest = std::min_element(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count - 1));
    if (*lowest == no_rank) break;
    const auto at = static_cast<std::size_t>(lowest - ranks.begin());
    symbols[at] = find(symbols[at], symbols[at + 1])->merged;
    std::copy(symbols + at + 2, symbols + count, symbols + at + 1);
    --count;
    if (at + 2 < count) std::copy(ranks.data() + at + 2, ranks.data() + count, ranks.data() + at + 1);
    if (at + 1 < count) *lowest = rank_of(at);
    if (at > 0) ranks[at - 1] = rank_of(at - 1);
  }
  tokens.resize(first + count);
}

void BytePairEncoder::merge_long(BytePairScratch& scratch, std::vector<std::int32_t>& tokens, std::size_t first) const {
  using Candidate = BytePairScratch::Candidate;
  std::vector<BytePairScratch::Symbol>& symbols = scratch.symbols_;
  std::vector<Candidate>& candidates = scratch.candidates_;
  const auto count = static_cast<std::uint32_t>(tokens.size() - first);
  require(tokens.size() - first < no_symbol, "BytePairEncoder: a piece is too long");
  symbols.resize(count);
  candidates.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    symbols[i] = {tokens[first + i], i == 0 ? no_symbol : i - 1, i + 1 == count ? no_symbol : i + 1};
  }
  const auto later = [](const Candidate& a, const Candidate& b) { return a.rank != b.rank ? a.rank > b.rank : a.at > b.at; };
  const auto consider = [&](std::uint32_t at) {
    if (at == no_symbol || symbols[at].after == no_symbol) return false;
    const Merge* merge = find(symbols[at].token, symbols[symbols[at].after].token);
    if (merge != nullptr) candidates.push_back({merge->rank, at, merge->merged});
    return merge != nullptr;
  };
  for (std::uint32_t i = 0; i < count; ++i) consider(i);
  std::ranges::make_heap(candidates, later);
  while (!candidates.empty()) {
    std::ranges::pop_heap(candidates, later);
    const Candidate best = candidates.back();
    candidates.pop_back();
    BytePairScratch::Symbol& left = symbols[best.at];
    // The candidate's parts may have been merged since.
    if (left.token == BytePairModel::no_token || left.after == no_symbol) continue;
    BytePairScratch::Symbol& right = symbols[left.after];
    const Merge* merge = find(left.token, right.token);
    if (merge == nullptr || merge->rank != best.rank) continue;
    left.token = best.merged;
    left.after = right.after;
    right.token = BytePairModel::no_token;
    if (left.after != no_symbol) symbols[left.after].before = best.at;
    if (consider(left.before)) std::ranges::push_heap(candidates, later);
    if (consider(best.at)) std::ranges::push_heap(candidates, later);
  }
  tokens.resize(first);
  for (std::uint32_t i = 0; i != no_symbol; i = symbols[i].after) tokens.push_back(symbols[i].token);
  // A very long piece must not keep its memory.
  constexpr std::size_t kept = 1 << 16;
  if (symbols.capacity() > kept) std::vector<BytePairScratch::Symbol>().swap(symbols);
  if (candidates.capacity() > kept) std::vector<Candidate>().swap(candidates);
}

}  // namespace plait::data
