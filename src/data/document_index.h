// The index NAME.documents of a shard NAME.bin that plait packed: where its documents begin, and which tokens are not learned.
//
// Little-endian:
//   8 bytes    "PLAITDOC"
//   uint64     version, 1
//   uint64     tokens of NAME.bin
//   uint64     D, documents that begin in it
//   uint64     R, runs of masked tokens
//   int64[D]   the first token of each document, ascending
//   int64[2R]  first token and end of each run, ascending, with a token or more between them
// The reader trusts nothing in it.
#pragma once

#include <cstdint>
#include <filesystem>

#include "data/document_marks.h"

namespace plait::data {

// The path NAME.documents for NAME.bin.
std::filesystem::path document_index_path(const std::filesystem::path& shard);

// True if a file has an index's name, and either begins like an index or has a shard next to it, whose reader then reports the
// fault.
bool is_document_index(const std::filesystem::path& path);

// ConfigError naming file, offset and fault. `tokens`: the shard's.
DocumentMarks read_document_index(const std::filesystem::path& path, std::int64_t tokens);

// Writes the file in one piece; an existing one is replaced.
void write_document_index(const std::filesystem::path& path, std::int64_t tokens, const DocumentMarks& marks);

}  // namespace plait::data
