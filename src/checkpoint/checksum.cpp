#include "checkpoint/checksum.h"

#include <spdlog/fmt/fmt.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

namespace plait::checkpoint {

std::uint64_t xxh3(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::uint64_t xxh3(const File& file, std::uint64_t offset, std::uint64_t bytes) {
  constexpr std::uint64_t piece = std::uint64_t{1} << 20;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  if (!state) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  std::vector<char> buffer(std::min(piece, bytes));
  for (std::uint64_t done = 0; done < bytes;) {
    const std::uint64_t count = std::min(piece, bytes - done);
    file.read_at(offset + done, buffer.data(), count);
    XXH3_64bits_update(state.get(), buffer.data(), count);
    done += count;
  }
  return XXH3_64bits_digest(state.get());
}

std::string to_hex(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace plait::checkpoint
