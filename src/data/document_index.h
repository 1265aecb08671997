// NAME.documents beside NAME.bin: where the documents of a shard that plait packed begin, and which tokens are not learned.
//
// Little-endian:
//   8 bytes    "PLAITDOC"
//   uint64     version, 1
//   uint64     tokens of NAME.bin
//   uint64     D, documents that begin in it
//   uint64     R, runs of masked tokens
//   int64[D]   the first token of each document, ascending
//   int64[2R]  first token and end of each run, ascending, with a token or more between them
// Nothing in it is trusted.
#pragma once

#include <cstdint>
#include <filesystem>

#include "data/document_marks.h"

namespace plait::data {

// NAME.documents of NAME.bin.
std::filesystem::path document_index_path(const std::filesystem::path& shard);

// Whether a file is named as an index is, and begins as one does or has a shard beside it, which then says what is wrong.
bool is_document_index(const std::filesystem::path& path);

// ConfigError naming file, offset and what is wrong. `tokens`: of the shard.
DocumentMarks read_document_index(const std::filesystem::path& path, std::int64_t tokens);

// In one piece; another that was there is replaced.
void write_document_index(const std::filesystem::path& path, std::int64_t tokens, const DocumentMarks& marks);

}  // namespace plait::data
