#include "parallel/schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iomanip>
#include <sstream>

#include "core/error.h"
#include "core/error_of.h"
#include "parallel/schedule/schedule_timeline.h"
#include "parallel/schedule_kinds.h"
#include "test_paths.h"

namespace plait::parallel {
namespace {

std::string to_string(const ScheduleSpec& spec) {
  return plait::to_string(spec.kind) + ", " + std::to_string(spec.ranks) + " ranks, " + std::to_string(spec.virtual_stages) +
         " virtual stages, " + std::to_string(spec.micro_batches) + " micro-batches";
}

// Calls `body` for every size that a schedule exists for, with ranks 1..8 x virtual stages 1..4 x micro-batches 1..32; for
// fewer sizes of planned ones, which take longer to make.
void for_each_schedule(const std::function<void(const ScheduleSpec&, const Schedule&)>& body) {
  for (const ScheduleKind kind : built_in_kinds()) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (int virtual_stages = 1; virtual_stages <= 4; ++virtual_stages) {
        if (virtual_stages > chunks_of(kind, 4)) continue;
        const bool is_planned = kind == ScheduleKind::planned;
        if (is_planned && (ranks > 5 || virtual_stages > 3)) continue;
        for (int micro_batches = 1; micro_batches <= (is_planned ? 10 : 32); ++micro_batches) {
          if (schedule_row(kind).in_rounds && virtual_stages > 1 && micro_batches % ranks != 0) continue;
          const ScheduleSpec spec{kind, ranks, virtual_stages, micro_batches};
          SCOPED_TRACE(to_string(spec));
          ASSERT_NO_THROW(body(spec, make_schedule(spec)));
          if (testing::Test::HasFailure()) return;  // one report is enough
        }
      }
    }
  }
}

std::string problem_of(const ScheduleSpec& spec) {
  return error_of<ConfigError>([&] { return make_schedule(spec); });
}

// Costs of one of a rank's `chunks` stages, given the costs of all of them.
PassCosts per_chunk(PassCosts costs, int chunks) {
  costs.forward /= chunks, costs.backward_input /= chunks, costs.backward_weight /= chunks;
  return costs;
}

// The idle time of each rank in a schedule whose ranks share these costs for a micro-batch among their chunks.
double idle(const ScheduleSpec& spec, const PassCosts& costs = {}) {
  const Schedule s = make_schedule(spec);
  return simulate(s, per_chunk(costs, s.stages.chunks(0))).end -
         spec.micro_batches * (costs.forward + costs.backward_input + costs.backward_weight);
}

TEST(Schedule, StagesAreDealtToRanksAndBack) {
  for_each_schedule([](const ScheduleSpec&, const Schedule& s) {
    const StageMap& map = s.stages;
    for (int stage = 0; stage < map.count(); ++stage) {
      EXPECT_EQ(map.stage(map.rank_of(stage), map.chunk_of(stage)), stage);
      EXPECT_LT(map.rank_of(stage), map.ranks());
      EXPECT_LT(map.chunk_of(stage), map.chunks(map.rank_of(stage)));
    }
  });
  EXPECT_EQ(make_schedule({ScheduleKind::interleaved, 4, 2, 4}).stages.stage(0, 1), 4);
  EXPECT_EQ(make_schedule({ScheduleKind::zb_v, 4, 1, 4}).stages.stage(0, 1), 7);
  EXPECT_EQ(make_schedule({ScheduleKind::zb_v, 4, 1, 4}).stages.rank_of(4), 3);
}

TEST(Schedule, EveryChunkComputesEveryMicroBatchOnceAndInAscendingOrder) {
  for_each_schedule([](const ScheduleSpec& spec, const Schedule& s) {
    const int chunks = chunks_of(spec.kind, spec.virtual_stages);
    EXPECT_EQ(s.stages.chunks(0), chunks);
    ASSERT_EQ(s.passes.size(), static_cast<std::size_t>(spec.ranks));
    for (const std::vector<Pass>& passes : s.passes) {
      // [chunk][kind]: the number of passes of this kind.
      std::vector<std::array<int, 4>> done(static_cast<std::size_t>(chunks), std::array<int, 4>{});
      for (const Pass& pass : passes) {
        ASSERT_THAT(pass.chunk, testing::AllOf(testing::Ge(0), testing::Lt(chunks)));
        auto& [forward, backward, backward_input, backward_weight] = done[static_cast<std::size_t>(pass.chunk)];
        // A whole backward is both parts.
        if (pass.kind == PassKind::forward) {
          ASSERT_EQ(pass.micro_batch, forward);
        } else {
          if (pass.kind != PassKind::backward_weight) {
            ASSERT_EQ(pass.micro_batch, backward + backward_input);
          }
          if (pass.kind != PassKind::backward_input) {
            ASSERT_EQ(pass.micro_batch, backward + backward_weight);
          }
        }
        ++done[static_cast<std::size_t>(pass.chunk)][static_cast<std::size_t>(pass.kind)];
        ASSERT_LE(backward + backward_input, forward);
        ASSERT_LE(backward_weight, backward_input);
      }
      for (const auto& counts : done) {
        int whole = schedule_row(spec.kind).splits_backward ? 0 : s.micro_batches;
        if (spec.kind == ScheduleKind::planned) whole = counts[static_cast<std::size_t>(PassKind::backward)];
        const int split = s.micro_batches - whole;
        ASSERT_THAT(counts, testing::ElementsAre(s.micro_batches, whole, split, split));
      }
    }
  });
}

TEST(Schedule, RunsWhateverPassesAndMessagesCost) {
  for_each_schedule([](const ScheduleSpec&, const Schedule& s) {
    for (const PassCosts& costs : {PassCosts{}, PassCosts{1, 1, 1, 0.25}, PassCosts{3, 5, 2, 40}, PassCosts{0, 0, 0, 0}}) {
      const Timeline timeline = simulate(s, costs);
      for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
        ASSERT_EQ(timeline.ranks[rank].size(), s.passes[rank].size());
        for (std::size_t i = 1; i < timeline.ranks[rank].size(); ++i) {
          ASSERT_GE(timeline.ranks[rank][i].begin, timeline.ranks[rank][i - 1].end);
        }
      }
    }
  });
}

// The load if all passes cost the same.
ScheduleLoad load_of(const Schedule& s) {
  const double chunks = s.stages.chunks(0);
  return {.ranks = static_cast<double>(s.ranks()),
          .chunks = chunks,
          .micro_batches = static_cast<double>(s.micro_batches),
          .forward = chunks,
          .backward_input = chunks,
          .backward_weight = chunks};
}

TEST(Schedule, ActivationsInFlight) {
  for_each_schedule([](const ScheduleSpec& spec, const Schedule& s) {
    const int ranks = s.ranks(), chunks = s.stages.chunks(0);
    for (int rank = 0; rank < ranks; ++rank) {
      const int peak = peak_in_flight(s, rank), all = chunks * s.micro_batches, to_last = ranks - 1 - rank;
      if (spec.kind == ScheduleKind::gpipe) {
        EXPECT_EQ(peak, all);
      } else if (spec.kind == ScheduleKind::one_f_one_b || (spec.kind == ScheduleKind::interleaved && chunks == 1)) {
        EXPECT_EQ(peak, std::min(all, to_last + 1));
      } else if (spec.kind == ScheduleKind::interleaved) {
        EXPECT_EQ(peak, std::min(all, (chunks - 1) * ranks + 2 * to_last + 1));
      } else {
        EXPECT_LE(peak, chunks * schedule_row(spec.kind).in_flight(load_of(s)));
      }
    }
  });
}

// The papers' formulas, for passes of equal cost.
TEST(Schedule, BubbleFractions) {
  for_each_schedule([](const ScheduleSpec& spec, const Schedule& s) {
    const double p = s.ranks(), m = s.micro_batches, v = s.stages.chunks(0);
    const double bubble = simulate(s).bubble_fraction();
    if (spec.kind == ScheduleKind::gpipe || spec.kind == ScheduleKind::one_f_one_b) {
      EXPECT_NEAR(bubble, (p - 1) / (m + p - 1), 1e-12);
    } else if (spec.kind == ScheduleKind::interleaved) {
      EXPECT_NEAR(bubble, (p - 1) / (v * m + p - 1), 1e-12);
    } else if (!schedule_row(spec.kind).splits_backward) {
      const double idle = simulate(s).end - m * load_of(s).whole();
      if (m >= p) {
        EXPECT_NEAR(idle, schedule_row(spec.kind).bubble(load_of(s)), 1e-9);
      }
    } else if (spec.kind == ScheduleKind::planned) {
      // It is like the next one with at most two stages per rank; with more it is no worse than interleaved.
      const double least = (p - 1) / (3 * v * m + p - 1);
      if (m >= p) {
        EXPECT_GE(bubble, least - 1e-12);
        EXPECT_LE(bubble, (v <= 2 ? least : (p - 1) / (v * m + p - 1)) + 1e-12);
      }
    } else if (spec.micro_batches >= spec.ranks) {
      // zb-h1: (p - 1) (F + B - W) a rank. zb-v: no schedule does better, since the last rank has its first input after p - 1
      // forwards; counted from its own first pass to its own last, as Qi et al. do, it has no bubble (next test).
      EXPECT_NEAR(bubble, (p - 1) / (3 * v * m + p - 1), 1e-12);
    } else {
      EXPECT_LE(bubble, (p - 1) / (m + p - 1) + 1e-12);  // never worse than 1F1B
    }
  });
}

TEST(Schedule, ZeroBubbleVNeverWaitsOnceItHasBegun) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (int micro_batches = 2 * ranks - 1; micro_batches <= 32; ++micro_batches) {
      SCOPED_TRACE(to_string({ScheduleKind::zb_v, ranks, 2, micro_batches}));
      for (const auto& passes : simulate(make_schedule({ScheduleKind::zb_v, ranks, 2, micro_batches})).ranks) {
        EXPECT_EQ(passes.back().end - passes.front().begin, 6 * micro_batches);
      }
    }
  }
}

// The costs have w <= f <= b, as in a transformer: attention has a dearer backward than forward, and no weights.
TEST(Schedule, EachScheduleIdlesLessThanTheOneItImprovesOn) {
  for (const PassCosts& costs : {PassCosts{1, 1, 1}, PassCosts{2, 2, 1}, PassCosts{4, 4, 3}, PassCosts{6, 8, 4}}) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
      for (int micro_batches = 2 * ranks; micro_batches <= 32; micro_batches += ranks) {
        const auto of = [&](ScheduleKind kind, int virtual_stages = 1) {
          return idle({kind, ranks, virtual_stages, micro_batches}, costs);
        };
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(micro_batches) + " micro-batches");
        const double f = costs.forward, b = costs.backward_input, w = costs.backward_weight;
        EXPECT_NEAR(of(ScheduleKind::gpipe), (ranks - 1) * (f + b + w), 1e-9);
        EXPECT_NEAR(of(ScheduleKind::one_f_one_b), (ranks - 1) * (f + b + w), 1e-9);
        EXPECT_NEAR(of(ScheduleKind::interleaved, 2), (ranks - 1) * (f + b + w) / 2, 1e-9);
        EXPECT_NEAR(of(ScheduleKind::zb_h1), (ranks - 1) * (f + b - w), 1e-9);
        EXPECT_NEAR(of(ScheduleKind::zb_v), (ranks - 1) * b / 2, 1e-9);
        EXPECT_LT(of(ScheduleKind::zb_h1), of(ScheduleKind::one_f_one_b));
        EXPECT_LT(of(ScheduleKind::zb_v), of(ScheduleKind::zb_h1));
      }
    }
  }
}

TEST(Schedule, RefusalsNameTheKeyAndTheRemedy) {
  using testing::AllOf;
  using testing::HasSubstr;
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
      if (micro_batches % ranks == 0) continue;
      const int enough = (micro_batches + ranks - 1) / ranks * ranks;
      EXPECT_THAT(problem_of({ScheduleKind::interleaved, ranks, 2, micro_batches}),
                  AllOf(HasSubstr("parallel.schedule=interleaved"), HasSubstr("train.global_batch"),
                        HasSubstr(std::to_string(enough) + " micro-batches"), HasSubstr("1f1b")));
    }
  }
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::zb_h1}) {
    EXPECT_THAT(problem_of({kind, 4, 2, 8}), AllOf(HasSubstr("parallel.virtual_stages=2"), HasSubstr("interleaved")));
  }
  EXPECT_THAT(problem_of({ScheduleKind::zb_v, 4, 3, 8}),
              AllOf(HasSubstr("parallel.virtual_stages=3"), HasSubstr("must be 2 with parallel.schedule=zb-v")));
  EXPECT_THAT(
      problem_of({ScheduleKind::one_f_one_b, 0, 0, 0}),
      AllOf(HasSubstr("parallel.pipeline=0"), HasSubstr("parallel.virtual_stages=0"), HasSubstr("train.global_batch=0")));
}

constexpr PassKind F = PassKind::forward, B = PassKind::backward, I = PassKind::backward_input, W = PassKind::backward_weight;

Schedule by_hand(std::vector<std::vector<Pass>> passes, int chunks = 1, int micro_batches = 1) {
  const auto ranks = static_cast<int>(passes.size());
  return {"by hand", micro_batches, StageMap(StagePlacement::loop, ranks, chunks), std::move(passes)};
}

TEST(Simulate, PassesBeginWhenTheirInputsArrive) {
  const Timeline timeline = simulate(by_hand({{{F, 0, 0}, {I, 0, 0}, {W, 0, 0}}, {{F, 0, 0}, {B, 0, 0}}}), {2, 3, 4, 0.5});
  ASSERT_EQ(timeline.ranks[0].size(), 3u);
  EXPECT_EQ(timeline.ranks[1][0].begin, 2.5);   // after rank 0's forward and the message
  EXPECT_EQ(timeline.ranks[1][1].begin, 4.5);   // own output: no message
  EXPECT_EQ(timeline.ranks[1][1].end, 11.5);    // both parts
  EXPECT_EQ(timeline.ranks[0][1].begin, 12.0);  // and the message back
  EXPECT_EQ(timeline.ranks[0][2].begin, 15.0);
  EXPECT_EQ(timeline.end, 19.0);
  EXPECT_NEAR(timeline.bubble_fraction(), 1 - 18 / 38.0, 1e-12);
  EXPECT_EQ(Timeline{}.bubble_fraction(), 0);
}

TEST(Simulate, NoMessageBetweenStagesOfOneRank) {
  EXPECT_EQ(simulate(by_hand({{{F, 0, 0}, {F, 1, 0}, {B, 1, 0}, {B, 0, 0}}}, 2), {1, 1, 1, 100}).end, 6);
}

TEST(Simulate, RefusesWhatCannotRun) {
  const auto message = [](const Schedule& schedule) { return error_of<InternalError>([&] { return simulate(schedule); }); };
  using testing::HasSubstr;
  EXPECT_EQ(message(by_hand({{{F, 0, 0}, {B, 0, 0}}})), nothing_thrown);
  EXPECT_THAT(message(by_hand({{{B, 0, 0}, {F, 0, 0}}})), HasSubstr("deadlock, rank 0 at B0"));
  EXPECT_THAT(message(by_hand({{{F, 0, 0}, {W, 0, 0}, {I, 0, 0}}})), HasSubstr("deadlock, rank 0 at W0"));
  EXPECT_THAT(message(by_hand({{{F, 0, 0}, {B, 0, 0}}, {{F, 0, 0}}})), HasSubstr("deadlock, rank 0 at B0"));
  // Rank 1 holds back the gradient that rank 0 waits for until it has an output that rank 0 makes afterwards.
  EXPECT_THAT(
      message(by_hand({{{F, 0, 0}, {B, 0, 0}, {F, 0, 1}, {B, 0, 1}}, {{F, 0, 0}, {F, 0, 1}, {B, 0, 0}, {B, 0, 1}}}, 1, 2)),
      HasSubstr("deadlock, rank 0 at B0, rank 1 at F1"));
  EXPECT_THAT(message(by_hand({{{F, 0, 0}}})), HasSubstr("missing"));
  EXPECT_THAT(message(by_hand({{{F, 0, 0}, {I, 0, 0}}})), HasSubstr("missing"));
  EXPECT_THAT(message(by_hand({{{F, 0, 0}, {B, 0, 0}, {F, 0, 0}}})), HasSubstr("twice"));
  EXPECT_THAT(message(by_hand({{{F, 0, 0}, {B, 0, 0}, {W, 0, 0}}})), HasSubstr("twice"));
  EXPECT_THAT(message(by_hand({{{F, 1, 0}, {B, 0, 0}}})), HasSubstr("chunk"));
  EXPECT_THAT(message(by_hand({{{F, 0, 1}, {B, 0, 0}}})), HasSubstr("micro-batch"));
}

TEST(Draw, Cells) {
  EXPECT_EQ(draw(make_schedule({ScheduleKind::one_f_one_b, 2, 1, 3})),
            "F0 F1 .. .. B0 -- F2 B1 -- .. B2 --\n"
            ".. F0 B0 -- F1 B1 -- F2 B2 -- .. ..\n");
  EXPECT_EQ(draw(make_schedule({ScheduleKind::zb_v, 2, 2, 2})),
            "F0a F1a ... F0b B0b F1b B1b B0a W0b B1a W1b W0a W1a\n"
            "... F0a F0b F1a F1b B0b B0a B1b B1a W0b W0a W1b W1a\n");
  EXPECT_EQ(draw(by_hand({{{F, 0, 0}, {I, 0, 0}, {W, 0, 0}}}), {1, 2, 1}), "F0 B0 -- W0\n");
  EXPECT_THROW(draw(make_schedule({ScheduleKind::one_f_one_b, 2, 1, 3}), {0.5, 1, 1}), InternalError);
}

// One picture for each schedule, and one table for all, as docs/schedules.md shows them.
std::string generated(const std::string& what) {
  const auto spec = [](ScheduleKind kind, int micro_batches) {
    return ScheduleSpec{kind, 4, some_virtual_stages(kind), micro_batches};
  };
  if (what == "pictures") {
    std::string pictures;
    for (const ScheduleKind kind : built_in_kinds()) {
      if (kind == ScheduleKind::planned) continue;  // of equal stages it is like one of the others
      const std::string stages = schedule_row(kind).takes_any_chunks() ? ", v = 2" : "";
      pictures += "\n`" + plait::to_string(kind) + "`" + stages + "\n\n```\n" + draw(make_schedule(spec(kind, 8))) + "```\n";
    }
    return pictures;
  }
  std::ostringstream table;
  table << "| schedule | bubble, m = 8 | bubble, m = 16 | in flight on ranks 0 to 3, m = 8 | m = 16 |\n"
           "| --- | --- | --- | --- | --- |\n";
  for (const ScheduleKind kind : built_in_kinds()) {
    table << "| `" << plait::to_string(kind) << "` |";
    for (const int m : {8, 16}) {
      const double permille = std::round(1000 * simulate(make_schedule(spec(kind, m))).bubble_fraction());
      table << ' ' << std::fixed << std::setprecision(1) << permille / 10 << std::defaultfloat << std::setprecision(3)
            << " % |";
    }
    for (const int m : {8, 16}) {
      const Schedule s = make_schedule(spec(kind, m));
      for (int rank = 0; rank < s.ranks(); ++rank) {
        table << (rank == 0 ? " " : ", ") << 1.0 * peak_in_flight(s, rank) / s.stages.chunks(rank);
      }
      table << " |";
    }
    table << '\n';
  }
  return table.str();
}

// Replaces everything between a comment <!-- simulated: WHAT --> and the next <!-- end -->.
std::string with_generated(std::string text) {
  const std::string begin = "<!-- simulated: ", close = " -->\n", end = "<!-- end -->";
  for (std::size_t at = 0; (at = text.find(begin, at)) != std::string::npos;) {
    const std::size_t name = at + begin.size(), body = text.find(close, at) + close.size(), until = text.find(end, at);
    text.replace(body, until - body, generated(text.substr(name, body - close.size() - name)));
    at = body;
  }
  return text;
}

TEST(Schedule, DocumentationShowsWhatTheCodeDoes) {
  const std::string path = std::string(test_paths::source) + "/docs/schedules.md";
  std::stringstream stored;
  stored << std::ifstream(path).rdbuf();
  const std::string expected = with_generated(stored.str());
  if (std::getenv("PLAIT_UPDATE_DOCS") != nullptr) {
    std::ofstream(path) << expected;
  } else {
    EXPECT_EQ(stored.str(), expected) << "write it again with PLAIT_UPDATE_DOCS=1 test_parallel --gtest_filter=Schedule.*";
  }
  EXPECT_THAT(expected, testing::HasSubstr("<!-- simulated: pictures -->\n\n`gpipe`\n"));
  EXPECT_THAT(expected, testing::HasSubstr("<!-- simulated: table -->\n| schedule |"));
}

TEST(ChunkLetters, GoOnAfterZ) {
  EXPECT_EQ(chunk_letters(0), "a");
  EXPECT_EQ(chunk_letters(25), "z");
  EXPECT_EQ(chunk_letters(26), "aa");
  EXPECT_EQ(chunk_letters(26 + 26 * 26), "aaa");
}

}  // namespace
}  // namespace plait::parallel
