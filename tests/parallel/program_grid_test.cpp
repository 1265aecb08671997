#include "parallel/program/program_grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "parallel/program_sets.h"
#include "parallel/schedule/schedule_timeline.h"
#include "parallel/schedule_kinds.h"

namespace plait::parallel {
namespace {

using testing::HasSubstr;
using testing::Not;

int find(const ProgramSet& set, int rank, InstructionKind kind, int micro_batch) {
  const auto& list = set.program(rank).instructions;
  const auto it = std::find_if(list.begin(), list.end(),
                               [&](const Instruction& i) { return i.kind == kind && i.micro_batch == micro_batch; });
  return static_cast<int>(it - list.begin());
}

TEST(ProgramGrid, Cells) {
  EXPECT_EQ(draw_programs(make_set({.schedule = {ScheduleKind::one_f_one_b, 2, 1, 3}, .tied = false})),
            "rank 0  F0 F1 .. .. B0 -- F2 B1 -- .. B2 -- U\n"
            "rank 1  .. F0 B0 -- F1 B1 -- F2 B2 -- U  .. ..\n");
  EXPECT_EQ(draw_programs(make_set({.schedule = {ScheduleKind::zb_h1, 2, 1, 2}, .tied = false, .even = true})),
            "rank 0  F0 F1 .. B0 W0 B1 W1 U\n"
            "rank 1  .. F0 B0 F1 B1 W0 W1 U\n");
  EXPECT_EQ(draw_programs(make_set({.schedule = {ScheduleKind::interleaved, 2, 2, 2}})),
            "rank 0  F0a F1a F0b F1b ... ... B0b --- ... B1b --- B0a --- B1a --- U\n"
            "rank 1  ... F0a F1a F0b B0b --- F1b B1b --- B0a --- B1a --- ... ... U\n");
  EXPECT_EQ(draw_programs(make_set({.schedule = {ScheduleKind::one_f_one_b, 2, 1, 3}}, false)),
            "rank 0  F0 ..\nrank 1  .. F0\n");
}

// If messages take no time, programs lose none to what schedules leave out: slots, messages that wait for their other end, and
// receives that come one pass ahead.
TEST(ProgramGrid, ShowsTheSchedule) {
  for (const ScheduleKind kind : built_in_kinds()) {
    for (const int ranks : {2, 4}) {
      for (const int micro_batches : {4, 8, 16}) {
        const SetSpec spec{.schedule = {kind, ranks, some_virtual_stages(kind), micro_batches}, .tied = false, .even = true};
        std::istringstream scheduled(draw(make_schedule(spec.schedule))), drawn(draw_programs(make_set(spec)));
        for (std::string line, expected; std::getline(scheduled, expected);) {
          std::getline(drawn, line);
          const auto passes = [](const std::string& text) {
            return std::regex_replace(text, std::regex("^rank .  | U[ .]*$|[ .]*$"), "");
          };
          EXPECT_EQ(passes(line), passes(expected)) << spec.name();
        }
      }
    }
  }
}

TEST(ProgramGrid, MessagesArriveWhenTheyCanBeUsed) {
  EXPECT_EQ(draw_programs(make_set({.schedule = {ScheduleKind::one_f_one_b, 2, 1, 3}, .tied = false}), {.messages = true}),
            "rank 0  F0 F1 .. .. B0 -- F2 B1 -- .. B2 -- U\n"
            "           >0 >1             >2\n"
            "rank 1  .. F0 B0 -- F1 B1 -- F2 B2 -- U  .. ..\n"
            "                    <0       <1       <2\n");
}

TEST(ProgramGrid, ExchangesSayWhetherAnythingIsComputedMeanwhile) {
  const auto drawn = [](SetSpec spec) {
    spec.schedule.micro_batches = 2, spec.tensor = 2, spec.even = true;
    return draw_programs(make_set(spec), {.exchanges = true});
  };
  // Backward exchanges have the weight part of the segment above beside them, except the exchange of what comes back to a
  // stage.
  EXPECT_EQ(drawn({.schedule = {ScheduleKind::one_f_one_b, 2, 1}}),
            "rank 0  F0   F1   .... .... B0   ---- .... B1   ---- U\n"
            "        x3!3 x3!3           x3!1           x3\n"
            "rank 1  .... F0   B0   ---- F1   B1   ---- .... .... U\n"
            "             x4!4 x3        x4!4 x3\n");
  EXPECT_EQ(drawn({.schedule = {ScheduleKind::one_f_one_b, 2, 1}, .overlap = false}),
            "rank 0  F0   F1   .... .... B0   ---- .... B1   ---- U\n"
            "        x3!3 x3!3           x3!3           x3!3\n"
            "rank 1  .... F0   B0   ---- F1   B1   ---- .... .... U\n"
            "             x4!4 x3!3      x4!4 x3!3\n");
  // A forward is beside a backward, and the halves of a micro-batch are beside each other.
  EXPECT_EQ(drawn({.schedule = {ScheduleKind::one_f_one_b, 1, 1}}),
            "rank 0  F0   B0   ---- &F1  B1   ---- U\n"
            "        x4!4 x3        x4   x3\n");
  EXPECT_EQ(drawn({.schedule = {ScheduleKind::one_f_one_b, 1, 1}, .halves = true}),
            "rank 0  F0   &F1  B0   ---- B1   ---- F2   &F3  B2   ---- B3   ---- U\n"
            "        x4   x4!1 x3        x3        x4   x4!1 x3        x3\n");
}

TEST(ProgramGrid, GoesOnBelowWhereLinesAreTooLong) {
  const std::string text = draw_programs(make_set({.schedule = {ScheduleKind::one_f_one_b, 4, 1, 16}}), {.width = 130});
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 130u);
  EXPECT_THAT(text, HasSubstr("\n\nfrom column 30\nrank 0  "));
  EXPECT_EQ(draw_programs(make_set({.schedule = {ScheduleKind::one_f_one_b, 1, 1, 1}}), {.width = 1}),
            "rank 0  F0\n\nfrom column 1\nrank 0  B0\n\nfrom column 2\nrank 0  --\n\nfrom column 3\nrank 0  U\n");
}

TEST(ProgramGrid, Marks) {
  const ProgramSet set = make_set({.schedule = {ScheduleKind::one_f_one_b, 2, 1, 3}, .data = 8, .tied = false});
  const auto marked = [&](InstructionKind kind, int micro_batch) {
    const int rank = set.layout.rank({{Axis::pipeline, 1}, {Axis::data, 5}, {Axis::tensor, 0}});
    return draw_programs(set, {.marked_rank = rank, .marked_instruction = find(set, rank, kind, micro_batch)});
  };
  EXPECT_THAT(marked(InstructionKind::forward, 1), HasSubstr("--[F1]B1"));
  EXPECT_THAT(marked(InstructionKind::backward_weight, 1), HasSubstr("F1[B1 --]F2"));
  EXPECT_THAT(marked(InstructionKind::receive_activation, 2), HasSubstr("--[F2]B2"));
  EXPECT_THAT(marked(InstructionKind::send_gradient, 2), HasSubstr("F2[B2 --]U"));
  EXPECT_THAT(marked(InstructionKind::update, -1), HasSubstr("--[U ]"));
  EXPECT_THAT(draw_programs(set, {.marked_rank = 0}), HasSubstr("rank 0!"));
}

TEST(ProgramGrid, WhatADeadlockKeepsFromRunningComesAfterABar) {
  ProgramSet set = make_set({.schedule = {ScheduleKind::one_f_one_b, 2, 1, 2}, .tied = false});
  EXPECT_THAT(draw_programs(set), Not(HasSubstr("|")));
  // Rank 0 waits for the first gradient before it goes on, rank 1 for the second activation.
  const auto add_wait = [&](int rank, InstructionKind kind, int micro_batch, InstructionKind awaited, int awaited_micro_batch) {
    set.programs[static_cast<std::size_t>(rank)]
        .program.instructions[static_cast<std::size_t>(find(set, rank, kind, micro_batch))]
        .waits.push_back(find(set, rank, awaited, awaited_micro_batch));
  };
  add_wait(0, InstructionKind::forward, 1, InstructionKind::receive_gradient, 0);
  add_wait(1, InstructionKind::backward_input, 0, InstructionKind::receive_activation, 1);
  EXPECT_EQ(draw_programs(set),
            "rank 0  F0 ..|F1 B0 -- B1 -- U\n"
            "rank 1  .. F0|B0 -- F1 B1 -- U\n");
}

TEST(ProgramGrid, ColourOnlyIfAsked) {
  const ProgramSet set = make_set({.schedule = {ScheduleKind::zb_h1, 2, 1, 2}});
  const std::string plain = draw_programs(set, {.messages = true}),
                    coloured = draw_programs(set, {.colour = true, .messages = true});
  EXPECT_THAT(plain, Not(HasSubstr("\033")));
  EXPECT_THAT(coloured, HasSubstr("\033[34mF0\033[0m"));
  EXPECT_EQ(std::regex_replace(coloured, std::regex("\033\\[[0-9;]*m"), ""), plain);
}

}  // namespace
}  // namespace plait::parallel
