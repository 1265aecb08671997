#include "train/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "checkpoint/checkpoint_directory.h"
#include "checkpoint/weights_reader.h"
#include "core/error.h"
#include "core/philox.h"
#include "core/utf8.h"
#include "data/tokenizer.h"
#include "interop/foreign_weights.h"
#include "interop/trained_model.h"
#include "launch/launch.h"
#include "train/initial_weights.h"
#include "train/session.h"
#include "train/training_checkpoint.h"

namespace plait::train {
namespace {

// Samples softmax(logits / temperature) over the top_k likeliest tokens, by inversion at `uniform` in [0, 1).
std::int32_t draw(const std::vector<float>& logits, double temperature, std::int64_t top_k, double uniform) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (temperature <= 0) return *std::min_element(order.begin(), order.end(), likelier);
  if (top_k > 0 && top_k < static_cast<std::int64_t>(order.size())) {
    std::nth_element(order.begin(), order.begin() + top_k, order.end(), likelier);
    order.resize(static_cast<std::size_t>(top_k));
  }
  const float largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> cumulative;
  double sum = 0;
  for (const std::int32_t token : order) {
    sum += std::exp(static_cast<double>(logits[static_cast<std::size_t>(token)] - largest) / temperature);
    cumulative.push_back(sum);
  }
  const auto at = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * sum) - cumulative.begin();
  return order[static_cast<std::size_t>(std::min<std::ptrdiff_t>(at, std::ssize(order) - 1))];
}

void generate(const SampleRequest& request, const Config& config, const data::Tokenizer& tokenizer,
              runtime::Interpreter& interpreter, const std::function<void(const std::string&)>& on_text) {
  std::vector<std::int32_t> text = prompt_tokens(tokenizer, request.prompt, "--prompt");
  std::string decoded = tokenizer.decode(text);
  std::size_t shown = 0;
  // A character of which only the first bytes have come is shown when the rest has.
  const auto show = [&](std::size_t end) {
    if (end > shown) on_text(decoded.substr(shown, end - shown));
    shown = std::max(shown, end);
  };
  show(decoded.size() - unfinished_utf8(decoded));
  const auto sequence = static_cast<std::size_t>(config.data.sequence_length);
  const Random random(request.seed, "sample");
  for (std::int64_t n = 0; n < request.tokens; ++n) {
    // The last `sequence` tokens. Causal attention does not see past the end, so any tokens may follow.
    const std::size_t length = std::min(text.size(), sequence);
    std::vector<std::int32_t> window(text.end() - static_cast<std::ptrdiff_t>(length), text.end());
    window.resize(sequence, 0);
    const std::vector<float> logits = interpreter.synchronize_logits(window, static_cast<std::int64_t>(length) - 1);
    const double uniform = static_cast<double>(random.uniform(static_cast<std::uint64_t>(n)));
    text.push_back(draw(logits, request.temperature, request.top_k, uniform));
    // Decoded as a whole, because the text of a token can depend on the tokens before it.
    decoded = tokenizer.decode(text);
    show(decoded.size() - unfinished_utf8(decoded));
  }
  show(decoded.size());
}

}  // namespace

std::vector<std::int32_t> prompt_tokens(const data::Tokenizer& tokenizer, const std::string& prompt, const std::string& key) {
  std::vector<std::int32_t> tokens = tokenizer.encode(prompt);
  if (tokens.empty()) throw ConfigError({{key, prompt, "must be a token of the tokenizer at least, to be continued", "", 0}});
  return tokens;
}

void sample(const SampleRequest& request, Device device, const std::function<void(const std::string&)>& on_text) {
  const checkpoint::FoundCheckpoint found = interop::find_weights(request.weights);
  Config config = interop::trained_config(found.directory);
  config.parallel = {};
  config.parallel.size = single_rank;
  config.train.global_batch = config.train.micro_batch = 1;
  // One sequence may not have the length that FP8 products need, and its scale would differ from that of a whole micro-batch.
  if (config.precision.matmul == MatmulType::fp8) config.precision.matmul = automatic;
  config.data.documents = Documents::joined;  // the prompt and its continuation
  const std::shared_ptr<const data::Tokenizer> tokenizer = trained_tokenizer(config, found.run_dir);

  launch::LaunchPlan alone;
  alone.devices = {device};
  const auto body = [&](launch::RankContext& rank) {
    Session session(config, parallel::Decision{}, tokenizer->vocab(), rank);
    session.run([&] {
      synchronize_load(session.interpreter(), *interop::open_weights(found.directory), checkpoint::Restored::weights);
      generate(request, config, *tokenizer, session.interpreter(), on_text);
    });
  };
  launch::launch(alone, body, {});
}

}  // namespace plait::train
