#include "comm/backends.h"

#include "core/error.h"

namespace plait::comm {

void check_reducible(const View& data, Where where) {
  require(data.dtype != DType::u8 && data.dtype != DType::e4m3,
          "a reduction needs f32, f64, bf16 or i32 elements, not " + std::string(to_string(data.dtype)), where);
}

void check_slices(const View& whole, const View& part, int size, Where where) {
  require(whole.dtype == part.dtype, "the part and the whole must have one element type", where);
  require(whole.elements() == part.elements() * size,
          "the whole has " + std::to_string(whole.elements()) + " elements, not " + std::to_string(size) + " parts of " +
              std::to_string(part.elements()),
          where);
}

void check_peer(int peer, int rank, int size, bool allowed, Where where) {
  require(peer >= 0 && peer < size && peer != rank,
          "rank " + std::to_string(rank) + " of " + std::to_string(size) + " has no peer " + std::to_string(peer), where);
  require(allowed, "the group was joined without GroupSpec::point_to_point", where);
}

void check_all_to_all(const View& send, const View& receive, int size, Where where) {
  require(send.dtype == receive.dtype && send.elements() == receive.elements() && send.elements() % size == 0,
          "all_to_all needs two buffers of one type and " + std::to_string(size) + " equal slices", where);
  require(send.data != receive.data || send.elements() == 0, "all_to_all does not work in place", where);
}

}  // namespace plait::comm
