// Verification can fail: things that a parallel implementation gets wrong are broken one at a time, in the program of every
// rank or between the ranks, and each has to be caught and its region named.
#include <gtest/gtest.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <span>

#include "parallel/collectives.h"
#include "parallel/program/program_waits.h"
#include "verify/verify_cases.h"

namespace plait::verify::test {
namespace {

using parallel::Group;
using parallel::Instruction;
using parallel::InstructionKind;
using parallel::RankPlan;
using Instructions = std::vector<Instruction>;

struct Mutation {
  std::string name, layout;
  RankParts parts;
  std::vector<std::string> words;  // all of them are in the first divergence
  std::vector<std::string> set = {};
  bool shows_in_fp64_only = false;  // its errors are smaller than bounds may be before they are called weak
};

// `edit` changes a rank's training program; waits are derived anew, so that the fault is the edit and nothing else.
RankParts edited(const std::function<void(const RankPlan&, Instructions&)>& edit) {
  return edited_plan([edit](RankPlan& plan) {
    edit(plan, plan.train.instructions);
    for (Instruction& i : plan.train.instructions) i.waits.clear();
    parallel::derive_waits(plan.train, plan.flat.buckets());
  });
}

using Which = std::function<bool(const Instruction&)>;

RankParts changed(const Which& which, const std::function<void(Instruction&)>& change) {
  return edited([=](const RankPlan&, Instructions& list) {
    for (Instruction& i : list) {
      if (which(i)) change(i);
    }
  });
}

RankParts removed(const Which& which) {
  return edited([=](const RankPlan&, Instructions& list) { std::erase_if(list, which); });
}

Which of(InstructionKind kind, int micro_batch, int segment = -1) {
  return [=](const Instruction& i) {
    return i.kind == kind && i.micro_batch == micro_batch && (segment < 0 || i.segment == segment);
  };
}

// Sums of gradients.
Which over(Group group) {
  return [=](const Instruction& i) { return parallel::reduces_gradients(i, group); };
}

// The first two instructions of a kind exchange a slot.
RankParts exchanged(InstructionKind kind, int Instruction::* slot) {
  return edited([=](const RankPlan&, Instructions& list) {
    const auto is = [kind](const Instruction& i) { return i.kind == kind; };
    const auto first = std::find_if(list.begin(), list.end(), is);
    if (first == list.end()) return;
    const auto second = std::find_if(first + 1, list.end(), is);
    std::swap((*first).*slot, (*second).*slot);
  });
}

// The collectives of the tensor group in one micro-batch of the four-layer model, in the order in which segments run them.
// Without sequence parallelism, sums: of each segment's product but the head's in forward, of the gradient of each one's norm
// in backward.
constexpr int layers = 4;
constexpr int head = 2 * layers + 1;
constexpr int sums = 2 * head;
constexpr int sum_of_forward(int segment) { return segment; }
constexpr int sum_of_backward(int segment) { return head + (head - segment); }
// With it, gathers: of the norm of each segment but the embedding, and the head's statistics; in backward the gradient of the
// output of each but the head.
constexpr int gathers = 2 * head + 1;
constexpr int gathers_of_forward = head + 1;
constexpr int gather_of_norm(int segment) { return segment - 1; }
constexpr int gather_of_output_gradient(int segment) { return gathers_of_forward + (head - 1 - segment); }

// Calls number `index` of each micro-batch's `period`. Before the first step comes the warm-up: whole micro-batches, then one
// forward.
RankParts dropped_in_every(int period, int index, int of_forward, CallKind kind) {
  return faulty_group(
      "tensor", [=](const Call& call, StreamRef) { return call.kind == kind && (call.index - of_forward) % period == index; });
}

// The scale of what is gathered, behind the sum and the norm that it is of.
RankParts scale_of_gathered_dropped() {
  return faulty_group("tensor", [](const Call& call, StreamRef) {
    thread_local CallKind before = CallKind::all_gather;  // of this rank, which is a thread
    const bool of_gathered = call.kind == CallKind::all_reduce && before == CallKind::reduce_scatter;
    before = call.kind;
    return of_gathered;
  });
}

constexpr std::int64_t scalars = 3;  // of a step: Σ gradient², Σ loss, ignored targets

// Changes fp32 values, in stream order; those of a GPU on the host.
void edit_values(View data, StreamRef stream, const std::function<void(std::span<float>)>& edit) {
  const auto count = static_cast<std::size_t>(data.elements());
  if (!stream.device().is_cuda()) return stream.enqueue_host([data, count, edit] { edit({data.as<float>(), count}); });
  std::vector<float> values(count);
  stream.copy(values.data(), data.data, data.bytes());
  stream.synchronize();
  edit(values);
  stream.copy(data.data, values.data(), data.bytes());
  stream.synchronize();
}

// Averages gradients instead of adding them up.
bool average(const Call& call, StreamRef stream) {
  if (call.kind != CallKind::all_reduce || call.data.elements() == scalars) return false;
  call.group_of_ranks->all_reduce(stream, call.data);
  edit_values(call.data, stream, [size = call.group_of_ranks->size()](std::span<float> values) {
    for (float& value : values) value /= static_cast<float>(size);
  });
  return true;
}

// Of the step's scalars on one of two replicas.
void say_that_all_count(const Call& call, StreamRef stream) {
  edit_values(call.data, stream, [](std::span<float> values) { values[2] = 0; });
}

// What a replica adds to a sum is multiplied by 32 / those of its 32 targets that count, as if it took a mean by itself:
// replica 0 has samples 0 and 2, replica 1 the others.
void take_a_mean(const Call& call, StreamRef stream, std::int64_t first, std::int64_t count) {
  constexpr auto counted = MaskedDataset::counted;
  const auto replica = static_cast<std::size_t>(call.group_of_ranks->rank());
  const float factor = 32 / static_cast<float>(counted[replica] + counted[replica + 2]);
  edit_values(call.data.rows(first, count), stream, [factor](std::span<float> values) {
    for (float& value : values) value *= factor;
  });
}

bool leave_a_count_out(const Call& call, StreamRef stream) {
  if (call.data.elements() == scalars && call.group_of_ranks->rank() == 1) say_that_all_count(call, stream);
  return false;
}

bool mean_of_mean_losses(const Call& call, StreamRef stream) {
  if (call.data.elements() != scalars) return false;
  take_a_mean(call, stream, 1, 1);
  say_that_all_count(call, stream);
  return false;
}

bool mean_of_mean_gradients(const Call& call, StreamRef stream) {
  if (call.data.elements() != scalars) take_a_mean(call, stream, 0, call.data.elements());
  return false;
}

// The bucket that is reduced last moves in front of the last instruction that adds to it.
void reduce_too_early(const RankPlan& plan, Instructions& list) {
  const auto last = std::find_if(list.rbegin(), list.rend(), [](const Instruction& i) {
    return parallel::reduces_gradients(i, parallel::groups::replicas);
  });
  const Instruction reduction = *last;
  list.erase(std::next(last).base());
  const std::vector<int>& segments = plan.flat.buckets()[static_cast<std::size_t>(reduction.bucket)].segments;
  const auto adds = [&](const Instruction& i) {
    return i.kind == InstructionKind::backward_weight &&
           std::find(segments.begin(), segments.end(), i.segment) != segments.end();
  };
  const auto place = std::find_if(list.rbegin(), list.rend(), adds);
  list.insert(std::next(place).base(), reduction);
}

// The gradient norm counts what several ranks hold on all of them.
void count_replicas(RankPlan& plan) {
  std::vector<model::Parameter> parameters = plan.parameters;
  for (model::Parameter& p : parameters) p.replica = false;
  std::vector<int> starts;
  for (const parallel::Chunk& chunk : plan.train.chunks) starts.push_back(chunk.first_segment);
  const auto ranges = plan.flat.elements();
  plan.flat = parallel::FlatLayout(parameters, {.layout = plan.layout,
                                                .rank = plan.rank,
                                                .zero = plan.zero,
                                                .bucket_bytes = static_cast<std::int64_t>(0.02 * 1024 * 1024),
                                                .gradient_type = plan.gradient_type,
                                                .tied_head = -1,
                                                .chunk_starts = starts});
  EXPECT_EQ(plan.flat.elements(), ranges);
}

void quantize_too_early(const RankPlan&, Instructions& list) {
  const auto find = [&](const Which& is) {
    return std::find_if(list.begin(), list.end(), [&](const Instruction& i) { return is(i) && i.bucket == 2; });
  };
  for (const InstructionKind kind : {InstructionKind::quantize_weights, InstructionKind::scale_weights}) {
    const auto from = find([kind](const Instruction& i) { return i.kind == kind; });
    if (from == list.end()) return;
    const Instruction moved = *from;
    list.erase(from);
    list.insert(find(parallel::gathers_weights), moved);
  }
}

std::vector<Mutation> mutations() {
  using Kind = InstructionKind;
  const std::string no_sp = "tensor=2 sequence_parallel=false";
  std::vector<Mutation> list;
  // Tensor parallelism.
  // Calls are counted: the passes of a braid would mix theirs.
  const auto one_by_one = [&](Mutation m) {
    m.set = {"comm.braid=none"};
    list.push_back(std::move(m));
  };
  one_by_one({"no sum after the embedding",
              no_sp,
              dropped_in_every(sums, sum_of_forward(0), head, CallKind::all_reduce),
              {"norm micro-batch 0 segment 1: output of segment 0"}});
  one_by_one({"no sum after a row-parallel product",
              no_sp,
              dropped_in_every(sums, sum_of_forward(1), head, CallKind::all_reduce),
              {"norm micro-batch 0 segment 2: output of segment 1"}});
  one_by_one({"no sum in a column-parallel backward",
              no_sp,
              dropped_in_every(sums, sum_of_backward(6), head, CallKind::all_reduce),
              {"norm_backward micro-batch 0 segment 6: gradient of the segment's input"}});
  one_by_one({"no sum in the head's backward",
              no_sp,
              dropped_in_every(sums, sum_of_backward(head), head, CallKind::all_reduce),
              {"norm_backward micro-batch 0 segment 9: gradient of the segment's input"}});
  one_by_one({"statistics of the vocabulary are not gathered",
              no_sp,
              dropped_in_every(1, 0, 0, CallKind::all_gather),
              {"loss micro-batch 0 segment 9: gradient of logits"}});
  one_by_one({"no gather before a column-parallel product",
              "tensor=2",
              dropped_in_every(gathers, gather_of_norm(4), gathers_of_forward, CallKind::all_gather),
              {"all_gather of norm micro-batch 0 segment 4: norm_out"}});
  one_by_one({"no gather in a row-parallel backward",
              "tensor=2",
              dropped_in_every(gathers, gather_of_output_gradient(3), gathers_of_forward, CallKind::all_gather),
              {"backward_input micro-batch 0 segment 3: gradient of output"}});
  list.push_back({"a recomputed norm is left out",
                  "tensor=2 recompute=selective",
                  removed([](const Instruction& i) {
                    return i.recomputed && i.micro_batch == 1 && i.segment == 3 &&
                           (i.kind == Kind::norm || i.collective.destination.kind == parallel::BufferKind::norm_again);
                  }),
                  {"micro-batch 1 segment 3"}});
  list.push_back({"a norm goes into another slot",
                  "tensor=2",
                  changed(of(Kind::norm, 1, 4), [](Instruction& i) { i.slot = 1 - i.slot; }),
                  {"micro-batch 0 segment 4"}});
  list.push_back({"sequence-parallel norms are not summed",
                  "tensor=2",
                  removed(over(parallel::groups::tensor)),
                  {"reduced gradient of", "norm", "tensor group"}});
  // Each rank has some of the heads, whatever its rows.
  list.push_back({"gains of query and key heads are not summed",
                  no_sp,
                  removed(over(parallel::groups::tensor)),
                  {"reduced gradient of", "attention.query_norm.weight", "tensor group"},
                  {"model.qk_norm=true"}});
  // Data parallelism and ZeRO.
  list.push_back(
      {"gradients are averaged, not summed", "data=2", faulty_group("data", average), {"reduced gradient of", "data group"}});
  list.push_back({"a bucket is not reduced",
                  "data=2",
                  removed([](const Instruction& i) { return parallel::reduces_gradients(i) && i.bucket == 1; }),
                  {"reduced gradient of", "data group"}});
  list.push_back({"a bucket is reduced before its last micro-batch",
                  "data=2",
                  edited(reduce_too_early),
                  {"reduced gradient of embedding", "data group"}});
  list.push_back({"ZeRO-2 keeps the last micro-batch only",
                  "data=2 zero=2",
                  changed(over(parallel::groups::replicas), [](Instruction& i) { i.accumulate = false; }),
                  {"reduced gradient of", "data group"}});
  list.push_back({"ZeRO does not gather a bucket",
                  "data=2 zero=1",
                  removed([](const Instruction& i) { return parallel::gathers_weights(i) && i.bucket == 1; }),
                  {"step 1, weights of", "all_gather"}});
  list.push_back({"the step's sums stay on their ranks",
                  "data=2",
                  removed(parallel::sums_scalars),
                  {"step 1, loss", "every reduced gradient agrees"}});
  list.push_back({"a replica's targets all count",
                  "data=2",
                  masked(faulty_group("data", leave_a_count_out)),
                  {"step 1, loss", "the mean over 43 targets, not over 26"}});
  list.push_back({"the loss is a mean of replicas' means",
                  "data=2",
                  masked(faulty_group("data", mean_of_mean_losses)),
                  {"step 1, loss", "the mean over 64 targets, not over 26"}});
  list.push_back({"gradients are means of replicas' means",
                  "data=2",
                  masked(faulty_group("data", mean_of_mean_gradients)),
                  {"reduced gradient of", "data group"}});
  // Pipelines.
  list.push_back({"tied gradients are not summed",
                  "pipeline=2",
                  removed(over(parallel::groups::tied)),
                  {"reduced gradient of embedding.tokens.weight", "tied group"}});
  list.push_back({"replicas count twice in the norm", "pipeline=2", edited_plan(count_replicas), {"step 1, gradient norm"}});
  list.push_back({"two sent micro-batches change places",
                  "pipeline=2",
                  exchanged(Kind::send_activation, &Instruction::peer_slot),
                  {"norm micro-batch 0 segment 6: norm_out", "comes from pipeline rank 0"}});
  list.push_back({"two loaded micro-batches change places",
                  "pipeline=2 schedule=gpipe",
                  exchanged(Kind::load_batch, &Instruction::batch_slot),
                  {"forward micro-batch 0 segment 0: output"}});
  list.push_back({"the wrong slot is sent",
                  "pipeline=2",
                  changed(of(Kind::send_activation, 1), [](Instruction& i) { i.slot = 1 - i.slot; }),
                  {"norm micro-batch 1 segment 6: norm_out", "comes from pipeline rank 0"}});
  list.push_back({"the gradient before is sent",
                  "pipeline=2",
                  changed(of(Kind::send_gradient, 1), [](Instruction& i) { i.gradient_out = 1 - i.gradient_out; }),
                  {"backward_input micro-batch 1 segment 5: gradient of output", "comes from pipeline rank 1"}});
  list.push_back({"backward reads a stale activation slot",
                  "pipeline=2",
                  changed(
                      [](const Instruction& i) {
                        const bool backward = i.kind == Kind::backward_input || i.kind == Kind::norm_backward;
                        return backward && i.micro_batch == 1 && i.segment == 2;
                      },
                      [](Instruction& i) { i.slot = 1 - i.slot; }),
                  {"backward_input micro-batch 1 segment 2: gradient of up"}});
  list.push_back({"a split backward reads a stale stash",
                  "pipeline=4 schedule=zb-h1",
                  changed(of(Kind::backward_weight, 1, 5), [](Instruction& i) { i.stash = 1 - i.stash; }),
                  {"backward_weight micro-batch 1 segment 5: gradient of blocks.2"}});
  list.push_back({"the embedding overwrites the head's part of a tied table",
                  "pipeline=2 schedule=zb-v",
                  changed(of(Kind::backward_weight, 3, 0), [](Instruction& i) { i.accumulate_tokens = false; }),
                  {"backward_weight micro-batch 3 segment 0: gradient of embedding.tokens.weight"}});
  // FP8 operands. Scales are powers of two, so a wrong one shows in the smallest elements only.
  const auto all_of = [](model::PassTensor scale) {
    return removed([=](const Instruction& i) { return parallel::agrees_on(i, scale); });
  };
  const auto fp8 = [&](Mutation m) {
    m.set = {"precision.matmul=fp8", "precision.compute=fp64"};
    m.shows_in_fp64_only = true;
    list.push_back(std::move(m));
  };
  fp8({"scales of activations are not shared", "tensor=4", all_of(model::PassTensor::activation_scale), {"micro-batch"}});
  fp8({"scales of gathered operands are not shared",
       "tensor=4",
       scale_of_gathered_dropped(),
       {"backward_input micro-batch 0 segment 8", "gradient of up"}});
  fp8({"scales of gradients are not shared", "tensor=4", all_of(model::PassTensor::gradient_scale), {"micro-batch"}});
  fp8({"scales of weights are not shared", "tensor=4", removed(parallel::shares_weight_scales), {"step 2", "micro-batch"}});
  // Of this one the largest of a matrix and of a quarter of it have a power of two times 448 between them.
  list.back().set.insert(list.back().set.end(), {"model.layers=10", "run.seed=1"});
  fp8({"weights stay as they were quantized before the update",
       "data=2",
       removed([](const Instruction& i) { return i.kind == Kind::quantize_weights && i.bucket == 2; }),
       {"step 2, forward micro-batch 0 segment 6"}});
  fp8({"weights are quantized before the other shards have come",
       "data=2 zero=1",
       edited(quantize_too_early),
       {"step 2, forward micro-batch 0 segment 6"}});
  // Any layout.
  list.push_back({"a micro-batch overwrites gradients",
                  "data=2",
                  changed(of(Kind::backward_weight, 1, 2), [](Instruction& i) { i.accumulate = false; }),
                  {"backward_weight micro-batch 1 segment 2: gradient of blocks.0"}});
  Mutation of_halves{"a half of a micro-batch overwrites gradients",
                     "pipeline=2 tensor=2",
                     changed(of(Kind::backward_weight, 1, 2), [](Instruction& i) { i.accumulate = false; }),
                     {"backward_weight micro-batch 1 segment 2: gradient of blocks.0"}};
  of_halves.set = {"comm.braid=halves", "train.micro_batch=2"};
  list.push_back(std::move(of_halves));
  list.push_back({"the weight part of a segment is left out",
                  "pipeline=2 schedule=zb-h1",
                  removed(of(Kind::backward_weight, 1, 2)),
                  {"backward_weight micro-batch 2 segment 2: gradient of blocks.0"}});
  list.push_back({"the loss is scaled by another batch size",
                  "data=2",
                  edited_plan([](RankPlan& plan) { plan.global_batch *= 2; }),
                  {"loss micro-batch 0 segment 9: gradient of logits"}});
  list.push_back(
      {"only the last micro-batch's loss counts",
       "pipeline=2",
       changed([](const Instruction& i) { return i.kind == Kind::loss; }, [](Instruction& i) { i.accumulate = false; }),
       {"step 1, loss", "every reduced gradient agrees"}});
  return list;
}

LayoutResult only_result(const VerifyReport& report) {
  EXPECT_EQ(report.layouts.size(), 1u);
  return report.layouts.at(0);
}

// Whether bounds that are just not weak would have caught it, whatever the bounds were.
bool shows_above_limits(const VerifyReport& report) {
  const ModelReport& model = report.models.front();
  const VerifyFindings& found = report.layouts.front().findings;
  const auto in_movements = [&](ErrorKind kind) {  // of a parameter's update
    const StepFigures& last = model.steps.back();
    return found.of(kind).of_bound * (2 * model.bounds.gradient(last.drift) + last.rounding);
  };
  fmt::print("          loss {:.1e} norm {:.1e} gradient {:.1e} parameter {:.1e} weight {:.1e}\n",
             found.of(ErrorKind::loss).largest, found.of(ErrorKind::norm).largest, found.of(ErrorKind::gradient).largest,
             in_movements(ErrorKind::parameter), in_movements(ErrorKind::weight));
  const auto shows = [](ErrorKind kind, double error) { return error > weak_from(kind); };
  return shows(ErrorKind::loss, found.of(ErrorKind::loss).largest) ||
         shows(ErrorKind::norm, found.of(ErrorKind::norm).largest) ||
         shows(ErrorKind::gradient, found.of(ErrorKind::gradient).largest) ||
         shows(ErrorKind::parameter, in_movements(ErrorKind::parameter)) ||
         shows(ErrorKind::weight, in_movements(ErrorKind::weight));
}

bool expect_caught(const Mutation& m, const std::vector<std::string>& set) {
  const VerifyReport report = verify(verify_request({m.layout}, m.parts, set));
  const LayoutResult result = only_result(report);
  const std::string found = result.findings.first_divergence ? result.findings.first_divergence->text() : result.failure;
  const bool named = !result.passed() && std::all_of(m.words.begin(), m.words.end(), [&](const std::string& words) {
    return found.find(words) != std::string::npos;
  });
  EXPECT_TRUE(named) << m.name << " (" << m.layout << "): " << (found.empty() ? "not caught" : found);
  fmt::print("  {:<6}  {} ({})\n          {}\n", named ? "caught" : "MISSED", m.name, m.layout, found);
  EXPECT_TRUE(report.models.front().weak.empty()) << m.name;
  EXPECT_TRUE(shows_above_limits(report) || m.shows_in_fp64_only)
      << m.name << ": a bound that is not called weak would miss it";
  return named;
}

TEST(VerifyMutations, AreCaughtAndTheirRegionNamed) {
  const std::vector<Mutation> list = mutations();
  int caught = 0;
  for (const Mutation& m : list) caught += expect_caught(m, m.set) ? 1 : 0;
  fmt::print("caught {} of {}\n", caught, list.size());
  EXPECT_GE(list.size(), 14u);
}

// The same faults in kernels, links and schedules of a GPU, which the ranks share if there is only one.
TEST(GpuVerifyMutations, AreCaughtAndTheirRegionNamed) {
  std::string why;
  if (cuda_device_count(&why) == 0) GTEST_SKIP() << why;
  int caught = 0;
  for (const Mutation& m : mutations()) {
    // Faults in what GPUs have in bf16 only show in no other precision.
    if (std::ranges::any_of(m.set, [](const std::string& key) { return key.starts_with("precision."); })) continue;
    std::vector<std::string> set = {"launch.device=cuda", "precision.compute=fp32", "launch.ranks_per_device=auto"};
    set.insert(set.end(), m.set.begin(), m.set.end());
    caught += expect_caught(m, set) ? 1 : 0;
  }
  EXPECT_GE(caught, 27);
}

// Every third of them, with bounds that hold for moments in bf16.
TEST(VerifyMutations, AreCaughtBesideMomentsInBf16) {
  const std::vector<Mutation> list = mutations();
  int tried = 0;
  for (std::size_t i = 0; i < list.size(); i += 3) {
    if (list[i].shows_in_fp64_only) continue;
    std::vector<std::string> set = list[i].set;
    set.push_back("precision.moments=bf16");
    expect_caught(list[i], set);
    ++tried;
  }
  EXPECT_GE(tried, 10);
}

// The same layouts pass when nothing is broken.
TEST(VerifyMutations, NothingIsCaughtWhereNothingIsBroken) {
  std::vector<std::string> layouts;
  for (const Mutation& m : mutations()) layouts.push_back(m.layout);
  const VerifyReport report = verify(verify_request(layouts));
  EXPECT_EQ(report.failed(), 0);
  EXPECT_GE(report.layouts.size(), 9u);
}

}  // namespace
}  // namespace plait::verify::test
