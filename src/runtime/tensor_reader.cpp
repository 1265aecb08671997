#include "runtime/tensor_reader.h"

#include <algorithm>
#include <cmath>

namespace plait::runtime {

void TensorReader::synchronize_scan(View view, const std::function<void(std::span<const double>)>& look) {
  const std::size_t chunk = bytes_ / size_of(view.dtype);
  std::vector<double> values;
  for (std::size_t done = 0; done < static_cast<std::size_t>(view.elements()); done += chunk) {
    const std::size_t count = std::min(chunk, static_cast<std::size_t>(view.elements()) - done);
    stream_.copy(staging_, static_cast<char*>(view.data) + done * size_of(view.dtype), count * size_of(view.dtype));
    stream_.synchronize();
    values.resize(count);
    const auto widen = [](auto value) {
      if constexpr (std::is_arithmetic_v<decltype(value)>)
        return static_cast<double>(value);
      else
        return static_cast<double>(static_cast<float>(value));
    };
    const auto convert = [&](const auto* from) {
      for (std::size_t i = 0; i < count; ++i) values[i] = widen(from[i]);
    };
    switch (view.dtype) {
      case DType::f32: convert(static_cast<const float*>(staging_)); break;
      case DType::f64: convert(static_cast<const double*>(staging_)); break;
      case DType::i32: convert(static_cast<const std::int32_t*>(staging_)); break;
      case DType::u8: convert(static_cast<const std::uint8_t*>(staging_)); break;
      case DType::bf16: convert(static_cast<const BFloat16*>(staging_)); break;
      case DType::f16: convert(static_cast<const Float16*>(staging_)); break;
      case DType::e4m3: convert(static_cast<const Float8*>(staging_)); break;
    }
    look(values);
  }
}

std::vector<double> TensorReader::synchronize_read(View view) {
  std::vector<double> all;
  all.reserve(static_cast<std::size_t>(view.elements()));
  synchronize_scan(view, [&](std::span<const double> part) { all.insert(all.end(), part.begin(), part.end()); });
  return all;
}

bool TensorReader::synchronize_is_finite(View view) {
  bool finite = true;
  synchronize_scan(view, [&](std::span<const double> part) {
    finite = finite && std::all_of(part.begin(), part.end(), [](double v) { return std::isfinite(v); });
  });
  return finite;
}

}  // namespace plait::runtime
