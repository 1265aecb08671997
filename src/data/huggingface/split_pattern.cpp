#include "data/huggingface/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <spdlog/fmt/fmt.h>

#include <array>
#include <stdexcept>

#include "core/error.h"

namespace plait::data {
namespace {

// Limits on work for one match, and on memory. A pattern of a real tokenizer needs little of either for any text.
constexpr std::uint32_t match_limit = 100'000'000, depth_limit = 100'000, heap_kibibytes = 64 * 1024;
constexpr std::size_t first_stack = 32 * 1024, largest_stack = 8 * 1024 * 1024;

std::string pcre2_message(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

template <auto free_it>
struct Pcre2Free {
  template <typename T>
  void operator()(T* it) const {
    free_it(it);
  }
};
template <typename T, auto free_it>
using Pcre2Ptr = std::unique_ptr<T, Pcre2Free<free_it>>;

}  // namespace

struct SplitScratch::Parts {
  Pcre2Ptr<pcre2_match_context, &pcre2_match_context_free> context{pcre2_match_context_create(nullptr)};
  Pcre2Ptr<pcre2_match_data, &pcre2_match_data_free> match{pcre2_match_data_create(1, nullptr)};
  Pcre2Ptr<pcre2_jit_stack, &pcre2_jit_stack_free> stack{pcre2_jit_stack_create(first_stack, largest_stack, nullptr)};
};

SplitScratch::SplitScratch() : parts_(std::make_unique<Parts>()) {
  if (parts_->context == nullptr || parts_->match == nullptr) throw std::bad_alloc();
  pcre2_set_match_limit(parts_->context.get(), match_limit);
  pcre2_set_depth_limit(parts_->context.get(), depth_limit);
  pcre2_set_heap_limit(parts_->context.get(), heap_kibibytes);
  // Null if PCRE2 was built without its compiler.
  if (parts_->stack != nullptr) pcre2_jit_stack_assign(parts_->context.get(), nullptr, parts_->stack.get());
}

SplitScratch::~SplitScratch() = default;

struct SplitPattern::Code {
  Pcre2Ptr<pcre2_code, &pcre2_code_free> code;
  bool compiled = false;  // to machine code
};

SplitPattern::SplitPattern(const std::string& pattern, SplitBehavior behavior, bool invert)
    : code_(std::make_unique<Code>()), behavior_(behavior), invert_(invert) {
  const Pcre2Ptr<pcre2_compile_context, &pcre2_compile_context_free> context{pcre2_compile_context_create(nullptr)};
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  code_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                  PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE, &error, &at,
                                  context.get()));
  if (code_->code == nullptr) throw std::invalid_argument(fmt::format("{} (at byte {})", pcre2_message(error), at));
  std::uint32_t may_be_empty = 0;
  pcre2_pattern_info(code_->code.get(), PCRE2_INFO_MATCHEMPTY, &may_be_empty);
  if (may_be_empty != 0) throw std::invalid_argument("it can match without taking a character");
  code_->compiled = pcre2_jit_compile(code_->code.get(), PCRE2_JIT_COMPLETE) == 0;
}

SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;

SplitPattern::Match SplitPattern::next(std::string_view text, std::size_t from, SplitScratch& scratch) const {
  const SplitScratch::Parts& parts = *scratch.parts_;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto match = code_->compiled ? pcre2_jit_match : pcre2_match;
  const int found =
      match(code_->code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, parts.match.get(), parts.context.get());
  if (found == PCRE2_ERROR_NOMATCH) return {text.size(), text.size()};
  if (found < 0)
    throw ConfigError(fmt::format("the tokenizer's pattern cannot be matched with a text of {} bytes: {}", text.size(),
                                  pcre2_message(found)));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(parts.match.get());
  require(ends[0] >= from && ends[1] > ends[0] && ends[1] <= text.size(), "SplitPattern: a match takes nothing");
  return {ends[0], ends[1]};
}

void SplitPattern::split(std::string_view text, SplitScratch& scratch,
                         const std::function<void(std::string_view)>& piece) const {
  const bool removes = behavior_ == SplitBehavior::removed;
  if (!removes && behavior_ != SplitBehavior::isolated) return split_merging(text, scratch, piece);
  for (std::size_t done = 0; done < text.size();) {
    const auto [begin, end] = next(text, done, scratch);
    if (begin > done && !(removes && invert_)) piece(text.substr(done, begin - done));
    if (end > begin && !(removes && !invert_)) piece(text.substr(begin, end - begin));
    done = end;
  }
}

// The behaviours in which a piece can be more than one match, or a match and its neighbour.
void SplitPattern::split_merging(std::string_view text, SplitScratch& scratch,
                                 const std::function<void(std::string_view)>& piece) const {
  struct Part {
    std::size_t begin, end;
    bool matches;
  };
  std::vector<Part> parts;
  for (std::size_t done = 0; done < text.size();) {
    const auto [begin, end] = next(text, done, scratch);
    if (begin > done) parts.push_back({done, begin, invert_});
    if (end > begin) parts.push_back({begin, end, !invert_});
    done = end;
  }
  const auto joins = [&](const Part& first, const Part& second) {
    if (behavior_ == SplitBehavior::merged_with_previous) return !first.matches && second.matches;
    if (behavior_ == SplitBehavior::merged_with_next) return first.matches && !second.matches;
    return first.matches == second.matches;
  };
  for (std::size_t i = 0; i < parts.size();) {
    std::size_t last = i;
    while (last + 1 < parts.size() && joins(parts[last], parts[last + 1])) ++last;
    piece(text.substr(parts[i].begin, parts[last].end - parts[i].begin));
    i = last + 1;
  }
}

}  // namespace plait::data
