#include "config/schedule_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>

#include <spdlog/fmt/fmt.h>

#include "config/pass_replay.h"

namespace plait {
namespace {

constexpr int most_number = 1 << 20;  // limit on stages and micro-batches

char letter(PassKind kind) { return "FBIW"[static_cast<int>(kind)]; }

// The position of a pass in the file, for messages. Positions count cells from 1, including empty ones.
struct Cell {
  int rank = 0, position = 0;
  std::string_view text;
};

// Ends reading; caught in parse_schedule.
struct Refusal {
  std::string words;
};

[[noreturn]] void refuse(const Cell& cell, const std::string& reason) {
  constexpr std::size_t most_shown = 40;
  std::string shown(cell.text.substr(0, most_shown));
  // The file may hold any bytes, and the message goes to terminals and into JSON.
  std::ranges::replace_if(shown, [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  throw Refusal{fmt::format("rank {}, position {} ({}{}): {}", cell.rank, cell.position, shown,
                            cell.text.size() > most_shown ? "..." : "", reason)};
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t\r\"";
  const std::size_t first = text.find_first_not_of(blank);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(blank) - first + 1);
}

// Removes the number that `text` begins with and returns it.
std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number >= most_number || text.front() == '-') return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

// Reads the cells of all lines, then checks ScheduleFile's guarantees.
class Parser {
 public:
  explicit Parser(ScheduleFile& file) : file_(file) {}

  void run() {
    read_lines();
    count_forwards_from_zero();
    count_sizes();
    place_stages();
    check_once();
    check_order();
    take();
  }

 private:
  struct Step {
    StagePass pass;
    Cell cell;
  };

  void read_lines() {
    std::string_view text = file_.text;
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
    const std::size_t end = text.find_last_not_of("\r\n");
    if (end == std::string_view::npos) throw Refusal{"is empty"};
    text = text.substr(0, end + 1);
    for (int rank = 0; !text.empty(); ++rank) {
      const std::size_t line_end = std::min(text.find('\n'), text.size());
      read_line(text.substr(0, line_end), rank);
      text.remove_prefix(std::min(line_end + 1, text.size()));
    }
  }

  void read_line(std::string_view line, int rank) {
    steps_.emplace_back();
    Cell cell{rank, 1, {}};
    for (std::size_t begin = 0; begin <= line.size(); ++cell.position) {
      const std::size_t end = std::min(line.find(',', begin), line.size());
      cell.text = trimmed(line.substr(begin, end - begin));
      if (!cell.text.empty()) read_cell(cell);
      begin = end + 1;
    }
    if (steps_.back().empty()) throw Refusal{fmt::format("rank {} (line {}) has no pass", rank, rank + 1)};
  }

  void read_cell(const Cell& cell) {
    constexpr std::string_view overlap = ")OVERLAP_F_B";
    if (!cell.text.starts_with('(')) return read_action(cell, cell.text);
    const std::size_t both = cell.text.find(';');
    if (!cell.text.ends_with(overlap) || both == std::string_view::npos) {
      refuse(cell, "must be (<action>;<action>)OVERLAP_F_B");
    }
    const auto& passes = steps_.back();
    const std::size_t before = passes.size();
    read_action(cell, cell.text.substr(1, both - 1));
    read_action(cell, cell.text.substr(both + 1, cell.text.size() - overlap.size() - both - 1));
    const auto forwards = std::count_if(passes.begin() + static_cast<std::ptrdiff_t>(before), passes.end(),
                                        [](const Step& step) { return step.pass.kind == PassKind::forward; });
    if (passes.size() != before + 2 || forwards != 1) refuse(cell, "must be a forward and a backward, in either order");
    steps_.back().back().pass.braided = true;
  }

  void read_action(const Cell& cell, std::string_view action) {
    constexpr std::array<std::string_view, 7> passed_over = {"SEND_F",  "RECV_F",  "SEND_B",     "RECV_B",
                                                             "UNSHARD", "RESHARD", "REDUCE_GRAD"};
    constexpr std::string_view kinds = "FBIW";
    std::string_view rest = trimmed(action);
    const auto stage = rest.empty() ? std::nullopt : take_number(rest);
    if (stage) {
      for (const std::string_view word : passed_over) {
        if (rest.starts_with(word) && rest.find_first_not_of("0123456789", word.size()) == std::string_view::npos) return;
      }
    }
    const std::size_t kind = rest.empty() ? std::string_view::npos : kinds.find(rest.front());
    if (!stage || kind == std::string_view::npos) malformed(cell);
    rest.remove_prefix(1);
    const auto micro_batch = rest.empty() ? std::nullopt : take_number(rest);
    if (!micro_batch || !rest.empty()) malformed(cell);
    steps_.back().push_back({{static_cast<PassKind>(kind), *stage, *micro_batch}, cell});
  }

  [[noreturn]] void malformed(const Cell& cell) {
    refuse(cell, "is no action: must be <stage><F, B, I or W><micro-batch>, as in 0F3, with numbers below 1048576");
  }

  // PyTorch 2.11 (Schedule1F1B) numbers forwards from 1 in a stage that begins with a forward and a backward in turn, the last
  // one. With backwards from 0 to m - 1, forwards from 1 to m are clearly shifted.
  void count_forwards_from_zero() {
    struct Numbers {
      int first = most_number, last = -1;
      void add(int number) { first = std::min(first, number), last = std::max(last, number); }
    };
    std::map<int, std::pair<Numbers, Numbers>> of_stage;  // forwards, backwards
    for (const auto& steps : steps_) {
      for (const auto& [pass, cell] : steps) {
        auto& [forwards, backwards] = of_stage[pass.stage];
        (pass.kind == PassKind::forward ? forwards : backwards).add(pass.micro_batch);
      }
    }
    for (auto& steps : steps_) {
      for (auto& [pass, cell] : steps) {
        const auto& [forwards, backwards] = of_stage[pass.stage];
        const bool from_one = forwards.first == 1 && backwards.first == 0 && forwards.last == backwards.last + 1;
        if (from_one && pass.kind == PassKind::forward) --pass.micro_batch;
      }
    }
  }

  // Limits allocations by the size of the file: there is a forward for every stage and micro-batch.
  void count_sizes() {
    std::size_t forwards = 0, passes = 0;
    const Cell* last_micro_batch = nullptr;
    for (const auto& steps : steps_) {
      for (const Step& step : steps) {
        ++passes;
        if (step.pass.kind == PassKind::forward) ++forwards;
        if (step.pass.stage >= stages_) stages_ = step.pass.stage + 1, last_stage_ = &step.cell;
        if (step.pass.micro_batch >= file_.micro_batches)
          file_.micro_batches = step.pass.micro_batch + 1, last_micro_batch = &step.cell;
      }
    }
    const auto wanted = static_cast<std::size_t>(stages_) * static_cast<std::size_t>(file_.micro_batches);
    if (static_cast<std::size_t>(stages_) > passes) refuse(*last_stage_, too_many("stages", stages_, passes));
    if (static_cast<std::size_t>(file_.micro_batches) > passes)
      refuse(*last_micro_batch, too_many("micro-batches", file_.micro_batches, passes));
    // A few missing or doubled ones are named one by one.
    if (wanted > 2 * forwards + 64) {
      throw Refusal{fmt::format("{} stages and {} micro-batches take {} forwards, but there are {}", stages_,
                                file_.micro_batches, wanted, forwards)};
    }
  }

  static std::string too_many(const char* what, int count, std::size_t passes) {
    return fmt::format("makes {} {}, but there are only {} passes in all", count, what, passes);
  }

  void place_stages() {
    file_.rank_of_stage.assign(static_cast<std::size_t>(stages_), -1);
    for (const auto& steps : steps_) {
      for (const Step& step : steps) {
        int& rank = file_.rank_of_stage[static_cast<std::size_t>(step.pass.stage)];
        if (rank < 0) rank = step.cell.rank;
        if (rank != step.cell.rank) refuse(step.cell, fmt::format("stage {} is on rank {} already", step.pass.stage, rank));
      }
    }
    for (int stage = 0; stage < stages_; ++stage) {
      if (file_.rank_of_stage[static_cast<std::size_t>(stage)] < 0) {
        refuse(*last_stage_, fmt::format("names stage {}, but no rank has stage {}", stages_ - 1, stage));
      }
    }
  }

  // The cells that name one stage and micro-batch.
  struct Done {
    const Cell *forward = nullptr, *input = nullptr, *weight = nullptr;
  };

  std::size_t index(int stage, int micro_batch) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(file_.micro_batches) +
           static_cast<std::size_t>(micro_batch);
  }

  void check_once() {
    std::vector<Done> done(index(stages_, 0));
    const auto once = [](const Cell*& known, const Step& step, const char* what) {
      if (known != nullptr) {
        refuse(step.cell, fmt::format("{} of stage {}, micro-batch {}, a second time: position {} has it", what,
                                      step.pass.stage, step.pass.micro_batch, known->position));
      }
      known = &step.cell;
    };
    for (const auto& steps : steps_) {
      for (const Step& step : steps) {
        Done& d = done[index(step.pass.stage, step.pass.micro_batch)];
        switch (step.pass.kind) {
          case PassKind::forward: once(d.forward, step, "the forward"); break;
          case PassKind::backward_weight: once(d.weight, step, "the weight part"); break;
          case PassKind::backward_input: once(d.input, step, "the input part"); break;
          case PassKind::backward: once(d.input, step, "the backward"); once(d.weight, step, "the backward");
        }
        file_.splits_backward = file_.splits_backward || step.pass.kind == PassKind::backward_weight;
      }
    }
    for (int stage = 0; stage < stages_; ++stage) {
      const int rank = file_.rank_of_stage[static_cast<std::size_t>(stage)];
      for (int micro_batch = 0; micro_batch < file_.micro_batches; ++micro_batch) {
        const Done& d = done[index(stage, micro_batch)];
        const char* what = nullptr;
        if (!d.weight) what = d.input ? "weight part" : "backward";
        if (!d.input && d.weight) what = "input part";
        if (!d.forward) what = "forward";
        if (what == nullptr) continue;
        const int end = steps_[static_cast<std::size_t>(rank)].back().cell.position;
        throw Refusal{fmt::format("rank {}: up to its last position, {}, there is no {} of stage {}, micro-batch {}", rank, end,
                                  what, stage, micro_batch)};
      }
    }
  }

  // Runs the passes, every rank in its order, as long as some rank's next one has its inputs.
  void check_order() {
    PassEnds ends(file_.rank_of_stage, file_.micro_batches);
    std::vector<ReplayedList> ranks;
    for (const auto& steps : steps_) ranks.push_back({steps.size()});
    replay(
        ranks, [&](std::size_t rank, std::size_t n) { return !ends.missing(steps_[rank][n].pass); },
        [&](std::size_t rank, std::size_t n, const auto& release) {
          const int other = ends.finish(steps_[rank][n].pass, 0);
          if (other >= 0) release(static_cast<std::size_t>(other));
        });
    const auto missing = [&](const StagePass& pass) {
      const PassNeed need = ends.missing(pass).value();
      const char* what = need.result == PassResult::output        ? "forward"
                         : pass.kind == PassKind::backward_weight ? "input part"
                                                                  : "backward";
      return fmt::format("the {} of stage {}, micro-batch {}, on rank {}", what, need.stage, pass.micro_batch,
                         file_.rank_of_stage[static_cast<std::size_t>(need.stage)]);
    };
    std::string others;
    const Step* first = nullptr;
    for (std::size_t rank = 0; rank < steps_.size(); ++rank) {
      if (ranks[rank].done == ranks[rank].steps) continue;
      const Step& step = steps_[rank][ranks[rank].done];
      if (first == nullptr) {
        first = &step;
      } else if (others.size() < 400) {
        others +=
            fmt::format("; rank {} at position {} ({}) for {}", rank, step.cell.position, step.cell.text, missing(step.pass));
      }
    }
    if (first != nullptr) refuse(first->cell, "deadlock: waits for " + missing(first->pass) + others);
  }

  void take() {
    for (const auto& steps : steps_) {
      std::vector<StagePass>& passes = file_.ranks.emplace_back();
      for (const Step& step : steps) passes.push_back(step.pass);
    }
  }

  ScheduleFile& file_;
  std::vector<std::vector<Step>> steps_;  // by rank
  int stages_ = 0;
  const Cell* last_stage_ = nullptr;  // the first cell that names the last stage
};

}  // namespace

std::string to_string(const StagePass& pass) {
  return std::to_string(pass.stage) + letter(pass.kind) + std::to_string(pass.micro_batch);
}

std::shared_ptr<const ScheduleFile> parse_schedule(std::string text, const std::string& path, std::string& problem) {
  auto file = std::make_shared<ScheduleFile>();
  file->path = path;
  file->text = std::move(text);
  try {
    Parser(*file).run();
  } catch (const Refusal& refusal) {
    problem = "cannot run: " + refusal.words;
    return nullptr;
  }
  return file;
}

std::shared_ptr<const ScheduleFile> read_schedule_file(const std::string& path, std::string& problem) {
  // Only a plain file has a certain end.
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    problem = std::string("cannot be read: ") + std::strerror(errno);
    return nullptr;
  }
  if (!S_ISREG(status.st_mode)) {
    problem = "is not a file";
    return nullptr;
  }
  if (static_cast<std::uint64_t>(status.st_size) > most_schedule_bytes) {
    problem = fmt::format("has {} bytes, more than {} MiB", status.st_size, most_schedule_bytes >> 20);
    return nullptr;
  }
  std::ifstream stream(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  stream.read(text.data(), status.st_size);
  if (!stream) {
    problem = "cannot be read";
    return nullptr;
  }
  return parse_schedule(std::move(text), path, problem);
}

std::string fingerprint(const ScheduleFile& file) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : schedule_csv(file.ranks)) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", hash);
}

std::string schedule_csv(const std::vector<std::vector<StagePass>>& ranks) {
  std::string text;
  for (const std::vector<StagePass>& passes : ranks) {
    for (std::size_t n = 0; n < passes.size(); ++n) {
      const bool pair = n + 1 < passes.size() && passes[n + 1].braided &&
                        (passes[n].kind == PassKind::forward) != (passes[n + 1].kind == PassKind::forward) &&
                        passes[n].kind != PassKind::backward_weight && passes[n + 1].kind != PassKind::backward_weight;
      text += n == 0 ? "" : ",";
      text += pair ? fmt::format("({};{})OVERLAP_F_B", to_string(passes[n]), to_string(passes[n + 1])) : to_string(passes[n]);
      if (pair) ++n;
    }
    text += '\n';
  }
  return text;
}

}  // namespace plait
