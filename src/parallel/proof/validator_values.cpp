// Symbolic execution of one rank's program: which micro-batch's value is in every buffer.
#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "core/error.h"
#include "parallel/proof/validator_checks.h"

namespace plait::parallel {
namespace {

// A step that has still to be done to a value before it may be read.
struct Pending {
  enum class Step {
    sum,     // the ranks of `axes` have parts of a sum
    max,     // they have parts of a tensor, each with the largest element of its own
    round,   // this rank's rows are to be rounded, with the scale that was agreed on
    gather,  // they have rows, or columns, of the value
    loss     // these are logits, but others read their gradient
  };
  Step step = Step::sum;
  AxisSet axes;
  friend bool operator==(const Pending&, const Pending&) = default;
};

struct Value {
  int micro_batch = -1, step = -1;
  int segment = -1;  // for a lane; any other buffer holds one segment's values only
  std::vector<Pending> pending = {};
  friend bool operator==(const Value&, const Value&) = default;
};

constexpr AxisSet sharing = {segment_axis};  // the ranks that share segments

Pending::Step step_of(Operation operation) {
  switch (operation) {
    case Operation::sum:
    case Operation::reduce_scatter: return Pending::Step::sum;
    case Operation::max: return Pending::Step::max;
    case Operation::all_gather: return Pending::Step::gather;
    case Operation::barrier: break;
  }
  throw InternalError("step_of: a barrier does nothing to a value");
}

std::string to_string(const Pending& pending) {
  switch (pending.step) {
    case Pending::Step::sum: return "a part of a sum over the " + to_string(pending.axes) + " group";
    case Pending::Step::max: return "without the scale of the " + to_string(pending.axes) + " group";
    case Pending::Step::round: return "not rounded yet";
    case Pending::Step::gather: return "without what other ranks of the " + to_string(pending.axes) + " group have of it";
    case Pending::Step::loss: return "before the loss";
  }
  throw InternalError("to_string: unknown pending step");
}

// A sum in one place since it was last reduced or, for the losses, since the step began.
struct Sum {
  int contributions = 0;
  int micro_batch = -1;  // that of the last contribution
};

// Gradients of one segment in a bucket. The two parts of backward write different parameters.
struct GradientParts {
  Sum input_part, weight_part;
};

struct BucketState {
  std::map<int, GradientParts> segments;
  Sum table;           // the table of the embedding and a tied head together, in the bucket that has them
  int reductions = 0;  // reductions over replicas in this step
  AxisSet summed;      // further axes over which gradients were summed
  // The bucket's weights as FP8 operands: the number of updates in the weights when their scales were last found, and when they
  // were last quantized. `scales_shared`: ranks that share the weights have told each other the scales.
  int scaled = 0, quantized = 0;
  bool scales_shared = true;
};

// The weights in a buffer.
struct Weights {
  int updates = 0;
  bool whole = true;  // false after an update of this rank's shard
};

class SymbolicRank {
 public:
  SymbolicRank(const ProgramSet& set, int rank, ProblemList& problems)
      : set_(set), rank_(rank), program_(set.program(rank)), buckets_(set.of(rank).buckets), problems_(problems) {
    bool first = false, last = false;
    for (const Chunk& c : program_.chunks) {
      first = first || reads_tokens(set.kind(c.first_segment));
      last = last || reads_targets(set.kind(c.last_segment()));
    }
    counts_losses_ = last;
    tied_here_ = set.tied && first && last;
    for (const Bucket& bucket : buckets_) {
      BucketState state;
      for (const int segment : bucket.segments) state.segments[segment];
      states_.push_back(std::move(state));
    }
  }

  void run() {
    for (step_ = 0; step_ < validated_steps; ++step_) {
      begin_step();
      for (now_ = 0; now_ < static_cast<int>(program_.instructions.size()); ++now_) execute(program_.at(now_));
    }
  }

 private:
  void begin_step() {
    for (BucketState& s : states_) {
      for (auto& [segment, gradient] : s.segments) gradient = {};
      s.table = {};
      s.reductions = 0;
      s.summed = {};
    }
    losses_ = {};
    met_ = normed_ = scalars_reduced_ = false;
    loaded_ = -1;
  }

  void problem(std::string words) { problems_.add(rank_, now_, std::move(words)); }

  void execute(const Instruction& i) {
    for (const BufferUse& use : buffer_uses(program_, i, buckets_)) {
      if (use.buffer.kind == BufferKind::weights) {
        if (!use.writes && i.segment >= 0) read_weights(use.buffer);
      } else if (use.buffer.kind == BufferKind::quantized_weights) {
        if (!use.writes) read_quantized(use.buffer.index);
      } else if (is_per_micro_batch(row_of(use.buffer.kind).owner)) {
        if (const auto wanted = needed(i, use.buffer)) read(use.buffer, *wanted);
        if (const auto value = produced(i, use.buffer)) memory_[use.buffer] = *value;
        advance(i, use.buffer);
      }
    }
    switch (i.kind) {
      case InstructionKind::load_batch: return load(i);
      case InstructionKind::loss:
        if (set_.training) add(losses_, i.accumulate, i, [] { return std::string("the losses"); });
        return;
      case InstructionKind::norm_backward:
      case InstructionKind::backward_weight: return write_gradients(i);
      case InstructionKind::gradient_norm: return norm();
      case InstructionKind::update: return update();
      case InstructionKind::scale_weights: return scale(i.bucket);
      case InstructionKind::quantize_weights: return quantize(i.bucket);
      case InstructionKind::collective:
        if (!is_per_micro_batch(row_of(i.collective.destination.kind).owner)) collective(i);
        return;
      default: return;
    }
  }

  // A collective over buckets or scalars.
  void collective(const Instruction& i) {
    switch (i.collective.destination.kind) {
      case BufferKind::arrival: met_ = true; return;
      case BufferKind::gradient_sums: return reduce(i);
      case BufferKind::weights: return gather(i.collective);
      case BufferKind::weight_scales: return share_scales(i.bucket);
      case BufferKind::scalars:
        if (!normed_) problem("runs before the gradient_norm of its step");
        scalars_reduced_ = true;
        return;
      default: return problem("is over the " + to_string(i.collective.destination));
    }
  }

  static bool is_lane(BufferKind kind) { return row_of(kind).owner == BufferOwner::lane; }

  // The step that an instruction does to the value in a buffer; nothing if it does none.
  std::optional<Pending> does(const Instruction& i, const BufferId& buffer) const {
    switch (i.kind) {
      case InstructionKind::collective: return Pending{step_of(i.collective.operation), i.collective.group.axes};
      case InstructionKind::round_norm:
      case InstructionKind::round_gradient: return Pending{Pending::Step::round, {}};
      case InstructionKind::loss:
        return buffer.kind == BufferKind::activations ? std::optional(Pending{Pending::Step::loss, {}}) : std::nullopt;
      default: return std::nullopt;
    }
  }

  // True if the instruction puts a new value into the buffer.
  bool produces(const Instruction& i, const BufferId& buffer) const {
    switch (i.kind) {
      case InstructionKind::load_batch:
      case InstructionKind::receive_activation:
      case InstructionKind::receive_gradient: return true;
      case InstructionKind::add_residual:
      case InstructionKind::norm:
        if (i.kind == InstructionKind::norm && buffer == norm_buffer(i)) return true;
        return buffer == BufferId{BufferKind::output, i.segment - 1, i.slot} &&
               (i.kind == InstructionKind::add_residual || i.adds_residual);
      case InstructionKind::forward:
        return (buffer.kind == BufferKind::activations && i.part == 0) || buffer.kind == BufferKind::product ||
               buffer.kind == BufferKind::statistics || buffer == BufferId{BufferKind::output, i.segment, i.slot};
      case InstructionKind::backward_input:
        return (buffer.kind == BufferKind::stash && i.part == 0) || buffer.kind == BufferKind::norm_gradient;
      case InstructionKind::norm_backward: return buffer == input_gradient_buffer(program_, i);
      default: return false;
    }
  }

  // Steps for an input of segment `segment` of which this rank has its own rows: they are gathered from all, as they are or
  // rounded with one scale.
  std::vector<Pending> own_rows(int segment) const {
    using enum Pending::Step;
    if (!set_.segment(segment).by_rows) return {};
    if (!set_.segment(segment).gathers_operands) return {{gather, sharing}};
    return {{max, sharing}, {round, {}}, {gather, sharing}};
  }

  // Steps before the next of the computations that make up forward or backward_input.
  std::vector<Pending> left_between_parts(const Instruction& i) const {
    const model::Segment& segment = set_.segment(i.segment);
    const auto& between = i.kind == InstructionKind::forward ? segment.in_forward : segment.in_backward;
    if (i.part >= std::ssize(between)) return {};
    const model::Between& next = between[static_cast<std::size_t>(i.part)];
    return {{step_of(next.operation), next.axes}};
  }

  // The steps that a new value has still to go through.
  std::vector<Pending> left_by(const Instruction& i, const BufferId& buffer) const {
    using enum Pending::Step;
    const model::Segment& segment = set_.segment(std::min(std::max(i.segment, 0), set_.head()));
    switch (i.kind) {
      case InstructionKind::norm: return buffer == norm_buffer(i) ? own_rows(i.segment) : std::vector<Pending>();
      case InstructionKind::norm_backward:
        return buffer.kind == BufferKind::sent_gradient ? std::vector<Pending>() : own_rows(i.segment - 1);
      case InstructionKind::receive_gradient:
        return segment_behind(i).by_rows ? std::vector<Pending>{{gather, sharing}} : std::vector<Pending>();
      case InstructionKind::forward:
      case InstructionKind::backward_input:
        if (buffer.kind == BufferKind::statistics) return {{gather, sharing}};
        if (buffer.kind == BufferKind::activations && !has_output(segment.kind)) return {{loss, {}}};
        if (buffer.kind == BufferKind::product || (buffer.kind == BufferKind::norm_gradient && segment.partial))
          return {{sum, sharing}};
        return left_between_parts(i);
      default: return {};
    }
  }
  const model::Segment& segment_behind(const Instruction& receive) const {
    return set_.segment(program_.chunk_of(receive).last_segment());
  }

  std::optional<Value> produced(const Instruction& i, const BufferId& buffer) const {
    if (!produces(i, buffer)) return std::nullopt;
    return Value{i.micro_batch, step_, is_lane(buffer.kind) ? i.segment : -1, left_by(i, buffer)};
  }

  // The value that has to be in the buffer before the instruction: complete, or with the instruction's own step as the next one
  // to do. (A sum leaves more steps for others, so only the next one is compared.)
  std::optional<Value> needed(const Instruction& i, const BufferId& buffer) const {
    if (produces(i, buffer)) return std::nullopt;
    // The product belongs to the segment before the sum.
    const int segment = buffer.kind == BufferKind::product ? i.segment - 1 : i.segment;
    Value value{i.micro_batch, step_, is_lane(buffer.kind) ? segment : -1};
    if (const auto step = does(i, buffer)) value.pending = {*step};
    return value;
  }

  // Does the instruction's step to the value in the buffer.
  void advance(const Instruction& i, const BufferId& buffer) {
    const auto it = memory_.find(buffer);
    if (does(i, buffer) && it != memory_.end() && !it->second.pending.empty())
      it->second.pending.erase(it->second.pending.begin());
  }

  void read(const BufferId& buffer, const Value& wanted) {
    const auto it = memory_.find(buffer);
    if (it != memory_.end()) {
      Value next = it->second;
      if (!wanted.pending.empty() && next.pending.size() > 1) next.pending.resize(1);
      if (next == wanted) return;
    }
    const std::string name = "the " + to_string(buffer), micro_batch = "micro-batch " + std::to_string(wanted.micro_batch);
    const auto writes = [&](int n) {
      const auto uses = buffer_uses(program_, program_.at(n), buckets_);
      return produces(program_.at(n), buffer) &&
             std::any_of(uses.begin(), uses.end(), [&](const BufferUse& use) { return use.buffer == buffer; });
    };
    // If the value was here once, the instruction that overwrote it is wrong.
    bool was_here = false;
    for (int n = 0; n < now_; ++n) {
      if (!writes(n)) continue;
      if (was_here) {
        problems_.add(rank_, n,
                      "overwrites " + name + ", whose " + micro_batch + " is still needed by " + name_of(program_, now_));
        return;
      }
      was_here = program_.at(n).micro_batch == wanted.micro_batch;
    }
    std::string words = "needs " + micro_batch + " in " + name + ", which holds ";
    if (it == memory_.end() || it->second.step != wanted.step) {
      words += "nothing of this step";
    } else {
      words += "micro-batch " + std::to_string(it->second.micro_batch);
      if (it->second.segment != wanted.segment) words += " of segment " + std::to_string(it->second.segment);
      words += wrong_state(it->second, wanted);
    }
    for (int n = now_ + 1; n < static_cast<int>(program_.instructions.size()); ++n) {
      if (!writes(n) || program_.at(n).micro_batch != wanted.micro_batch) continue;
      words += "; it comes later, from " + name_of(program_, n);
      break;
    }
    problem(std::move(words));
  }

  static std::string wrong_state(const Value& value, const Value& wanted) {
    if (value.pending.empty()) return wanted.pending.empty() ? "" : ", completed already";
    return ", not complete yet: " + to_string(value.pending.front());
  }

  void load(const Instruction& i) {
    // Data comes in ascending order of micro-batches.
    if (i.micro_batch != loaded_ + 1) {
      problem("comes after micro-batch " + std::to_string(loaded_) + "; batches are loaded in ascending order");
    }
    loaded_ = i.micro_batch;
  }

  Weights& weights_of(int bucket) { return weights_[{BufferKind::weights, bucket, 0}]; }

  void read_weights(const BufferId& buffer) {
    const Weights& w = weights_[buffer];
    if (w.updates > step_) problem("reads the " + to_string(buffer) + " after this step's update of them");
    if (w.updates == step_ && !w.whole) {
      problem("reads the " + to_string(buffer) +
              ", of which other ranks' shards are from before the update: no all_gather has brought them");
    }
  }

  void read_quantized(int bucket) {
    const BucketState& s = states_[static_cast<std::size_t>(bucket)];
    if (s.quantized == weights_of(bucket).updates) return;
    problem("reads the quantized weights of bucket " + std::to_string(bucket) +
            ", which are from before the update: no quantize_weights has followed it");
  }

  // `name` is a function, because names are needed for problems only.
  template <typename Name>
  void add(Sum& sum, bool accumulate, const Instruction& i, const Name& name) {
    if (accumulate && sum.contributions == 0) {
      problem("adds to " + name() + ", which hold nothing of this step to add to: it must overwrite them");
    }
    if (!accumulate && sum.contributions > 0) {
      problem("overwrites " + name() + ", to which micro-batch " + std::to_string(sum.micro_batch) + " has been added");
    }
    ++sum.contributions;
    sum.micro_batch = i.micro_batch;
  }

  // True for the bucket that holds the table. If head and embedding are tied on this rank, that bucket has both; else it has
  // the embedding.
  bool has_table(const BucketState& s) const {
    return s.segments.contains(0) && (!tied_here_ || s.segments.contains(set_.head()));
  }

  void write_gradients(const Instruction& i) {
    for (std::size_t b = 0; b < states_.size(); ++b) {
      BucketState& s = states_[b];
      const auto it = s.segments.find(i.segment);
      if (it == s.segments.end()) continue;
      const auto name = [&](const std::string& what) { return [=] { return what + " in bucket " + std::to_string(b); }; };
      if (set_.zero < 2 && s.reductions > 0) problem("writes " + name("gradients")() + ", which has been reduced already");
      claim_place(static_cast<int>(b));
      const bool weight = i.kind == InstructionKind::backward_weight;
      add(weight ? it->second.weight_part : it->second.input_part, i.accumulate, i, name("the gradients of the segment"));
      if (!weight || !has_table(s)) continue;
      if (i.segment == 0) add(s.table, i.accumulate_tokens, i, name("the gradients of the token table"));
      if (i.segment == set_.head() && tied_here_) add(s.table, i.accumulate, i, name("the gradients of the tied table"));
    }
  }

  // Buckets may share memory for their gradients, one after another.
  void claim_place(int bucket) {
    const int place = buckets_[static_cast<std::size_t>(bucket)].place;
    const auto owner = places_.find(place);
    if (owner != places_.end() && owner->second != bucket && holds_gradients(owner->second)) {
      problem("writes gradients of bucket " + std::to_string(bucket) + " where those of bucket " +
              std::to_string(owner->second) + " are, which have not been reduced");
    }
    places_[place] = bucket;
  }

  bool holds_gradients(int bucket) const {
    const BucketState& s = states_[static_cast<std::size_t>(bucket)];
    return std::any_of(s.segments.begin(), s.segments.end(), [](const auto& entry) {
      return entry.second.input_part.contributions + entry.second.weight_part.contributions > 0;
    });
  }

  static std::string reduced() { return "reduced over the " + to_string(groups::replicas) + " group"; }
  int reductions_per_step() const { return set_.zero >= 2 ? set_.micro_batches : 1; }

  void reduce(const Instruction& i) {
    BucketState& s = states_[static_cast<std::size_t>(i.bucket)];
    const Group& group = i.collective.group;
    if (i.collective.source == i.collective.destination) {
      if (s.reductions < reductions_per_step()) problem("runs before the bucket has been " + reduced());
      if (group == groups::tied && !met_) problem("runs before the barrier of the stages");
      group.axes.for_each([&](Axis axis) { s.summed = s.summed.with(axis); });
      return;
    }
    const int wanted = set_.zero >= 2 ? 1 : set_.micro_batches;
    const auto complete = [&](const Sum& sum, int writers, const auto& name) {
      const bool right = set_.zero < 2 || sum.micro_batch == i.micro_batch;
      if (sum.contributions == wanted * writers && right) return;
      std::string words = "reduces " + name() + ", which " + std::to_string(sum.contributions) + " of " +
                          std::to_string(wanted * writers) + " contributions have reached";
      if (!right && sum.contributions > 0) words += ", the last of micro-batch " + std::to_string(sum.micro_batch);
      problem(std::move(words));
    };
    for (auto& [segment, gradient] : s.segments) {
      const auto name = [of = segment] { return "the gradients of segment " + std::to_string(of); };
      if (has_norm(set_.kind(segment))) complete(gradient.input_part, 1, name);
      complete(gradient.weight_part, 1, name);
      gradient = {};
    }
    if (has_table(s)) complete(s.table, tied_here_ ? 2 : 1, [] { return std::string("the gradients of the token table"); });
    s.table = {};
    if (set_.zero >= 2 && i.accumulate != (s.reductions > 0)) {
      problem(i.accumulate ? "adds to a sum that holds nothing of this step yet: it must overwrite it"
                           : "overwrites the sum of " + std::to_string(s.reductions) + " micro-batches");
    }
    ++s.reductions;
  }

  void norm() {
    for (std::size_t b = 0; b < states_.size(); ++b) {
      const std::string words = "runs before bucket " + std::to_string(b) + " is ";
      if (states_[b].reductions < reductions_per_step()) problem(words + reduced());
      buckets_[b].further().for_each([&](Axis axis) {
        if (!states_[b].summed.contains(axis)) problem(words + "summed over the " + to_string(group_along(axis)) + " group");
      });
    }
    if (counts_losses_ && losses_.contributions < set_.micro_batches) problem("runs before all losses are there");
    normed_ = true;
  }

  void update() {
    if (!scalars_reduced_) problem("runs before the sum of scalars of its step");
    for (int b = 0; b < std::ssize(buckets_); ++b) weights_of(b) = {.updates = step_ + 1, .whole = set_.zero == 0};
  }

  void gather(const Collective& c) {
    const int updates = weights_[c.source].updates;
    if (updates <= step_) problem("runs before the update of its step");
    weights_[c.destination] = {.updates = updates, .whole = true};
  }

  void scale(int bucket) {
    BucketState& s = states_[static_cast<std::size_t>(bucket)];
    const Weights& w = weights_of(bucket);
    if (w.updates <= step_) return problem("runs before the update of its step");
    if (!w.whole) return problem("runs before an all_gather has brought other ranks' shards of the bucket");
    s.scaled = w.updates;
    s.scales_shared = set_.layout.size(segment_axis) == 1;
  }

  void share_scales(int bucket) {
    BucketState& s = states_[static_cast<std::size_t>(bucket)];
    if (s.scaled <= step_) problem("runs before the scale_weights of its step");
    s.scales_shared = true;
  }

  void quantize(int bucket) {
    BucketState& s = states_[static_cast<std::size_t>(bucket)];
    if (s.scaled <= step_) return problem("runs before the scale_weights of its step");
    if (!s.scales_shared) return problem("has a scale that the ranks that share the weights have not agreed on");
    s.quantized = weights_of(bucket).updates;
  }

  const ProgramSet& set_;
  int rank_;
  const Program& program_;
  const std::vector<Bucket>& buckets_;
  ProblemList& problems_;
  bool counts_losses_ = false, tied_here_ = false;
  int step_ = 0, now_ = 0;
  std::map<BufferId, Value> memory_;
  std::map<BufferId, Weights> weights_;
  std::vector<BucketState> states_;
  std::map<int, int> places_;  // by place: the bucket whose gradients were written there last
  Sum losses_;
  bool met_ = false, normed_ = false, scalars_reduced_ = false;
  int loaded_ = -1;
};

}  // namespace

void check_values(const ProgramSet& set, int rank, ProblemList& problems) { SymbolicRank(set, rank, problems).run(); }

}  // namespace plait::parallel
