// Kernels may take their places before the ones they wait for are complete (src/ops/cuda/launch.h). Whatever stands between two
// of them, each kernel reads what those before it wrote.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/stream.h"
#include "core/view.h"
#include "ops/elementwise.h"
#include "ops/op_context.h"
#include "ops/reduce.h"
#include "runtime/cuda_graph.h"

namespace plait::runtime {
namespace {

// Two streams that add up small integers, which floats hold exactly, so that any element that is read too early, or
// overwritten, shows.
class Chain {
 public:
  Chain(Device device, std::int64_t elements)
      : device_(current(device)), elements_(elements), memory_(device), one_(device), two_(device), passing_(device) {
    const auto tensor = [&](std::int64_t count) {
      buffers_.push_back(memory_.allocate(static_cast<std::size_t>(count) * sizeof(float)));
      return View(buffers_.back().data(), DType::f32, {count});
    };
    ones_ = tensor(elements), total_ = tensor(elements), aside_ = tensor(elements), copy_ = tensor(elements);
    sums_ = tensor(rounds), sums_aside_ = tensor(rounds), sums_of_copies_ = tensor(rounds);
    const std::vector<float> ones(static_cast<std::size_t>(elements), 1.0f);
    one_.ref().copy(ones_.data, ones.data(), ones_.bytes());
    one_.ref().synchronize();
    for (std::optional<Context>& context : contexts_) context.emplace(device, memory_);
  }

  StreamRef one() const { return one_; }
  StreamRef two() const { return two_; }

  // Everything begins and ends on stream one.
  void enqueue() {
    for (const View& v : {total_, aside_, copy_, sums_, sums_aside_, sums_of_copies_}) one().zero(v.data, v.bytes());
    order(one(), two());
    for (std::int64_t round = 0; round < rounds; ++round) {
      ops::add(one(), ones_, total_);  // a kernel behind others, and behind an event of the other stream
      ops::sum(one(), *contexts_[0]->ops, total_, element(sums_, round), 1.0f, false);  // two kernels
      order(one(), two());
      ops::add(two(), total_, aside_);
      order(two(), one());  // before the next round adds to what this reads
      ops::sum(two(), *contexts_[1]->ops, aside_, element(sums_aside_, round), 1.0f, false);
      one().copy(copy_.data, total_.data, copy_.bytes());  // between kernels
      ops::add(one(), ones_, copy_);
      if (round % 2 == 1) one().zero(copy_.data, copy_.bytes());
      ops::sum(one(), *contexts_[0]->ops, copy_, element(sums_of_copies_, round), 1.0f, false);
    }
    order(two(), one());
  }

  void expect_right_sums(const std::string& label) {
    const auto read = [&](const View& from) {
      std::vector<float> values(static_cast<std::size_t>(rounds));
      one().copy(values.data(), from.data, from.bytes());
      one().synchronize();
      return values;
    };
    std::vector<float> sums, sums_aside, sums_of_copies;
    for (std::int64_t round = 0; round < rounds; ++round) {
      const std::int64_t total = round + 1;
      sums.push_back(static_cast<float>(elements_ * total));
      sums_aside.push_back(static_cast<float>(elements_ * (total * (total + 1) / 2)));
      sums_of_copies.push_back(round % 2 == 1 ? 0.0f : static_cast<float>(elements_ * (total + 1)));
    }
    ASSERT_EQ(read(sums_), sums) << label;
    ASSERT_EQ(read(sums_aside_), sums_aside) << label;
    ASSERT_EQ(read(sums_of_copies_), sums_of_copies) << label;
  }

 private:
  static constexpr std::int64_t rounds = 5;  // sums of 2^20 elements stay below 2^24

  struct Context {
    Context(Device device, DeviceMemory& memory) : workspace(memory.allocate(ops::workspace_bytes(device.kind, {}))) {
      ops = ops::make_op_context(device, View(workspace.data(), DType::u8, {static_cast<std::int64_t>(workspace.bytes())}));
    }
    Buffer workspace;
    std::unique_ptr<ops::OpContext> ops;
  };

  static Device current(Device device) {
    make_current(device);
    return device;
  }
  static View element(const View& v, std::int64_t i) { return View(static_cast<float*>(v.data) + i, DType::f32, {1}); }
  void order(StreamRef first, StreamRef then) {
    first.record(passing_);
    then.wait(passing_);
  }

  Device device_;
  std::int64_t elements_;
  DeviceMemory memory_;
  std::vector<Buffer> buffers_;
  std::optional<Context> contexts_[2];  // one for each stream
  View ones_, total_, aside_, copy_, sums_, sums_aside_, sums_of_copies_;
  Stream one_, two_;
  Event passing_;  // each record is waited for before the next
};

TEST(KernelOrder, OnTheHost) {
  Chain chain({DeviceKind::host, 0}, 1000);
  chain.enqueue();
  chain.expect_right_sums("");
}

class GpuKernelOrder : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    std::string why;
    if (cuda_device_count(&why) == 0) GTEST_SKIP() << why;
  }
};

TEST_P(GpuKernelOrder, KernelByKernel) {
  Chain chain({DeviceKind::cuda, 0}, GetParam());
  for (int repetition = 0; repetition < 100; ++repetition) {
    chain.enqueue();
    chain.expect_right_sums("repetition " + std::to_string(repetition));
  }
}

TEST_P(GpuKernelOrder, InAGraph) {
  Chain chain({DeviceKind::cuda, 0}, GetParam());
  chain.enqueue();  // loads the kernels, which a capture must not
  chain.expect_right_sums("without a graph");
  const CudaGraph graph(chain.one(), {chain.two()}, [&] { chain.enqueue(); });
  for (int repetition = 0; repetition < 100; ++repetition) {
    graph.launch(chain.one());
    chain.expect_right_sums("repetition " + std::to_string(repetition));
  }
}

// Sizes of a few blocks, which leave room for the next kernel; of one wave; of several.
INSTANTIATE_TEST_SUITE_P(Sizes, GpuKernelOrder, testing::Values(4096, 270336, 1048576), testing::PrintToStringParamName());

}  // namespace
}  // namespace plait::runtime
