// A whole transformer on one host stream, without programs or flat buffers: the smallest differentiable unit.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/philox.h"
#include "core/stream.h"
#include "model/transformer.h"
#include "ops/op_context.h"
#include "ops/rope.h"

namespace plait::model {

class SerialModel {
 public:
  SerialModel(const SegmentSizes& options, std::uint64_t seed) : options_(options), memory_(Device{}), stream_(Device{}) {
    list_ = parameters(options.shape);
    for (const Parameter& p : list_) {
      weights_.push_back(tensor(p.shape));
      gradients_.push_back(tensor(p.shape));
      std::vector<float> values(static_cast<std::size_t>(p.shape.elements()));
      initial_values(p, seed, 0, values);
      // Norm gains and biases start at 1 and 0, where some mistakes do not show.
      std::vector<float> noise(values.size());
      Random(seed + 1, p.name).fill_normal(0, noise);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const bool stored = static_cast<std::int64_t>(i) < p.stored;
        set(weights_.back(), static_cast<std::int64_t>(i),
            static_cast<double>(values[i]) + (stored ? 0.05 * static_cast<double>(noise[i]) : 0.0));
      }
    }
    block_weights_ = bind_parameters(options.shape, list_, weights_);
    block_gradients_ = bind_parameters(options.shape, list_, gradients_);
    for (int segment = 0; segment < options.shape.segments(); ++segment) {
      const auto specs = activation_specs(options, segment);
      std::vector<void*> memory;
      for (const TensorSpec& spec : specs) memory.push_back(tensor(spec.shape, spec.dtype).data);
      activations_.push_back(bind_activations(specs, memory));
      const auto norm = norm_specs(options, segment);
      memory.clear();
      for (const TensorSpec& spec : norm) memory.push_back(tensor(spec.shape, spec.dtype).data);
      norms_.push_back(bind_norm(norm, memory));
    }
    // One stash for all segments; the gradients of outputs alternate between two buffers.
    residual_ = {tensor({options.micro_batch.rows(), options.shape.hidden}),
                 tensor({options.micro_batch.rows(), options.shape.hidden})};
    norm_gradient_ = tensor({options.micro_batch.rows(), options.shape.hidden});
    for (int segment = 0; segment < options.shape.segments(); ++segment) {
      const auto specs = gradient_specs(options, segment);
      std::vector<void*> memory;
      for (const TensorSpec& spec : specs) {
        memory.push_back(spec.name == "output" ? residual_[static_cast<std::size_t>((segment + 1) % 2)].data
                                               : tensor(spec.shape, spec.dtype).data);
      }
      gradients_of_blocks_.push_back(bind_gradients(specs, memory));
    }
    View table;
    if (options.shape.position == Position::rope) {
      table = tensor({options.micro_batch.sequence, options.shape.head_dim},
                     options.compute == DType::f64 ? DType::f64 : DType::f32);
      ops::rope_table(options.shape.rope_base, options.shape.rope_scaling, table);
    }
    transformer_ = std::make_unique<Transformer>(options, table);
    const auto bytes = static_cast<std::int64_t>(ops::workspace_bytes(DeviceKind::host, {}));
    context_ = ops::make_op_context(Device{}, tensor({bytes}, DType::u8));
    const auto indices = [&] { return tensor({options.micro_batch.rows()}, DType::i32); };
    batch_ = {indices(), indices(), options.micro_batch.documents == Documents::separate ? indices() : View()};
    const Random random(seed, "tokens");
    for (std::int64_t i = 0; i < options.micro_batch.rows(); ++i) {
      const auto vocab = static_cast<std::uint64_t>(options.shape.vocab);
      batch_.tokens.as<std::int32_t>()[i] = static_cast<std::int32_t>(random.below(vocab, static_cast<std::uint64_t>(i), 0));
      batch_.targets.as<std::int32_t>()[i] = static_cast<std::int32_t>(random.below(vocab, static_cast<std::uint64_t>(i), 1));
      if (!batch_.starts) continue;
      // About every third token begins a document.
      const std::int64_t at = i % options.micro_batch.sequence;
      const bool begins = at == 0 || random.below(3, static_cast<std::uint64_t>(i), 2) == 0;
      batch_.starts.as<std::int32_t>()[i] = begins ? static_cast<std::int32_t>(at) : batch_.starts.as<std::int32_t>()[i - 1];
    }
  }

  // Returns the mean loss; with `backward` also computes gradients (accumulate: adds to the present ones).
  double run(bool backward, bool accumulate = false) {
    const int head = options_.shape.head_segment();
    const auto scale = static_cast<float>(1.0 / static_cast<double>(options_.micro_batch.rows()));
    for (int segment = 0; segment <= head; ++segment) {
      const auto at = static_cast<std::size_t>(segment);
      if (segment > 0) transformer_->norm_forward(stream_, *context_, norm(segment));
      transformer_->forward(stream_, *context_,
                            {.segment = segment,
                             .weights = &weights_of(segment),
                             .batch = batch_,
                             .norm = norms_[at],
                             .residual = segment == 0 || segment == head ? View() : input(segment),
                             .output = activations_[at].output,
                             .activations = &activations_[at]});
    }
    transformer_->loss(stream_, {.logits = activations_.back().logits,
                                 .targets = batch_.targets,
                                 .statistics = {},
                                 .losses = activations_.back().losses,
                                 .train = backward,
                                 .scale = scale});
    for (int segment = head; backward && segment >= 0; --segment) {
      const auto at = static_cast<std::size_t>(segment);
      if (options_.recompute != Recompute::none && segment > 0) transformer_->norm_forward(stream_, *context_, norm(segment));
      const Transformer::Backward args{.segment = segment,
                                       .weights = &weights_of(segment),
                                       .weight_gradients = &block_gradients_[at],
                                       .batch = batch_,
                                       .norm = norms_[at],
                                       .activations = &activations_[at],
                                       .gradients = &gradients_of_blocks_[at],
                                       .norm_gradient = norm_gradient_,
                                       .accumulate = accumulate,
                                       .accumulate_tokens = accumulate || options_.shape.tie_embeddings};
      transformer_->backward_input(stream_, *context_, args);
      if (segment > 0) {
        transformer_->norm_backward(stream_, *context_,
                                    {.forward = norm(segment),
                                     .weight_gradients = args.weight_gradients,
                                     .out_gradient = {norm_gradient_},
                                     .residual_gradient = gradients_of_blocks_[at].output,
                                     .input_gradient = residual_[static_cast<std::size_t>(segment % 2)],
                                     .input_scale = {},
                                     .workspace = {},
                                     .accumulate = accumulate});
      }
      transformer_->backward_weight(stream_, *context_, args);
    }
    stream_.ref().synchronize();
    const View losses = activations_.back().losses;
    double sum = 0;
    for (std::int64_t i = 0; i < losses.elements(); ++i) sum += get(losses, i);
    return sum / static_cast<double>(losses.elements());
  }

  static double get(View v, std::int64_t i) {
    return v.dtype == DType::f64 ? v.as<double>()[i] : static_cast<double>(v.as<float>()[i]);
  }
  static void set(View v, std::int64_t i, double value) {
    if (v.dtype == DType::f64) {
      v.as<double>()[i] = value;
    } else {
      v.as<float>()[i] = static_cast<float>(value);
    }
  }
  const std::vector<Parameter>& list() const { return list_; }
  const Batch& batch() const { return batch_; }
  View logits() const { return activations_.back().logits; }  // their gradient after run(true)
  View weight(std::size_t i) const { return weights_[i]; }
  View gradient(std::size_t i) const { return gradients_[i]; }

 private:
  const SegmentParameters& weights_of(int segment) const { return block_weights_[static_cast<std::size_t>(segment)]; }
  Transformer::Norm norm(int segment) const {
    return {.segment = segment,
            .weights = &weights_of(segment),
            .input = input(segment),
            .norm = norms_[static_cast<std::size_t>(segment)]};
  }
  View input(int segment) const { return segment == 0 ? View() : activations_[static_cast<std::size_t>(segment) - 1].output; }
  View tensor(Shape shape) { return tensor(shape, options_.compute); }
  View tensor(Shape shape, DType type) {
    buffers_.push_back(memory_.allocate(static_cast<std::size_t>(shape.elements()) * size_of(type)));
    return View(buffers_.back().data(), type, shape);
  }

  SegmentSizes options_;
  DeviceMemory memory_;
  std::vector<Buffer> buffers_;
  Stream stream_;
  std::unique_ptr<ops::OpContext> context_;
  std::unique_ptr<Transformer> transformer_;
  std::vector<Parameter> list_;
  std::vector<View> weights_, gradients_;
  std::vector<SegmentParameters> block_weights_, block_gradients_;
  std::vector<SegmentActivations> activations_;
  std::vector<NormActivations> norms_;
  std::vector<SegmentGradients> gradients_of_blocks_;
  View norm_gradient_;
  std::vector<View> residual_;
  Batch batch_;
};

}  // namespace plait::model
