#include "parallel/program/program_grid.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "parallel/program/exchanges.h"
#include "parallel/program/program_timeline.h"
#include "parallel/schedule/schedule.h"

namespace plait::parallel {
namespace {

// Some instructions of a program that the picture shows as one pass.
struct DrawnPass {
  char letter = 'F';
  int chunk = -1, micro_batch = -1;
  int first = 0, last = 0;  // instructions
  int units = 1;
  int exchanges = 0, exposed_exchanges = 0;
};

// (chunk, micro-batch)
using WhichBatch = std::pair<int, int>;
WhichBatch batch_of(const Instruction& i) { return {i.chunk, i.micro_batch}; }

bool is_weight_pass(const Program& program, const Instruction& i) {
  // The head's weight part follows its input part in every schedule.
  return i.kind == InstructionKind::backward_weight && has_output(program.kind(i.segment));
}

// True if some weight part is computed later than right after the input part of its segment.
bool splits_backward(const Program& program) {
  std::map<WhichBatch, const Instruction*> previous;  // of a segment
  for (const Instruction& i : program.instructions) {
    if (!computes_segment(i.kind)) continue;
    const Instruction*& before = previous[batch_of(i)];
    const bool at_once = before != nullptr && before->kind == InstructionKind::backward_input && before->segment == i.segment;
    if (is_weight_pass(program, i) && has_norm(program.kind(i.segment)) && !at_once) return true;
    before = &i;
  }
  return false;
}

// The backwards whose weight parts come between their input parts: some programs have whole backwards beside split ones.
std::set<WhichBatch> whole_backwards(const Program& program) {
  std::set<WhichBatch> weighed, whole;
  for (const Instruction& i : program.instructions) {
    if (computes_segment(i.kind) && is_weight_pass(program, i)) weighed.insert(batch_of(i));
    if (i.kind == InstructionKind::backward_input && weighed.contains(batch_of(i))) whole.insert(batch_of(i));
  }
  return whole;
}

// The passes to draw. `split`: some backwards of the programs are split.
std::vector<DrawnPass> passes_of(const Program& program, bool split) {
  const std::set<WhichBatch> whole = whole_backwards(program);
  std::vector<DrawnPass> passes;
  std::map<std::tuple<char, int, int>, std::size_t> known;
  for (int n = 0; n < static_cast<int>(program.instructions.size()); ++n) {
    const Instruction& i = program.at(n);
    if (i.kind == InstructionKind::gradient_norm) passes.push_back({.letter = 'U', .first = n, .last = n});
    if (!computes_segment(i.kind)) continue;
    const bool forward = i.kind == InstructionKind::forward, is_whole = !split || whole.contains(batch_of(i));
    const char letter = forward ? 'F' : !is_whole && is_weight_pass(program, i) ? 'W' : 'B';
    const auto [it, fresh] = known.try_emplace({letter, i.chunk, i.micro_batch}, passes.size());
    if (fresh) passes.push_back({letter, i.chunk, i.micro_batch, n, n, forward || !is_whole ? 1 : 2});
    passes[it->second].last = n;
  }
  for (const Exchange& e : exchanges_of(program)) {
    const Instruction& i = program.at(first_collective(program, e));
    DrawnPass& pass = passes[known.at({is_in_backward(i) ? 'B' : 'F', i.chunk, i.micro_batch})];
    ++pass.exchanges;
    if (i.beside == 0) ++pass.exposed_exchanges;
  }
  return passes;
}

// The letters of a chunk; "" if there is only one chunk.
std::string chunk_suffix(int chunk, std::size_t chunks) { return chunks > 1 ? chunk_letters(chunk) : ""; }

std::string label(const DrawnPass& pass, std::size_t chunks) {
  return pass.letter == 'U' ? "U" : pass.letter + std::to_string(pass.micro_batch) + chunk_suffix(pass.chunk, chunks);
}

const char* colour_of(char letter) {
  switch (letter) {
    case 'F': return "\033[34m";
    case 'B': return "\033[32m";
    case 'W': return "\033[33m";
    case 'U': return "\033[35m";
    default: return "\033[2m";
  }
}

struct Cell {
  std::string text;
  char letter = '.';
};

// One line of the picture.
struct Line {
  std::string name;
  std::vector<Cell> cells;
  int mark_begin = -1, mark_end = -1;  // cells in brackets
};

class Grid {
 public:
  Grid(const ProgramSet& set, const GridOptions& options) : set_(condensed(set)), options_(options) {
    if (options.marked_rank >= 0) {
      Coordinates c = set.layout.coordinates(options.marked_rank);
      // condensed() keeps only some of the ranks that run the same program.
      for (const Axis axis : set_.layout.axes()) c[axis] = std::min(c[axis], set_.layout.size(axis) - 1);
      options_.marked_rank = set_.layout.rank(c);
      column_ = set_.layout.moved(options_.marked_rank, stage_axis, 0);
    }
    const bool split = std::any_of(set_.programs.begin(), set_.programs.end(),
                                   [](const RankProgram& p) { return splits_backward(p.program); });
    for (const RankProgram& p : set_.programs) passes_.push_back(passes_of(p.program, split));
    costs_.resize(set_.programs.size());
    for (std::size_t p = 0; p < set_.programs.size(); ++p) {
      // A pass's first instruction takes all of its time, so whatever the pass yields is there at its end.
      costs_[p].resize(set_.programs[p].program.instructions.size());
      for (const DrawnPass& pass : passes_[p]) costs_[p][static_cast<std::size_t>(pass.first)] = pass.units;
    }
    timeline_ =
        simulate(set_, 1, [this](int rank, int index) { return costs_[program_of(rank)][static_cast<std::size_t>(index)]; });
    bar_ = static_cast<int>(timeline_.end);
  }

  std::string draw() {
    for (int pipeline = 0; pipeline < set_.layout.size(stage_axis); ++pipeline) {
      lines_.push_back(passes_line(pipeline));
      if (options_.messages) lines_.push_back(messages_line(pipeline));
      if (options_.exchanges) lines_.push_back(exchanges_line(pipeline));
    }
    std::size_t cells = 0, cell_width = 2, name_width = 0;
    for (const Line& line : lines_) {
      cells = std::max(cells, line.cells.size());
      name_width = std::max(name_width, line.name.size());
      for (const Cell& cell : line.cells) cell_width = std::max(cell_width, cell.text.size());
    }
    const std::size_t room = static_cast<std::size_t>(options_.width), needed = name_width + 3 + cell_width;
    const std::size_t per_band = room < needed ? (room == 0 ? cells : 1) : 1 + (room - needed) / (cell_width + 1);
    std::string text;
    for (std::size_t from = 0; from < cells; from += per_band) {
      if (from > 0) text += "\nfrom column " + std::to_string(from) + '\n';
      for (const Line& line : lines_) text += draw(line, from, std::min(cells, from + per_band), name_width, cell_width);
    }
    return text;
  }

 private:
  std::size_t program_of(int rank) const { return static_cast<std::size_t>(set_.program_of[static_cast<std::size_t>(rank)]); }
  int rank_of(int pipeline) const { return set_.layout.moved(column_, stage_axis, pipeline); }

  static void put(Line& line, int at, const Cell& cell) {
    if (line.cells.size() <= static_cast<std::size_t>(at)) line.cells.resize(static_cast<std::size_t>(at) + 1);
    line.cells[static_cast<std::size_t>(at)] = cell;
  }

  Line passes_line(int pipeline) const {
    const int rank = rank_of(pipeline);
    const Program& program = set_.program(rank);
    const std::vector<DrawnPass>& passes = passes_[program_of(rank)];
    Line line{"rank " + std::to_string(pipeline), std::vector<Cell>(static_cast<std::size_t>(bar_)), -1, -1};
    const bool marked_rank = rank == options_.marked_rank;
    const int marked = marked_rank ? marked_pass(program, passes) : -1;
    if (marked_rank && marked < 0) line.name += '!';
    int at_end = bar_;
    for (int p = 0; p < static_cast<int>(passes.size()); ++p) {
      const DrawnPass& pass = passes[static_cast<std::size_t>(p)];
      const auto& run = timeline_.ranks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(pass.first)];
      const std::string braid = p > 0 && passes[static_cast<std::size_t>(p) - 1].last > pass.first ? "&" : "";
      const int begin = run ? static_cast<int>(run->begin) : at_end;
      for (int unit = 0; unit < pass.units; ++unit) {
        put(line, begin + unit, {unit == 0 ? braid + label(pass, program.chunks.size()) : "--", pass.letter});
      }
      if (p == marked) line.mark_begin = begin, line.mark_end = begin + pass.units;
      if (!run) at_end += pass.units;
    }
    return line;
  }

  // The pass to which the marked instruction belongs, or which its message or buffer serves; -1: none.
  int marked_pass(const Program& program, const std::vector<DrawnPass>& passes) const {
    if (options_.marked_instruction < 0) return -1;
    const Instruction& i = program.at(options_.marked_instruction);
    const bool activation = i.kind == InstructionKind::receive_activation || i.kind == InstructionKind::send_activation;
    const bool message = is_send(i.kind) || is_receive(i.kind);
    int before = passes.empty() ? -1 : 0;
    for (int p = 0; p < static_cast<int>(passes.size()); ++p) {
      const DrawnPass& pass = passes[static_cast<std::size_t>(p)];
      const bool same = pass.chunk == i.chunk && pass.micro_batch == i.micro_batch;
      if (message && same && (pass.letter == 'F') == activation) return p;
      if (pass.first <= options_.marked_instruction) before = p;
    }
    return before;
  }

  Line messages_line(int pipeline) const {
    const int rank = rank_of(pipeline);
    const Program& program = set_.program(rank);
    Line line{"", std::vector<Cell>(static_cast<std::size_t>(bar_)), -1, -1};
    for (int n = 0; n < static_cast<int>(program.instructions.size()); ++n) {
      const Instruction& i = program.at(n);
      const auto& run = timeline_.ranks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(n)];
      if (!run || !is_send(i.kind)) continue;
      const std::string text = (i.kind == InstructionKind::send_activation ? ">" : "<") + std::to_string(i.micro_batch) +
                               chunk_suffix(i.chunk, program.chunks.size());
      const auto at = static_cast<std::size_t>(run->end);
      const std::string before = at < line.cells.size() ? line.cells[at].text : "";
      put(line, static_cast<int>(at), {before + text, '>'});
    }
    return line;
  }

  Line exchanges_line(int pipeline) const {
    const int rank = rank_of(pipeline);
    Line line{"", std::vector<Cell>(static_cast<std::size_t>(bar_)), -1, -1};
    for (const DrawnPass& pass : passes_[program_of(rank)]) {
      const auto& run = timeline_.ranks[static_cast<std::size_t>(rank)][static_cast<std::size_t>(pass.first)];
      if (!run || pass.exchanges == 0) continue;
      const std::string exposed = pass.exposed_exchanges > 0 ? "!" + std::to_string(pass.exposed_exchanges) : "";
      put(line, static_cast<int>(run->begin), {"x" + std::to_string(pass.exchanges) + exposed, 'x'});
    }
    return line;
  }

  std::string draw(const Line& line, std::size_t from, std::size_t to, std::size_t name_width, std::size_t cell_width) const {
    const bool idle = !line.name.empty();
    std::string text = line.name + std::string(name_width + 1 - line.name.size(), ' ');
    for (std::size_t at = from; at <= to; ++at) {
      const int cell = static_cast<int>(at);
      const bool barred = cell == bar_ && !timeline_.deadlock.empty();
      text += cell == line.mark_begin ? '[' : cell == line.mark_end ? ']' : barred ? '|' : ' ';
      if (at == to) break;
      const Cell content = at < line.cells.size() ? line.cells[at] : Cell{};
      std::string shown = content.text;
      if (shown.empty() && idle && cell < bar_) shown.assign(cell_width, '.');
      if (shown == "--") shown.assign(cell_width, '-');
      const std::string padding(cell_width - shown.size(), ' ');
      const bool marked = cell >= line.mark_begin && cell < line.mark_end;
      if (options_.colour && !shown.empty()) shown = (marked ? "\033[1;31m" : colour_of(content.letter)) + shown + "\033[0m";
      text += shown + padding;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text + '\n';
  }

  ProgramSet set_;
  GridOptions options_;
  int column_ = 0;                              // rank of pipeline coordinate 0
  std::vector<std::vector<DrawnPass>> passes_;  // by program
  std::vector<std::vector<int>> costs_;         // by program, instruction
  ProgramTimeline timeline_;
  int bar_ = 0;  // cell where the simulation ends
  std::vector<Line> lines_;
};

}  // namespace

std::string draw_programs(const ProgramSet& set, const GridOptions& options) { return Grid(set, options).draw(); }

}  // namespace plait::parallel
