#include "bench/plain_copy.h"

#include "core/statistics.h"
#include "core/stream.h"

namespace plait::bench {

PlainCopy synchronize_plain_copy(Device from, Device to, std::size_t bytes) {
  constexpr int repeats = 5;
  DeviceMemory there(to);
  const Buffer target = there.allocate(bytes);
  DeviceMemory here(from);  // last: allocating makes its device current
  const Buffer source = here.allocate(bytes);
  const Stream stream(from, StreamPriority::high);
  const StreamRef s = stream.ref();
  s.zero(source.data(), bytes);
  s.copy(target.data(), source.data(), bytes);
  Event start(from, EventTiming::on), stop(from, EventTiming::on);
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    s.record(start);
    s.copy(target.data(), source.data(), bytes);
    s.record(stop);
    stop.synchronize();
    times.push_back(1e3 * static_cast<double>(elapsed_ms(start, stop)));
  }
  const double microseconds = median(times);
  return {bytes, microseconds, gb_per_s(static_cast<double>(bytes), microseconds)};
}

}  // namespace plait::bench
