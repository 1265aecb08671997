// The index of Megatron-LM's token data (IndexedDataset, once MMapIndexedDataset, version 1): NAME.idx next to NAME.bin.
//
// NAME.bin holds the tokens of all sequences, one sequence after another, and nothing else. NAME.idx, little-endian and packed:
//   9 bytes    "MMIDIDX\0\0"
//   uint64     version, 1
//   uint8      type of the tokens: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16 (6 and 7 are floats, and no tokens)
//   uint64     S, number of sequences
//   uint64     D, number of document indices
//   int32[S]   tokens of each sequence
//   int64[S]   where each sequence begins in NAME.bin, in bytes
//   int64[D]   the sequences that documents begin with: 0, ..., S
//   int8[S]    modes of the sequences: of multimodal data only, which is refused
// (megatron/core/datasets/indexed_dataset.py.) Nothing in it is trusted. Private to src/data.
#pragma once

#include <cstdint>
#include <filesystem>

#include "data/documents.h"

namespace plait::data {

// The stored type of a token, little-endian.
enum class TokenType { u8, i8, i16, u16, i32, u32, i64 };

std::size_t size_of(TokenType type);

struct MegatronIndex {
  TokenType type = TokenType::u16;
  std::int64_t tokens = 0;
  std::int64_t sequences = 0;
  DocumentMarks marks;  // where documents begin; none if the index does not say
};

// The path NAME.idx for NAME.bin.
std::filesystem::path megatron_index_path(const std::filesystem::path& tokens);

// True if a file begins like an index. False for one that cannot be read.
bool is_megatron_index(const std::filesystem::path& path);

// Reads the whole index once, a little at a time: every sequence has to begin where the previous one ends, and the last has to
// end at `token_bytes`, the size of NAME.bin. ConfigError naming file, offset and fault.
MegatronIndex read_megatron_index(const std::filesystem::path& path, std::uint64_t token_bytes);

}  // namespace plait::data
