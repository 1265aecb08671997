#include "data/zstd_reader.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "core/error.h"

namespace plait::data {
namespace {

constexpr std::uint64_t compressed_at_once = 1 << 18;
constexpr int most_window_log = 27;  // the default limit of `zstd -d`

}  // namespace

ZstdReader::ZstdReader(const DataFile& file) : file_(file), context_(ZSTD_createDCtx(), ZSTD_freeDCtx) {
  require(
      context_ != nullptr && ZSTD_isError(ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, most_window_log)) == 0,
      "ZstdReader: no context");
}

ZstdReader::~ZstdReader() = default;

void ZstdReader::refuse(const std::string& why) const {
  const std::uint64_t offset = read_ - (input_.size() - at_);
  throw ConfigError({{file_.path().string(), "", fmt::format("{} (at byte offset {})", why, offset), "", 0}});
}

std::size_t ZstdReader::read(std::span<char> to) {
  ZSTD_outBuffer out{to.data(), to.size(), 0};
  while (out.pos < out.size) {
    if (at_ == input_.size() && read_ < file_.size()) {
      input_.resize(static_cast<std::size_t>(std::min(compressed_at_once, file_.size() - read_)));
      file_.read(read_, std::as_writable_bytes(std::span(input_)));
      read_ += input_.size();
      at_ = 0;
    }
    const bool file_ends = at_ == input_.size();
    if (file_ends && !within_frame_) break;
    ZSTD_inBuffer in{input_.data(), input_.size(), at_};
    const std::size_t written = out.pos;
    const std::size_t result = ZSTD_decompressStream(context_.get(), &out, &in);
    at_ = in.pos;
    if (ZSTD_isError(result) != 0) {
      if (ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge)
        refuse("needs a window of more than 128 MiB: compress it without --long");
      refuse(fmt::format("is not whole zstd data: {}", ZSTD_getErrorName(result)));
    }
    within_frame_ = result != 0;
    if (within_frame_ && file_ends && out.pos == written) refuse("is truncated: a zstd frame does not end");
  }
  return out.pos;
}

}  // namespace plait::data
