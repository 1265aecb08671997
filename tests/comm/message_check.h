// Sends messages over a communicator of any backend and checks every element that arrives.
#pragma once

#include <string>
#include <vector>

#include "checked_buffers.h"
#include "comm/communicator.h"

namespace plait::comm::test {

class MessageCheck {
 public:
  MessageCheck(Communicator& communicator, Device device, std::size_t largest_bytes)
      : comm_(communicator), buffers_(device, largest_bytes), message_(buffers_.allocate()) {}

  // From each rank to each other one, one message after the other.
  void every_pair(DType dtype, std::int64_t count) {
    for (int from = 0; from < comm_.size(); ++from) {
      for (int to = 0; to < comm_.size(); ++to) {
        if (from != to) one_message(dtype, count, from, to, from * comm_.size() + to);
      }
    }
  }

  // Both ranks enqueue all of their messages before either waits for one; the sizes differ, from nothing up.
  void many_in_order(int from, int to, int messages) {
    if (comm_.rank() != from && comm_.rank() != to) return;
    std::vector<Buffer> memory;
    for (int number = 0; number < messages; ++number) {
      memory.push_back(buffers_.allocate());
      const View data(memory.back().data(), DType::i32, {number % 7 * 31});
      buffers_.upload(memory.back(), data.dtype, data.elements(),
                      [&](std::int64_t i) { return comm_.rank() == from ? content(number, i) : 99.0; });
      if (comm_.rank() == from) comm_.send(buffers_.stream(), data, to);
      if (comm_.rank() == to) comm_.receive(buffers_.stream(), data, from);
    }
    for (int number = 0; number < messages; ++number) {
      describe("message", number);
      const std::int64_t count = number % 7 * 31;
      buffers_.expect(memory[static_cast<std::size_t>(number)], DType::i32, 0, count,
                      [&](std::int64_t i) { return content(number, i); });
      buffers_.expect_guard(memory[static_cast<std::size_t>(number)], DType::i32, count);
    }
  }

  // Hands a buffer from rank to rank; nobody waits between its receive and its send.
  void chain(DType dtype, std::int64_t count) {
    const View data(message_.data(), dtype, {count});
    const int last = comm_.size() - 1;
    for (int round = 0; round < 5; ++round) {
      describe("chain", round);
      buffers_.upload(message_, dtype, count, [&](std::int64_t i) { return comm_.rank() == 0 ? content(round, i) : 99.0; });
      if (comm_.rank() > 0) comm_.receive(buffers_.stream(), data, comm_.rank() - 1);
      if (comm_.rank() < last) comm_.send(buffers_.stream(), data, comm_.rank() + 1);
      buffers_.expect(message_, dtype, 0, count, [&](std::int64_t i) { return content(round, i); });
      buffers_.expect_guard(message_, dtype, count);
    }
  }

  // Collectives of all ranks between messages of which most ranks know nothing.
  void between_collectives(int calls) {
    Buffer sum = buffers_.allocate();
    for (int call = 0; call < calls; ++call) {
      const int from = call % comm_.size();
      one_message(DType::f32, call % 3 * 50, from, (from + 1 + call % (comm_.size() - 1)) % comm_.size(), call);
      describe("all_reduce", call);
      buffers_.upload(sum, DType::f32, 20, [&](std::int64_t i) { return content(call, i) + comm_.rank(); });
      comm_.all_reduce(buffers_.stream(), {sum.data(), DType::f32, {20}}, Reduction::max);
      buffers_.expect(sum, DType::f32, 0, 20, [&](std::int64_t i) { return content(call, i) + comm_.size() - 1; });
    }
  }

  // Ranks 0 and 1 each send over one communicator, on one stream, before they receive over `other`, on another: like the
  // activations and the gradients of a pipeline.
  void both_ways(Communicator& other, int rounds) {
    if (comm_.rank() > 1) return;
    const int peer = 1 - comm_.rank();
    Communicator& out = comm_.rank() == 0 ? comm_ : other;
    Communicator& in = comm_.rank() == 0 ? other : comm_;
    const Stream receiving(buffers_.stream().device());
    Buffer received = buffers_.allocate();
    for (int round = 0; round < rounds; ++round) {
      describe("both ways", round);
      buffers_.upload(message_, DType::f32, 1000, [&](std::int64_t i) { return content(round, i) + comm_.rank(); });
      buffers_.upload(received, DType::f32, 1000, [](std::int64_t) { return 99.0; });
      out.send(buffers_.stream(), {message_.data(), DType::f32, {1000}}, peer);
      in.receive(receiving, {received.data(), DType::f32, {1000}}, peer);
      receiving.ref().synchronize();
      buffers_.expect(received, DType::f32, 0, 1000, [&](std::int64_t i) { return content(round, i) + peer; });
      buffers_.expect_guard(received, DType::f32, 1000);
    }
  }

 private:
  void one_message(DType dtype, std::int64_t count, int from, int to, int number) {
    describe("message", number);
    const View data(message_.data(), dtype, {count});
    buffers_.upload(message_, dtype, count, [&](std::int64_t i) { return comm_.rank() == from ? content(number, i) : 99.0; });
    if (comm_.rank() == from) comm_.send(buffers_.stream(), data, to);
    if (comm_.rank() == to) comm_.receive(buffers_.stream(), data, from);
    if (comm_.rank() != from && comm_.rank() != to) return;
    buffers_.expect(message_, dtype, 0, count, [&](std::int64_t i) { return content(number, i); });
    buffers_.expect_guard(message_, dtype, count);
  }

  // Small integers, which every type holds.
  static double content(int number, std::int64_t i) { return static_cast<double>((number * 29 + i) % 97); }

  void describe(const char* name, int number) {
    buffers_.describe(std::string(name) + " " + std::to_string(number) + ", rank " + std::to_string(comm_.rank()) + " of " +
                      std::to_string(comm_.size()));
  }

  Communicator& comm_;
  CheckedBuffers buffers_;
  Buffer message_;
};

}  // namespace plait::comm::test
