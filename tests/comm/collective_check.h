// Makes random collective calls on a communicator of any backend and checks every element of every result.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/device.h"
#include "core/philox.h"

namespace plait::comm::test {

inline void write_element(DType dtype, void* data, std::int64_t i, double value) {
  switch (dtype) {
    case DType::f32: static_cast<float*>(data)[i] = static_cast<float>(value); return;
    case DType::f64: static_cast<double*>(data)[i] = value; return;
    case DType::bf16: static_cast<BFloat16*>(data)[i] = BFloat16(static_cast<float>(value)); return;
    case DType::i32: static_cast<std::int32_t*>(data)[i] = static_cast<std::int32_t>(value); return;
    case DType::u8: static_cast<std::uint8_t*>(data)[i] = static_cast<std::uint8_t>(value); return;
  }
}

inline double read_element(DType dtype, const void* data, std::int64_t i) {
  switch (dtype) {
    case DType::f32: return static_cast<const float*>(data)[i];
    case DType::f64: return static_cast<const double*>(data)[i];
    case DType::bf16: return static_cast<float>(static_cast<const BFloat16*>(data)[i]);
    case DType::i32: return static_cast<const std::int32_t*>(data)[i];
    case DType::u8: return static_cast<const std::uint8_t*>(data)[i];
  }
  return 0;
}

class CollectiveCheck {
 public:
  // `largest` bounds the elements of one rank's slice.
  CollectiveCheck(Communicator& communicator, Device device, std::int64_t largest, std::uint64_t seed)
      : comm_(communicator),
        stream_(device),
        memory_(device),
        random_(seed, "collectives"),
        largest_(largest),
        bytes_(static_cast<std::size_t>(largest * comm_.size()) * 8 + guard_bytes),
        whole_(memory_.allocate(bytes_)),
        other_(memory_.allocate(bytes_)),
        host_(memory_.allocate(bytes_, MemoryKind::pinned_host)) {}

  // The choice of operation, type and size depends on the seed and `call` only, so all ranks make the same call.
  void random_call(std::uint64_t call) {
    call_ = call;
    const auto pick = [&](std::uint64_t bound, std::uint64_t what) { return random_.below(bound, call, what); };
    const std::int64_t count = pick(8, 0) == 0 ? static_cast<std::int64_t>(pick(4, 1))
                                               : static_cast<std::int64_t>(pick(static_cast<std::uint64_t>(largest_), 1) + 1);
    const bool in_place = pick(2, 2) == 0;
    const Reduction reduction = pick(2, 3) == 0 ? Reduction::sum : Reduction::max;
    constexpr DType reducible[] = {DType::f32, DType::f64, DType::bf16, DType::i32};
    const DType dtype = reducible[pick(4, 4)];
    const DType any = pick(5, 5) == 0 ? DType::u8 : dtype;
    switch (pick(5, 6)) {
      case 0: return all_reduce(dtype, count, reduction);
      case 1: return reduce_scatter(dtype, count, reduction, in_place);
      case 2: return all_gather(any, count, in_place);
      case 3: return broadcast(any, count, static_cast<int>(pick(static_cast<std::uint64_t>(comm_.size()), 7)));
      default: return all_to_all(any, count);
    }
  }

  void all_reduce(DType dtype, std::int64_t count, Reduction reduction) {
    describe("all_reduce", dtype, count);
    upload(whole_, dtype, count, [&](std::int64_t i) { return input(comm_.rank(), i); });
    comm_.all_reduce(stream_, {whole_.data(), dtype, {count}}, reduction);
    expect(whole_, dtype, 0, count, [&](std::int64_t i) { return reduced(reduction, i); });
    expect_guard(whole_, dtype, count);
  }

  void reduce_scatter(DType dtype, std::int64_t count, Reduction reduction, bool in_place) {
    describe("reduce_scatter", dtype, count);
    const std::int64_t total = count * comm_.size();
    const std::int64_t first = count * comm_.rank();
    upload(whole_, dtype, total, [&](std::int64_t i) { return input(comm_.rank(), i); });
    upload(other_, dtype, count, [](std::int64_t) { return 99.0; });
    const View data(whole_.data(), dtype, {total});
    const View part = in_place ? data.rows(first, count) : View(other_.data(), dtype, {count});
    comm_.reduce_scatter(stream_, data, part, reduction);
    expect(in_place ? whole_ : other_, dtype, in_place ? first : 0, count,
           [&](std::int64_t i) { return reduced(reduction, first + i); });
    if (!in_place) {
      expect(whole_, dtype, 0, total, [&](std::int64_t i) { return input(comm_.rank(), i); });
      expect_guard(other_, dtype, count);
    }
    expect_guard(whole_, dtype, total);
  }

  void all_gather(DType dtype, std::int64_t count, bool in_place) {
    describe("all_gather", dtype, count);
    const std::int64_t total = count * comm_.size();
    const std::int64_t first = count * comm_.rank();
    const auto own = [&](std::int64_t i) { return input(comm_.rank(), i); };
    upload(whole_, dtype, total, [&](std::int64_t i) { return in_place && i >= first && i < first + count ? own(i - first) : 99.0; });
    upload(other_, dtype, count, own);
    const View data(whole_.data(), dtype, {total});
    comm_.all_gather(stream_, in_place ? data.rows(first, count) : View(other_.data(), dtype, {count}), data);
    expect(whole_, dtype, 0, total, [&](std::int64_t i) { return input(static_cast<int>(i / count), i % count); });
    expect_guard(whole_, dtype, total);
  }

  void broadcast(DType dtype, std::int64_t count, int root) {
    describe("broadcast", dtype, count);
    upload(whole_, dtype, count, [&](std::int64_t i) { return input(comm_.rank(), i); });
    comm_.broadcast(stream_, {whole_.data(), dtype, {count}}, root);
    expect(whole_, dtype, 0, count, [&](std::int64_t i) { return input(root, i); });
    expect_guard(whole_, dtype, count);
  }

  void all_to_all(DType dtype, std::int64_t count) {
    describe("all_to_all", dtype, count);
    const std::int64_t total = count * comm_.size();
    upload(whole_, dtype, total, [&](std::int64_t i) { return input(comm_.rank(), i); });
    upload(other_, dtype, total, [](std::int64_t) { return 99.0; });
    comm_.all_to_all(stream_, {whole_.data(), dtype, {total}}, {other_.data(), dtype, {total}});
    expect(other_, dtype, 0, total,
           [&](std::int64_t i) { return input(static_cast<int>(i / count), comm_.rank() * count + i % count); });
    expect(whole_, dtype, 0, total, [&](std::int64_t i) { return input(comm_.rank(), i); });
    expect_guard(other_, dtype, total);
  }

  // The bits of an all_reduce of ordinary (not exactly summable) numbers.
  std::string reduced_bits(DType dtype, std::int64_t count) {
    const Random values(77 + static_cast<std::uint64_t>(comm_.rank()), "values");
    upload(whole_, dtype, count, [&](std::int64_t i) { return values.normal(static_cast<std::uint64_t>(i)); });
    comm_.all_reduce(stream_, {whole_.data(), dtype, {count}});
    const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
    download(whole_, bytes);
    return {static_cast<const char*>(host_.data()), bytes};
  }

 private:
  static constexpr std::size_t guard_bytes = 64;
  static constexpr unsigned char guard_value = 0xa5;

  // Small integers: sums of eight of them are exact in every type, u8 holds them, and every (call, rank, place) differs.
  double input(int rank, std::int64_t i) const {
    return static_cast<double>(random_.below(9, call_ * 64 + static_cast<std::uint64_t>(rank), 1000 + static_cast<std::uint64_t>(i)));
  }
  double reduced(Reduction reduction, std::int64_t i) const {
    double result = input(0, i);
    for (int rank = 1; rank < comm_.size(); ++rank) {
      result = reduction == Reduction::sum ? result + input(rank, i) : std::max(result, input(rank, i));
    }
    return result;
  }

  void describe(const char* name, DType dtype, std::int64_t count) {
    what_ = std::string(name) + " of " + std::to_string(count) + " " + std::string(to_string(dtype)) + ", rank " +
            std::to_string(comm_.rank()) + " of " + std::to_string(comm_.size()) + ", call " + std::to_string(call_);
  }

  template <typename Value> void upload(Buffer& to, DType dtype, std::int64_t count, Value value) {
    std::memset(host_.data(), guard_value, bytes_);
    for (std::int64_t i = 0; i < count; ++i) write_element(dtype, host_.data(), i, value(i));
    stream_.ref().copy(to.data(), host_.data(), bytes_);
    stream_.ref().synchronize();
  }

  void download(const Buffer& from, std::size_t bytes) {
    stream_.ref().copy(host_.data(), from.data(), bytes);
    stream_.ref().synchronize();
  }

  template <typename Value>
  void expect(const Buffer& result, DType dtype, std::int64_t first, std::int64_t count, Value value) {
    download(result, bytes_);
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(read_element(dtype, host_.data(), first + i), value(i)) << what_ << ", element " << i;
    }
  }

  void expect_guard(const Buffer& result, DType dtype, std::int64_t count) {
    download(result, bytes_);
    const auto* byte = static_cast<const unsigned char*>(host_.data()) + static_cast<std::size_t>(count) * size_of(dtype);
    for (std::size_t i = 0; i < guard_bytes; ++i) ASSERT_EQ(byte[i], guard_value) << what_ << ": wrote past the end";
  }

  Communicator& comm_;
  Stream stream_;
  DeviceMemory memory_;
  Random random_;
  std::int64_t largest_;
  std::size_t bytes_;
  Buffer whole_, other_, host_;
  std::uint64_t call_ = 0;
  std::string what_;
};

}  // namespace plait::comm::test
