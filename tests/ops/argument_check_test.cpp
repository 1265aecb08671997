// The dispatcher refuses wrong arguments with a message that names the op, the argument, what was expected and what came.
#include "ops/adamw.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/libraries.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/op_test.h"
#include "ops/reduce.h"
#include "ops/rope.h"

namespace plait::ops {
namespace {

using testing::HasSubstr;

class ArgumentCheckTest : public testing::Test {
 protected:
  View f32(Shape shape) { return device_.put(random_tensor(shape, "any"), DType::f32); }
  View f64(Shape shape) { return device_.put(random_tensor(shape, "any"), DType::f64); }
  View bf16(Shape shape) { return device_.put(random_tensor(shape, "any"), DType::bf16); }
  View i32(std::int64_t count) { return device_.put(std::vector<std::int32_t>(static_cast<std::size_t>(count), 1)); }
  StreamRef stream() { return device_.stream(); }
  OpContext& context() { return device_.context(); }

  static void expect_refused(const std::string& message, const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "accepted; expected: " << message;
    } catch (const InternalError& error) {
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  }

  OpDevice device_{DeviceKind::host};
};

TEST_F(ArgumentCheckTest, LinearForward) {
  LinearForward good;
  good.x = f32({4, 3});
  good.w = f32({5, 3});
  good.bias = f32({5});
  good.y = f32({4, 5});
  const auto with = [&](auto change) {
    return [&, change] {
      LinearForward args = good;
      change(args);
      linear_forward(stream(), context(), args);
    };
  };
  EXPECT_NO_THROW(with([](LinearForward&) {})());
  expect_refused("linear_forward: argument 'x' must be f32, f64 or bf16 with 2 dims, got nothing",
                 with([](auto& a) { a.x = {}; }));
  expect_refused("linear_forward: argument 'w' must be f32 [5, 3], got bf16 [5, 3]",
                 with([&](auto& a) { a.w = bf16({5, 3}); }));
  expect_refused("linear_forward: argument 'w' must be f32 [3, 3], got f32 [3, 4]", with([&](auto& a) { a.w = f32({3, 4}); }));
  expect_refused("linear_forward: argument 'bias' must be f32 [5], got f32 [4]", with([&](auto& a) { a.bias = f32({4}); }));
  expect_refused("linear_forward: argument 'y' must be f32 [4, 5], got f32 [5, 4]", with([&](auto& a) { a.y = f32({5, 4}); }));
  expect_refused("argument 'pre_activation' must be f32 [4, 5], got nothing",
                 with([](auto& a) { a.epilogue = Epilogue::gelu; }));
  expect_refused("argument 'pre_activation' must be empty without Epilogue::gelu",
                 with([&](auto& a) { a.pre_activation = f32({4, 5}); }));
  expect_refused("argument 'residual' must be empty with Epilogue::gelu", with([&](auto& a) {
                   a.epilogue = Epilogue::gelu;
                   a.pre_activation = f32({4, 5});
                   a.residual = f32({4, 5});
                 }));
  expect_refused("argument 'stream' must be a stream", [&] { linear_forward(StreamRef(), context(), good); });
}

TEST_F(ArgumentCheckTest, LinearBackward) {
  LinearBackwardInput input;
  input.dy = f32({4, 5});
  input.w = f32({5, 3});
  input.dx = f32({4, 3});
  input.pre_activation = f32({4, 3});
  input.accumulate = true;
  expect_refused("linear_backward_input: argument 'pre_activation' must be empty with accumulate",
                 [&] { linear_backward_input(stream(), context(), input); });
  LinearBackwardWeight weight;
  weight.dy = bf16({4, 5});
  weight.x = bf16({4, 3});
  weight.dw = f64({5, 3});
  expect_refused("linear_backward_weight: argument 'dw' must be f32 or bf16 [5, 3], got f64 [5, 3]",
                 [&] { linear_backward_weight(stream(), context(), weight); });
  weight.dw = f32({5, 3});
  weight.dbias = bf16({5});
  expect_refused("linear_backward_weight: argument 'dbias' must be f32 [5], got bf16 [5]",
                 [&] { linear_backward_weight(stream(), context(), weight); });
}

TEST_F(ArgumentCheckTest, Norm) {
  NormForward forward;
  expect_refused("norm_forward: argument 'x' must be 1 to 73 tensors, got 0",
                 [&] { norm_forward(stream(), context(), forward); });
  forward.x = {f32({4, 6})};
  forward.gamma = f32({6});
  forward.y = f32({4, 6});
  forward.rstd = f32({4});
  expect_refused("norm_forward: argument 'mean' must be f32 [4], got nothing",
                 [&] { norm_forward(stream(), context(), forward); });
  forward.mean = f32({4});
  forward.x.push_back(f32({4, 6}));
  expect_refused("norm_forward: argument 'residual' must be given", [&] { norm_forward(stream(), context(), forward); });
  forward.x.back() = f32({4, 5});
  expect_refused("norm_forward: argument 'x' must be f32 [4, 6], got f32 [4, 5]",
                 [&] { norm_forward(stream(), context(), forward); });
  forward.x.pop_back();
  forward.kind = NormKind::rms_norm;
  expect_refused("norm_forward: argument 'mean' must be empty for RMSNorm",
                 [&] { norm_forward(stream(), context(), forward); });
  NormBackward backward;
  backward.kind = NormKind::rms_norm;
  backward.x = f32({4, 6});
  backward.gamma = f32({6});
  backward.rstd = f32({4});
  backward.dx = f32({4, 6});
  backward.dgamma = f32({6});
  const auto run = [&] { norm_backward(stream(), context(), backward); };
  expect_refused("norm_backward: argument 'dy' must be 1 to 73 tensors", run);
  backward.dy = {f32({4, 6}), f32({4, 5})};
  expect_refused("norm_backward: argument 'dy' must be f32 [4, 6], got f32 [4, 5]", run);
  backward.dy.back() = backward.dx;
  expect_refused("norm_backward: argument 'dx' must be other memory than 'dy'", run);
}

TEST_F(ArgumentCheckTest, QkNorm) {
  QkNormForward forward;
  forward.shape = {1, 4, 3, 1, 8};
  forward.x = forward.y = f32({4, 40});
  forward.query_gain = forward.key_gain = f32({8});
  expect_refused("qk_norm_forward: argument 'y' must be other memory than 'x'", [&] { qk_norm_forward(stream(), forward); });
  forward.key_gain = f32({24});
  expect_refused("qk_norm_forward: argument 'key_gain' must be f32 [8], got f32 [24]",
                 [&] { qk_norm_forward(stream(), forward); });
  QkNormBackward backward;
  backward.shape = forward.shape;
  backward.x = bf16({4, 40});
  backward.query_gain = backward.key_gain = bf16({8});
  backward.dqkv = bf16({4, 40});
  backward.dquery_gain = f32({8});
  backward.dkey_gain = bf16({8});
  expect_refused("qk_norm_backward: argument 'dkey_gain' must be f32 [8], got bf16 [8]",
                 [&] { qk_norm_backward(stream(), context(), backward); });
}

TEST_F(ArgumentCheckTest, AttentionAndRope) {
  AttentionForward args;
  args.shape = {1, 4, 3, 2, 8};
  args.qkv = f32({4, 56});
  expect_refused("attention_forward: argument 'shape' must be of heads divisible by kv_heads, got batch 1, sequence 4, heads 3",
                 [&] { attention_forward(stream(), context(), args); });
  args.shape.kv_heads = 0;
  expect_refused("argument 'shape' must be positive in every member", [&] { attention_forward(stream(), context(), args); });
  args.shape.kv_heads = 1;
  expect_refused("attention_forward: argument 'qkv' must be f32 [4, 40], got f32 [4, 56]",
                 [&] { attention_forward(stream(), context(), args); });
  args.qkv = f32({4, 40});
  args.out = f32({4, 24});
  args.lse = f64({1, 3, 4});
  expect_refused("attention_forward: argument 'lse' must be f32 [1, 3, 4], got f64 [1, 3, 4]",
                 [&] { attention_forward(stream(), context(), args); });
  Rope rotation;
  rotation.shape = args.shape;
  rotation.qkv = args.qkv;
  rotation.table = f32({3, 8});
  expect_refused("rope: argument 'table' must be of at least `sequence` rows", [&] { rope(stream(), rotation); });
  AttentionBackward backward;
  backward.shape = args.shape;
  backward.qkv = args.qkv;
  backward.out = backward.dout = args.out;
  backward.lse = f32({1, 3, 4});
  backward.dqkv = args.qkv;
  expect_refused("attention_backward: argument 'dqkv' must be other memory than 'qkv'",
                 [&] { attention_backward(stream(), context(), backward); });
}

TEST_F(ArgumentCheckTest, CrossEntropyAndEmbedding) {
  CrossEntropy loss;
  loss.logits = f32({3, 8});
  loss.targets = f32({3});
  loss.losses = f32({3});
  loss.vocab = 8;
  expect_refused("cross_entropy: argument 'targets' must be i32 [3], got f32 [3]", [&] { cross_entropy(stream(), loss); });
  loss.targets = i32(3);
  loss.vocab = 9;
  expect_refused("cross_entropy: argument 'vocab' must be in [1, columns of logits], got 9",
                 [&] { cross_entropy(stream(), loss); });

  CrossEntropyStatistics part;
  part.logits = f32({3, 8});
  part.targets = i32(2);
  expect_refused("cross_entropy_statistics: argument 'targets' must be i32 [3], got i32 [2]",
                 [&] { cross_entropy_statistics(stream(), part); });
  part.targets = i32(3);
  part.statistics = f32({3, 2});
  expect_refused("cross_entropy_statistics: argument 'statistics' must be f32 [3, 3], got f32 [3, 2]",
                 [&] { cross_entropy_statistics(stream(), part); });
  part.first_token = -8;
  expect_refused("cross_entropy_statistics: argument 'first_token' must be not negative, got -8",
                 [&] { cross_entropy_statistics(stream(), part); });
  CrossEntropyFinish finish;
  finish.logits = part.logits;
  finish.targets = part.targets;
  finish.statistics = f64({2, 3, 3});
  finish.losses = f32({3});
  expect_refused("cross_entropy_finish: argument 'statistics' must be f32 [2, 3, 3], got f64 [2, 3, 3]",
                 [&] { cross_entropy_finish(stream(), finish); });
  finish.statistics = {};
  expect_refused("cross_entropy_finish: argument 'statistics' must be f32 [0, 3, 3], got nothing",
                 [&] { cross_entropy_finish(stream(), finish); });
  finish.statistics = f32({2, 3, 3});
  finish.losses = f32({2});
  expect_refused("cross_entropy_finish: argument 'losses' must be f32 [3], got f32 [2]",
                 [&] { cross_entropy_finish(stream(), finish); });

  EmbeddingForward forward;
  forward.tokens = i32(6);
  forward.tokens_table = f32({5, 4});
  forward.positions_table = f32({2, 4});
  forward.y = f32({6, 4});
  forward.sequence = 3;
  expect_refused("embedding_forward: argument 'positions_table' must be of at least `sequence` rows, got f32 [2, 4]",
                 [&] { embedding_forward(stream(), forward); });
  forward.sequence = 4;
  expect_refused("embedding_forward: argument 'sequence' must be positive and a divisor",
                 [&] { embedding_forward(stream(), forward); });
  forward.first_token = -1;
  forward.sequence = 3;
  expect_refused("embedding_forward: argument 'first_token' must be not negative, got -1",
                 [&] { embedding_forward(stream(), forward); });
  EmbeddingBackward backward;
  backward.tokens = forward.tokens;
  backward.dy = f32({6, 4});
  backward.dtokens_table = f32({5, 3});
  backward.sequence = 3;
  expect_refused("embedding_backward: argument 'dtokens_table' must be f32 [5, 4], got f32 [5, 3]",
                 [&] { embedding_backward(stream(), context(), backward); });
}

TEST_F(ArgumentCheckTest, OptimizerAndReductions) {
  AdamW args;
  args.weights = args.gradients = f32({8});
  args.master = args.m = f32({8});
  args.v = f32({7});
  expect_refused("adamw: argument 'v' must be f32 [8], got f32 [7]", [&] { adamw(stream(), args); });
  args.v = f32({8});
  args.gradients = f64({4});
  expect_refused("adamw: argument 'gradients' must be f32 [4], got f64 [4]", [&] { adamw(stream(), args); });
  args.gradients = f32({4});  // a shard
  args.table = f32({6});
  expect_refused("adamw: argument 'table' must be the u8 table that adamw_table returned, got f32 [6]",
                 [&] { adamw(stream(), args); });
  args.table = device_.put(adamw_table({{0, 0, 0, 8, true}}));
  expect_refused("adamw: argument 'optimizer_state' must be", [&] { adamw(stream(), args); });
  args.optimizer_state = f32({4});
  expect_refused("adamw: argument 'optimizer_state' must be", [&] { adamw(stream(), args); });
  args.optimizer_state = f32({optimizer_state_floats});
  args.weights = bf16({8});
  args.gradients = bf16({8});
  args.master = args.m = args.v = bf16({8});
  expect_refused("adamw: argument 'master' must be f32 [8], got bf16 [8]", [&] { adamw(stream(), args); });
  args.master = f32({8});
  args.v = f32({8});
  expect_refused("adamw: argument 'v' must be bf16 [8], got f32 [8]", [&] { adamw(stream(), args); });
  args.weights = args.gradients = args.master = f64({8});
  args.v = bf16({8});
  expect_refused("adamw: argument 'm' must be f64 [8], got bf16 [8]", [&] { adamw(stream(), args); });
  NormToClip sums{.sum_of_squares = f32({1}),
                  .loss = f64({1}),
                  .ignored = f32({1}),
                  .targets = 8,
                  .optimizer_state = f32({optimizer_state_floats})};
  expect_refused("norm_to_clip: argument 'loss' must be", [&] { norm_to_clip(stream(), sums); });
  sums.loss = f32({1}), sums.ignored = f64({1});
  expect_refused("norm_to_clip: argument 'ignored' must be", [&] { norm_to_clip(stream(), sums); });
  sums.ignored = f32({1}), sums.targets = 0;
  expect_refused("norm_to_clip: argument 'targets' must be at least 1, got 0", [&] { norm_to_clip(stream(), sums); });
  sums.targets = 8;
  expect_refused("norm_to_clip: argument 'update' must be given", [&] { norm_to_clip(stream(), sums); });
  expect_refused("sum: argument 'values' must be f32 or f64, got bf16 [3]",
                 [&] { sum(stream(), context(), bf16({3}), f32({1}), 1.0f, false); });
  expect_refused("sum_of_squares: argument 'out' must be one f32, got bf16 [1]",
                 [&] { sum_of_squares(stream(), context(), std::array{bf16({3})}, bf16({1})); });
  expect_refused("sum_of_squares: argument 'parts' must be all of one type, got f32 [3]",
                 [&] { sum_of_squares(stream(), context(), std::array{bf16({3}), f32({3})}, f32({1})); });
  expect_refused("count_ignored: argument 'targets' must be i32 [3], got f32 [3]",
                 [&] { count_ignored(stream(), f32({3}), f32({1}), false); });
  expect_refused("count_ignored: argument 'out' must be", [&] { count_ignored(stream(), i32({3}), bf16({1}), false); });
}

TEST_F(ArgumentCheckTest, ElementwiseAndActivations) {
  expect_refused("convert: argument 'to' must be of 6 elements, got f64 [5]",
                 [&] { convert(stream(), f32({2, 3}), f64({5})); });
  expect_refused("add: argument 'y' must be of 3 elements, got f32 [2]", [&] { add(stream(), f32({3}), f32({2})); });
  expect_refused("add_bias_residual: argument 'bias' must be f32 [3], got f32 [2]",
                 [&] { add_bias_residual(stream(), {.x = f32({2, 3}), .bias = f32({2}), .residual = {}, .y = f32({2, 3})}); });
  expect_refused("add_bias_residual: argument 'residual' must be f32 [2, 3], got bf16 [2, 3]", [&] {
    add_bias_residual(stream(), {.x = f32({2, 3}), .bias = {}, .residual = bf16({2, 3}), .y = f32({2, 3})});
  });
  expect_refused("add_bias_residual: argument 'y' must be f32 [2, 3], got f32 [3, 2]",
                 [&] { add_bias_residual(stream(), {.x = f32({2, 3}), .bias = {}, .residual = {}, .y = f32({3, 2})}); });
  expect_refused("gelu_forward: argument 'x' must be f32, f64 or bf16",
                 [&] { gelu_forward(stream(), context(), i32(3), f32({3})); });
  expect_refused("gelu_backward: argument 'dx' must be f32 [3], got f32 [4]",
                 [&] { gelu_backward(stream(), context(), f32({3}), f32({3}), f32({4})); });
  expect_refused("swiglu_forward: argument 'gate_up' must be of an even number of columns",
                 [&] { swiglu_forward(stream(), context(), f32({2, 7}), f32({2, 3})); });
  expect_refused("swiglu_backward: argument 'dy' must be f32 [2, 4], got f32 [2, 3]",
                 [&] { swiglu_backward(stream(), context(), f32({2, 8}), f32({2, 3}), f32({2, 8})); });
}

TEST_F(ArgumentCheckTest, ContextAndThreads) {
  expect_refused("make_op_context: argument 'workspace' must have at least",
                 [&] { make_op_context(Device{DeviceKind::host, 0}, View(), {}); });
  expect_refused("set_blas_threads: argument 'threads' must be at least 1, got 0", [] { set_blas_threads(0); });
  EXPECT_EQ(context().adopt_choices({"a line", "another"}), 2);
  EXPECT_EQ(context().untuned_shapes(), 0);
  EXPECT_FALSE(context().device().is_cuda());
}

TEST(AdamWTableTest, CutsSegmentsWithoutLosingElements) {
  EXPECT_TRUE(adamw_table({}).empty());
  EXPECT_TRUE(adamw_table({{0, 0, 0, 0, true}}).empty());
  EXPECT_EQ(adamw_table({{0, 0, 0, 1, true}}).size() * 3,
            adamw_table({{0, 0, 0, 4096, true}, {4096, 0, 0, 4097, true}}).size());
  EXPECT_THROW(adamw_table({{-1, 0, 0, 4, true}}), InternalError);
  EXPECT_THROW(adamw_table({{0, -1, 0, 4, true}}), InternalError);
  EXPECT_THROW(adamw_table({{0, 0, -1, 4, true}}), InternalError);
  EXPECT_THROW(adamw_table({{0, 0, 0, 4, true, {.column = 3, .columns = 3}}}), InternalError);
}

}  // namespace
}  // namespace plait::ops
