#include "comm/absent_communicator.h"

#include "comm/contract.h"
#include "comm/p2p/mover.h"
#include "core/error.h"

namespace plait::comm {
namespace {

std::byte* slice(const View& data, std::size_t bytes, int index) {
  return static_cast<std::byte*>(data.data) + bytes * static_cast<std::size_t>(index);
}

void copy(StreamRef stream, void* to, const void* from, std::size_t bytes) {
  if (to != from && bytes > 0) stream.copy(to, from, bytes);
}

}  // namespace

AbsentCommunicator::AbsentCommunicator(int rank, int size) : rank_(rank), size_(size) {
  require(size >= 1 && rank >= 0 && rank < size, "AbsentCommunicator: a rank of the group");
}

void AbsentCommunicator::all_reduce(StreamRef, View data, Reduction) { check_reducible(data); }

void AbsentCommunicator::reduce(StreamRef, View data, int root, Reduction) {
  check_reducible(data);
  check_root(root, size_);
}

void AbsentCommunicator::reduce_scatter(StreamRef stream, View data, View part, Reduction) {
  check_reducible(data);
  check_slices(data, part, size_);
  copy(stream, part.data, slice(data, part.bytes(), rank_), part.bytes());
}

std::vector<View> AbsentCommunicator::reduce_scatter_addends(StreamRef, View data, View part) {
  check_reducible(data);
  check_slices(data, part, size_);
  return {{slice(data, part.bytes(), rank_), part.dtype, part.shape}};
}

void AbsentCommunicator::all_gather(StreamRef stream, View part, View data) {
  check_slices(data, part, size_);
  if (part.bytes() == 0) return;
  std::vector<p2p::Copy> copies;
  const auto copy_them = [&] { p2p::copy_all(stream, copies), copies.clear(); };
  for (int index = 0; index < size_; ++index) {
    std::byte* const to = slice(data, part.bytes(), index);
    if (to != part.data) copies.push_back({to, part.data, part.bytes()});
    if (copies.size() == p2p::most_copies) copy_them();
  }
  copy_them();
}

void AbsentCommunicator::broadcast(StreamRef, View, int root) { check_root(root, size_); }

void AbsentCommunicator::all_to_all(StreamRef stream, View send, View receive) {
  check_all_to_all(send, receive, size_);
  copy(stream, receive.data, send.data, send.bytes());
}

void AbsentCommunicator::send(StreamRef, View, int) { throw InternalError("AbsentCommunicator::send: there is no peer"); }
void AbsentCommunicator::receive(StreamRef, View, int) { throw InternalError("AbsentCommunicator::receive: there is no peer"); }

}  // namespace plait::comm
