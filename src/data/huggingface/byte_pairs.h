// Byte pair encoding (Gage 1994; Sennrich et al. 2016) over bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace plait::data {

// GPT-2's alphabet of bytes: a byte-level vocabulary writes each byte as a visible character, so that the vocabulary is text.
// Printable characters of Latin-1 stand for themselves, the other 68 bytes for U+0100 and the following code points (Radford et
// al. 2019, bytes_to_unicode). The bytes that a token of the vocabulary stands for; nullopt if it has a character outside the
// alphabet.
std::optional<std::string> bytes_of_token(std::string_view token);

// The rank of a merge is its place in the list: lower ranks merge first.
struct BytePairMerge {
  std::int32_t left = 0, right = 0, merged = 0;
};

struct BytePairModel {
  std::array<std::int32_t, 256> bytes{};                // the token of each byte; no_token: unknown
  std::int32_t unknown = -1;                            // for bytes without a token; no_token: UTF-8 never needs it
  bool fuse_unknown = false;                            // one token for a run of unknown bytes
  std::vector<BytePairMerge> merges;                    // if a pair occurs twice, the last counts
  std::unordered_map<std::string, std::int32_t> whole;  // pieces that are tokens regardless of merges (ignore_merges)

  static constexpr std::int32_t no_token = -1;
};

// An encoder's working memory; one for each thread. Remembers the tokens of pieces, in a table of constant size.
class BytePairScratch {
 public:
  BytePairScratch() : remembered_(remembered_pieces) {}

 private:
  friend class BytePairEncoder;
  static constexpr std::size_t remembered_pieces = 1 << 16;  // 4 MiB, about the size of a second-level cache
  static constexpr std::size_t longest_remembered = 30, most_remembered_tokens = 8;
  struct Remembered {
    std::uint8_t length = 0;  // 0: nothing
    std::uint8_t count = 0;
    std::array<char, longest_remembered> piece{};
    std::array<std::int32_t, most_remembered_tokens> tokens{};
  };
  static_assert(sizeof(Remembered) == 64);
  struct Symbol {
    std::int32_t token = 0;  // no_token: merged into the one before
    std::uint32_t before = 0, after = 0;
  };
  struct Candidate {
    std::uint32_t rank = 0, at = 0;
    std::int32_t merged = 0;
  };
  std::vector<Remembered> remembered_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> candidates_;
  std::vector<std::uint32_t> ranks_;
};

// Immutable and thread-safe.
class BytePairEncoder {
 public:
  explicit BytePairEncoder(const BytePairModel& model);

  // Appends the tokens of a piece, which is not empty: the merge of lowest rank is made first, the leftmost among equals, until
  // none is left. O(n log n).
  void encode(std::string_view piece, BytePairScratch& scratch, std::vector<std::int32_t>& tokens) const;

 private:
  struct Merge {
    std::uint64_t pair = no_pair;
    std::uint32_t rank = 0;
    std::int32_t merged = 0;
  };
  static constexpr std::uint64_t no_pair = UINT64_MAX;

  const Merge* find(std::int32_t left, std::int32_t right) const;  // null: the pair has no merge
  void start(std::string_view piece, std::vector<std::int32_t>& symbols) const;
  void merge_short(BytePairScratch& scratch, std::vector<std::int32_t>& tokens, std::size_t first) const;
  void merge_long(BytePairScratch& scratch, std::vector<std::int32_t>& tokens, std::size_t first) const;

  std::array<std::int32_t, 256> bytes_;
  std::int32_t unknown_;
  bool fuse_unknown_;
  std::vector<Merge> table_;  // open addressing; a power of two, at most half full
  unsigned shift_ = 0;
  std::unordered_map<std::string, std::int32_t> whole_;
};

}  // namespace plait::data
