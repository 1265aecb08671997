// Makes random collective calls on a communicator of any backend and checks every element of every result.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "checked_buffers.h"
#include "comm/communicator.h"
#include "core/philox.h"

namespace plait::comm::test {

class CollectiveCheck {
 public:
  static constexpr DType reducible[] = {DType::f32, DType::f64, DType::bf16, DType::i32};

  // `largest` bounds the elements of one rank's slice.
  CollectiveCheck(Communicator& communicator, Device device, std::int64_t largest, std::uint64_t seed)
      : comm_(communicator),
        buffers_(device, static_cast<std::size_t>(largest * comm_.size()) * 8),
        random_(seed, "collectives"),
        largest_(largest),
        whole_(buffers_.allocate()),
        other_(buffers_.allocate()) {}

  // The choice of operation, type and size depends on the seed and `call` only, so all ranks make the same call.
  void random_call(std::uint64_t call) {
    call_ = call;
    const auto pick = [&](std::uint64_t bound, std::uint64_t what) { return random_.below(bound, call, what); };
    const std::int64_t count = pick(8, 0) == 0 ? static_cast<std::int64_t>(pick(4, 1))
                                               : static_cast<std::int64_t>(pick(static_cast<std::uint64_t>(largest_), 1) + 1);
    const bool in_place = pick(2, 2) == 0;
    const Reduction reduction = pick(2, 3) == 0 ? Reduction::sum : Reduction::max;
    const DType dtype = reducible[pick(4, 4)];
    const DType any = pick(5, 5) == 0 ? DType::u8 : dtype;
    switch (pick(5, 6)) {
      case 0: return all_reduce(dtype, count, reduction);
      case 1: return reduce_scatter(dtype, count, reduction, in_place);
      case 2: return all_gather(any, count, in_place);
      case 3: return reduce_scatter_addends(dtype, count);
      default: return all_to_all(any, count);
    }
  }

  // Every operation, in place and not, with each of these counts: reductions of every type that has them, and
  // copies of the types in `copied`.
  void every_operation(std::initializer_list<std::int64_t> counts, std::initializer_list<DType> copied) {
    for (const std::int64_t count : counts) {
      for (const DType dtype : reducible) {
        for (const Reduction reduction : {Reduction::sum, Reduction::max}) {
          all_reduce(dtype, count, reduction);
          reduce_scatter(dtype, count, reduction, false);
          reduce_scatter(dtype, count, reduction, true);
        }
        reduce_scatter_addends(dtype, count);
      }
      for (const DType dtype : copied) {
        all_gather(dtype, count, false);
        all_gather(dtype, count, true);
        all_to_all(dtype, count);
      }
    }
  }

  void all_reduce(DType dtype, std::int64_t count, Reduction reduction) {
    describe("all_reduce", dtype, count);
    buffers_.upload(whole_, dtype, count, [&](std::int64_t i) { return input(comm_.rank(), i); });
    comm_.all_reduce(buffers_.stream(), {whole_.data(), dtype, {count}}, reduction);
    buffers_.expect(whole_, dtype, 0, count, [&](std::int64_t i) { return reduced(reduction, i); });
    buffers_.expect_guard(whole_, dtype, count);
  }

  void reduce_scatter(DType dtype, std::int64_t count, Reduction reduction, bool in_place) {
    describe("reduce_scatter", dtype, count);
    const std::int64_t total = count * comm_.size();
    const std::int64_t first = count * comm_.rank();
    buffers_.upload(whole_, dtype, total, [&](std::int64_t i) { return input(comm_.rank(), i); });
    buffers_.upload(other_, dtype, count, [](std::int64_t) { return 99.0; });
    const View data(whole_.data(), dtype, {total});
    const View part = in_place ? data.rows(first, count) : View(other_.data(), dtype, {count});
    comm_.reduce_scatter(buffers_.stream(), data, part, reduction);
    buffers_.expect(in_place ? whole_ : other_, dtype, in_place ? first : 0, count,
                    [&](std::int64_t i) { return reduced(reduction, first + i); });
    if (!in_place) {
      buffers_.expect(whole_, dtype, 0, total, [&](std::int64_t i) { return input(comm_.rank(), i); });
      buffers_.expect_guard(other_, dtype, count);
    }
    buffers_.expect_guard(whole_, dtype, total);
  }

  void reduce_scatter_addends(DType dtype, std::int64_t count) {
    describe("reduce_scatter_addends", dtype, count);
    const std::int64_t total = count * comm_.size(), first = count * comm_.rank();
    buffers_.upload(whole_, dtype, total, [&](std::int64_t i) { return input(comm_.rank(), i); });
    const StreamRef stream = buffers_.stream();
    std::vector<std::vector<std::byte>> addends;
    for (const View& addend :
         comm_.reduce_scatter_addends(stream, {whole_.data(), dtype, {total}}, {other_.data(), dtype, {count}})) {
      addends.emplace_back(addend.bytes());
      if (count > 0) stream.copy(addends.back().data(), addend.data, addend.bytes());
    }
    comm_.release_addends(stream);
    stream.synchronize();
    for (std::int64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (const std::vector<std::byte>& addend : addends) sum += read_element(dtype, addend.data(), i);
      ASSERT_EQ(sum, reduced(Reduction::sum, first + i)) << "reduce_scatter_addends, element " << i;
    }
    buffers_.expect(whole_, dtype, 0, total, [&](std::int64_t i) { return input(comm_.rank(), i); });
    buffers_.expect_guard(whole_, dtype, total);
  }

  void all_gather(DType dtype, std::int64_t count, bool in_place) {
    describe("all_gather", dtype, count);
    const std::int64_t total = count * comm_.size();
    const std::int64_t first = count * comm_.rank();
    const auto own = [&](std::int64_t i) { return input(comm_.rank(), i); };
    buffers_.upload(whole_, dtype, total,
                    [&](std::int64_t i) { return in_place && i >= first && i < first + count ? own(i - first) : 99.0; });
    buffers_.upload(other_, dtype, count, own);
    const View data(whole_.data(), dtype, {total});
    comm_.all_gather(buffers_.stream(), in_place ? data.rows(first, count) : View(other_.data(), dtype, {count}), data);
    buffers_.expect(whole_, dtype, 0, total, [&](std::int64_t i) { return input(static_cast<int>(i / count), i % count); });
    buffers_.expect_guard(whole_, dtype, total);
  }

  void all_to_all(DType dtype, std::int64_t count) {
    describe("all_to_all", dtype, count);
    const std::int64_t total = count * comm_.size();
    buffers_.upload(whole_, dtype, total, [&](std::int64_t i) { return input(comm_.rank(), i); });
    buffers_.upload(other_, dtype, total, [](std::int64_t) { return 99.0; });
    comm_.all_to_all(buffers_.stream(), {whole_.data(), dtype, {total}}, {other_.data(), dtype, {total}});
    buffers_.expect(other_, dtype, 0, total,
                    [&](std::int64_t i) { return input(static_cast<int>(i / count), comm_.rank() * count + i % count); });
    buffers_.expect(whole_, dtype, 0, total, [&](std::int64_t i) { return input(comm_.rank(), i); });
    buffers_.expect_guard(other_, dtype, total);
  }

  // The bits of an all_reduce of ordinary (not exactly summable) numbers.
  std::string reduced_bits(DType dtype, std::int64_t count) {
    const Random values(77 + static_cast<std::uint64_t>(comm_.rank()), "values");
    buffers_.upload(whole_, dtype, count, [&](std::int64_t i) { return values.normal(static_cast<std::uint64_t>(i)); });
    comm_.all_reduce(buffers_.stream(), {whole_.data(), dtype, {count}});
    return {static_cast<const char*>(buffers_.download(whole_)), static_cast<std::size_t>(count) * size_of(dtype)};
  }

 private:
  // Small integers: sums of eight of them are exact in every type, u8 holds them, and every (call, rank, place) differs.
  double input(int rank, std::int64_t i) const {
    return static_cast<double>(
        random_.below(9, call_ * 64 + static_cast<std::uint64_t>(rank), 1000 + static_cast<std::uint64_t>(i)));
  }
  double reduced(Reduction reduction, std::int64_t i) const {
    double result = input(0, i);
    for (int rank = 1; rank < comm_.size(); ++rank) {
      result = reduction == Reduction::sum ? result + input(rank, i) : std::max(result, input(rank, i));
    }
    return result;
  }

  void describe(const char* name, DType dtype, std::int64_t count) {
    buffers_.describe(std::string(name) + " of " + std::to_string(count) + " " + std::string(to_string(dtype)) + ", rank " +
                      std::to_string(comm_.rank()) + " of " + std::to_string(comm_.size()) + ", call " + std::to_string(call_));
  }

  Communicator& comm_;
  CheckedBuffers buffers_;
  Random random_;
  std::int64_t largest_;
  Buffer whole_, other_;
  std::uint64_t call_ = 0;
};

}  // namespace plait::comm::test
