// The bounds on a configuration's numbers, and the reasons for them.
//
// Every number has both bounds, so that all results (products, memory, programs, ranks) fit into the integers that hold them,
// and a typing error is reported at once instead of after hours of planning or when memory runs out. The bounds are far beyond
// any training so far. docs/configuration.md lists them with their reasons.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

struct Limit {
  std::int64_t most;
  const char* reason;
};

namespace limits {

inline constexpr Limit steps{1'000'000'000'000, "30 years of steps of a millisecond"};
inline constexpr Limit layers{4096, "four times the deepest transformer published (DeepNet, 1,000 layers)"};
inline constexpr Limit hidden{131'072, "six times the widest transformer published (MT-NLG, 20,480)"};
inline constexpr Limit heads{4096, "32 times the heads of the largest models published (128)"};
inline constexpr Limit head_width{4096, "16 times the widest heads published (PaLM, 256)"};
inline constexpr Limit ffn{1'048'576, "eight times the largest `model.hidden`"};
inline constexpr Limit vocab{16'777'216, "16 times the largest vocabulary published (XLM-V, a million)"};
inline constexpr Limit pieces{1'048'576, "the largest SentencePiece model published has a million pieces (XLM-V)"};
inline constexpr Limit sequence{16'777'216, "beyond the longest context published (Llama 4 Scout, 10 million tokens)"};
inline constexpr Limit data_sources{1000, "ten times the sources of the largest blends published"};
inline constexpr Limit sequences{16'777'216, "a hundred times the largest batch published"};
inline constexpr Limit batches{10'000, "an evaluation of ten thousand steps' worth of data"};
inline constexpr Limit sampled{1'000'000, "text for people to read"};
inline constexpr Limit ranks{65'536, "four times the GPUs that Llama 3 405B was trained on (16,384)"};
inline constexpr Limit host_ranks{1024, "ranks that one host starts, each with several threads"};
inline constexpr Limit thread_blocks{1024, "more than any GPU has SMs"};
inline constexpr Limit variants{100, "all layouts of each are verified"};
inline constexpr Limit file_name{255, "file systems take no longer names"};
inline constexpr Limit path{4000, "file systems take no longer paths"};
inline constexpr Limit measured_steps{1'000'000, "a round keeps the time of each of them"};
inline constexpr Limit verified_steps{1'000'000, "each layout takes them all, and so does the serial run"};

// GiB of a device's memory.
inline constexpr const char* device_gib = "a kilobyte holds no model, and no device has a petabyte";

// The reason for the range of numbers that kernels take in 32 bits.
inline constexpr const char* normal_float = "32-bit numbers hold these, and their inverses, at full precision";

// Tokens of a micro-batch: the rows of its matrices, which BLAS counts in 32 bits.
inline constexpr std::int64_t micro_batch_tokens = 2'147'483'647;
// Passes of all micro-batches through all segments in one step of the whole pipeline. Programs hold a few instructions for
// each, and the planner simulates them: half a gigabyte and some seconds at the bound. Llama 3 405B with 2,048 micro-batches
// reaches it.
inline constexpr std::int64_t passes = 524'288;
// Bytes of a model's weights, gradients and optimizer, and of one step's activations if all were kept: 2^60, an eighth of what
// a 64-bit sum holds. A hundred million tokens through 200 layers of 50,000 are a quarter of it.
inline constexpr double bytes = 1'152'921'504'606'846'976.0;

// The text of a configuration. A list of the GPUs of every rank fits.
inline constexpr std::size_t config_bytes = std::size_t{1} << 20;
inline constexpr std::size_t config_values = 100'000;

}  // namespace limits

}  // namespace plait
