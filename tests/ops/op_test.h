// What the tests of operations share: tensors in double, a device to run them on, comparison and finite differences.
//
// The reference of every comparison is the host's f64 implementation on the same inputs, rounded to the type under test first;
// finite differences check that implementation itself. Nothing here knows CUDA: the device is reached through core.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/philox.h"
#include "core/stream.h"
#include "core/view.h"
#include "ops/op_context.h"

namespace plait::ops {

struct Tensor {
  Shape shape;
  std::vector<double> values;
};
using Tensors = std::map<std::string, Tensor>;

inline Tensor random_tensor(Shape shape, const std::string& name, double scale = 1.0, double mean = 0.0) {
  Tensor tensor{shape, std::vector<double>(static_cast<std::size_t>(shape.elements()))};
  std::vector<float> normal(tensor.values.size());
  Random(7, name).fill_normal(0, normal);
  for (std::size_t i = 0; i < normal.size(); ++i) tensor.values[i] = mean + scale * static_cast<double>(normal[i]);
  return tensor;
}

inline std::vector<std::int32_t> random_indices(std::int64_t count, std::int64_t bound, const std::string& name) {
  std::vector<std::int32_t> indices(static_cast<std::size_t>(count));
  const Random random(7, name);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    indices[i] = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(bound), i));
  }
  return indices;
}

// Where documents begin, as ops/attention_shape.h has it: some of one token, and the last sequence is one document.
inline std::vector<std::int32_t> document_starts(std::int64_t batch, std::int64_t sequence) {
  const std::vector<std::int32_t> lengths =
      random_indices(batch * sequence, std::max<std::int64_t>(1, sequence / 2), "lengths");
  std::vector<std::int32_t> starts;
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t start = 0, end = 0;
    for (std::int64_t i = 0; i < sequence; ++i) {
      if (i == end) {
        start = i;
        end = b + 1 == batch && batch > 1 ? sequence : i + 1 + lengths[static_cast<std::size_t>(b * sequence + i)];
      }
      starts.push_back(static_cast<std::int32_t>(start));
    }
  }
  return starts;
}

inline double round_to(DType dtype, double value) {
  if (dtype == DType::f32) return static_cast<double>(static_cast<float>(value));
  if (dtype == DType::bf16) return static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(value))));
  return value;
}

// The inputs as `dtype` can hold them, so that a comparison sees the operation's error and not that of its inputs.
inline Tensors rounded(Tensors tensors, DType dtype) {
  for (auto& [name, tensor] : tensors) {
    for (double& value : tensor.values) value = round_to(dtype, value);
  }
  return tensors;
}

// Types and bounds of one instantiation. Errors are relative: of the whole tensor by L2 norm, and of the worst element
// against the largest reference value.
struct Precision {
  DeviceKind device = DeviceKind::host;
  DType compute = DType::f64;
  DType gradient = DType::f64;
  double norm_error = 0, largest_error = 0;
  std::string name() const {
    return std::string(to_string(compute)) + (gradient == compute ? "" : "_" + std::string(to_string(gradient)));
  }
};

inline const Precision oracle{};

// f32: a sum of K terms is off by about sqrt(K) / 3 * 2^-24, here K <= 50,304 (TF32 would show as 3e-4). bf16: half a unit in
// the last place is 2^-9 = 0.2 % of a value.
inline std::vector<Precision> host_precisions() {
  return {{DeviceKind::host, DType::f32, DType::f32, 1e-5, 5e-5},
          {DeviceKind::host, DType::bf16, DType::f32, 4e-3, 2e-2},
          {DeviceKind::host, DType::bf16, DType::bf16, 4e-3, 2e-2}};
}
inline std::vector<Precision> gpu_precisions() {
  std::vector<Precision> all = host_precisions();
  for (Precision& p : all) p.device = DeviceKind::cuda;
  return all;
}

// For operations without parameter gradients, where the gradient type makes no difference.
inline std::vector<Precision> one_type(std::vector<Precision> all) {
  std::erase_if(all, [](const Precision& p) { return p.gradient != p.compute; });
  return all;
}

// One device with a stream, an op context and the memory of a test. Every allocation stands between two guards, which get()
// checks, so a write outside of a tensor fails the test.
class OpDevice {
 public:
  explicit OpDevice(DeviceKind kind, const OpContextOptions& options = {})
      : device_{kind, 0}, memory_(device_), stream_(prepared(device_)) {
    workspace_ = memory_.allocate(workspace_bytes(kind, {}));
    const View workspace(workspace_.data(), DType::u8, {static_cast<std::int64_t>(workspace_.bytes())});
    context_ = make_op_context(device_, workspace, options);
  }

  StreamRef stream() const { return stream_.ref(); }
  OpContext& context() { return *context_; }

  View put(const Tensor& tensor, DType dtype) {
    std::vector<std::uint8_t> bytes(tensor.values.size() * size_of(dtype));
    for (std::size_t i = 0; i < tensor.values.size(); ++i) write(bytes.data() + i * size_of(dtype), dtype, tensor.values[i]);
    return place(bytes, dtype, tensor.shape);
  }
  View put(const std::vector<std::int32_t>& indices) {
    std::vector<std::uint8_t> bytes(indices.size() * sizeof(std::int32_t));
    std::memcpy(bytes.data(), indices.data(), bytes.size());
    return place(bytes, DType::i32, {static_cast<std::int64_t>(indices.size())});
  }
  View put(const std::vector<std::uint8_t>& table) {
    return place(table, DType::u8, {static_cast<std::int64_t>(table.size())});
  }

  // For outputs: every element is a NaN, so one that is not written fails the comparison.
  View poisoned(Shape shape, DType dtype) {
    return place(std::vector<std::uint8_t>(static_cast<std::size_t>(shape.elements()) * size_of(dtype), 0xff), dtype, shape);
  }

  std::vector<std::uint8_t> get_bytes(const View& view) {
    std::vector<std::uint8_t> guarded(view.bytes() + 2 * guard_bytes);
    stream().copy(guarded.data(), static_cast<const std::uint8_t*>(view.data) - guard_bytes, guarded.size());
    stream().synchronize();
    const auto intact = [](std::uint8_t byte) { return byte == guard_value; };
    EXPECT_TRUE(std::all_of(guarded.begin(), guarded.begin() + guard_bytes, intact)) << "written before the start of a tensor";
    EXPECT_TRUE(std::all_of(guarded.end() - guard_bytes, guarded.end(), intact)) << "written behind the end of a tensor";
    return {guarded.begin() + guard_bytes, guarded.end() - guard_bytes};
  }

  Tensor get(const View& view) {
    const std::vector<std::uint8_t> bytes = get_bytes(view);
    Tensor tensor{view.shape, std::vector<double>(static_cast<std::size_t>(view.elements()))};
    for (std::size_t i = 0; i < tensor.values.size(); ++i)
      tensor.values[i] = read(bytes.data() + i * size_of(view.dtype), view.dtype);
    return tensor;
  }

 private:
  static constexpr std::ptrdiff_t guard_bytes = 256;
  static constexpr std::uint8_t guard_value = 0xa5;

  static Device prepared(Device device) {
    make_current(device);
    return device;
  }

  View place(const std::vector<std::uint8_t>& bytes, DType dtype, Shape shape) {
    std::vector<std::uint8_t> guarded(static_cast<std::size_t>(guard_bytes), guard_value);
    guarded.insert(guarded.end(), bytes.begin(), bytes.end());
    guarded.insert(guarded.end(), static_cast<std::size_t>(guard_bytes), guard_value);
    buffers_.push_back(memory_.allocate(guarded.size()));
    stream().copy(buffers_.back().data(), guarded.data(), guarded.size());
    stream().synchronize();
    return View(static_cast<std::uint8_t*>(buffers_.back().data()) + guard_bytes, dtype, shape);
  }

  template <typename T>
  static void write_as(std::uint8_t* to, T value) {
    std::memcpy(to, &value, sizeof(T));
  }
  template <typename T>
  static T read_as(const std::uint8_t* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
  static void write(std::uint8_t* to, DType dtype, double value) {
    if (dtype == DType::f64) return write_as(to, value);
    if (dtype == DType::f32) return write_as(to, static_cast<float>(value));
    write_as(to, BFloat16(static_cast<float>(value)));
  }
  static double read(const std::uint8_t* from, DType dtype) {
    if (dtype == DType::f64) return read_as<double>(from);
    if (dtype == DType::f32) return static_cast<double>(read_as<float>(from));
    if (dtype == DType::e4m3) return static_cast<double>(static_cast<float>(read_as<Float8>(from)));
    return static_cast<double>(static_cast<float>(read_as<BFloat16>(from)));
  }

  Device device_;
  DeviceMemory memory_;
  std::vector<Buffer> buffers_;
  Buffer workspace_;
  Stream stream_;
  std::unique_ptr<OpContext> context_;
};

inline void expect_close(const std::string& name, const Tensor& got, const Tensor& expected, double norm_error,
                         double largest_error) {
  ASSERT_EQ(got.shape, expected.shape) << name;
  double difference = 0, reference = 0, largest = 0, worst = -1;
  std::size_t worst_at = 0;
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    ASSERT_TRUE(std::isfinite(got.values[i]))
        << name << "[" << i << "] of " << got.shape.to_string() << " is " << got.values[i] << ": not written, or not a number";
    const double error = std::abs(got.values[i] - expected.values[i]);
    difference += error * error;
    reference += expected.values[i] * expected.values[i];
    largest = std::max(largest, std::abs(expected.values[i]));
    if (error > worst) {
      worst = error;
      worst_at = i;
    }
  }
  ASSERT_GT(reference, 0.0) << name << ": the reference is all zeros, which tests nothing";
  EXPECT_LE(std::sqrt(difference / reference), norm_error)
      << name << " of " << got.shape.to_string() << ", relative error by norm";
  EXPECT_LE(worst / largest, largest_error) << name << "[" << worst_at << "] of " << got.shape.to_string() << " is "
                                            << got.values[worst_at] << ", expected " << expected.values[worst_at];
}

inline void expect_close(const Tensors& got, const Tensors& expected, const Precision& precision) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, tensor] : got) {
    expect_close(name, tensor, expected.at(name), precision.norm_error, precision.largest_error);
  }
}

inline void expect_same_bits(const Tensors& first, const Tensors& second) {
  for (const auto& [name, tensor] : first)
    EXPECT_EQ(tensor.values, second.at(name).values) << name << " differs from run to run";
}

inline double dot(const Tensor& a, const Tensor& b) {
  double total = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) total += a.values[i] * b.values[i];
  return total;
}

// Compares `gradient` with central differences of `loss`, a function of all inputs, in the elements of inputs[name] (up to 40
// of them, spread evenly, first and last included).
inline void expect_gradient(const std::string& name, const Tensors& inputs, const Tensor& gradient,
                            const std::function<double(const Tensors&)>& loss) {
  constexpr double step = 1e-5, bound = 3e-8;
  Tensors moved = inputs;
  std::vector<double>& values = moved.at(name).values;
  ASSERT_EQ(values.size(), gradient.values.size()) << name;
  const std::size_t samples = std::min<std::size_t>(values.size(), 40);
  double difference = 0, reference = 0;
  for (std::size_t k = 0; k < samples; ++k) {
    const std::size_t i = samples == 1 ? 0 : k * (values.size() - 1) / (samples - 1);
    const double at = values[i];
    values[i] = at + step;
    const double above = loss(moved);
    values[i] = at - step;
    const double below = loss(moved);
    values[i] = at;
    const double numeric = (above - below) / (2 * step);
    difference += (numeric - gradient.values[i]) * (numeric - gradient.values[i]);
    reference += numeric * numeric;
  }
  ASSERT_GT(reference, 0.0) << name << ": the gradient is zero, which tests nothing";
  EXPECT_LE(std::sqrt(difference / reference), bound) << "gradient of " << name << " against central differences";
}

// A test over {device, types, tolerance} x {shape}. ShapeT has name() const -> std::string of letters, digits and '_'.
template <typename ShapeT>
struct OpCase {
  Precision precision;
  ShapeT shape;
  friend std::ostream& operator<<(std::ostream& out, const OpCase& c) {
    return out << c.precision.name() << "_" << c.shape.name();
  }
};

template <typename ShapeT>
class OpTest : public testing::TestWithParam<OpCase<ShapeT>> {
 protected:
  void SetUp() override {
    if (precision().device != DeviceKind::cuda) return;
    std::string why;
    if (cuda_device_count(&why) == 0) GTEST_SKIP() << "needs a GPU: " << why;
  }
  const Precision& precision() const { return this->GetParam().precision; }
  const ShapeT& shape() const { return this->GetParam().shape; }
};

template <typename ShapeT>
std::vector<OpCase<ShapeT>> cases(const std::vector<Precision>& precisions, const std::vector<ShapeT>& shapes) {
  std::vector<OpCase<ShapeT>> all;
  for (const Precision& precision : precisions) {
    for (const ShapeT& shape : shapes) all.push_back({precision, shape});
  }
  return all;
}

// The name of a case in CTest: "f32_rows7_in5_out3".
inline constexpr auto case_name = [](const auto& info) { return testing::PrintToString(info.param); };

}  // namespace plait::ops
