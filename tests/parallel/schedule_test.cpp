#include "parallel/schedule.h"

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
#include "test_paths.h"

namespace plait::parallel {
namespace {

std::string to_string(const ScheduleSpec& spec) {
  return spec.name + ", " + std::to_string(spec.ranks) + " ranks, " + std::to_string(spec.virtual_stages) +
         " virtual stages, " + std::to_string(spec.micro_batches) + " micro-batches";
}

bool splits_backward(const Schedule& s) { return s.name == "zb-h1" || s.name == "zb-v"; }

// Every size that a schedule exists for, of ranks 1..8 x virtual stages 1..4 x micro-batches 1..32.
void for_each_schedule(const std::function<void(const ScheduleSpec&, const Schedule&)>& body) {
  for (const std::string& name : schedule_names()) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (int virtual_stages = 1; virtual_stages <= 4; ++virtual_stages) {
        if (virtual_stages > (name == "interleaved" ? 4 : name == "zb-v" ? 2 : 1)) continue;
        for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
          if (name == "interleaved" && micro_batches % ranks != 0) continue;
          const ScheduleSpec spec{name, ranks, virtual_stages, micro_batches};
          SCOPED_TRACE(to_string(spec));
          ASSERT_NO_THROW(body(spec, make_schedule(spec)));
          if (testing::Test::HasFailure()) return;  // one report is enough
        }
      }
    }
  }
}

std::string problem_of(const ScheduleSpec& spec) {
  try {
    make_schedule(spec);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// Costs of one of a rank's `chunks` stages, given the costs of all of them.
PassCosts per_chunk(PassCosts costs, int chunks) {
  costs.forward /= chunks, costs.backward_input /= chunks, costs.backward_weight /= chunks;
  return costs;
}

// Idle time of each rank, of a schedule whose ranks share these costs for a micro-batch among their chunks.
double idle(const ScheduleSpec& spec, const PassCosts& costs = {}) {
  const Schedule s = make_schedule(spec);
  return simulate(s, per_chunk(costs, s.chunks)).end -
         spec.micro_batches * (costs.forward + costs.backward_input + costs.backward_weight);
}

TEST(Schedule, StagesAreDealtToRanksAndBack) {
  for_each_schedule([](const ScheduleSpec&, const Schedule& s) {
    for (int stage = 0; stage < s.stages(); ++stage) {
      EXPECT_EQ(s.stage(s.rank_of(stage), s.chunk_of(stage)), stage);
      EXPECT_LT(s.rank_of(stage), s.ranks);
      EXPECT_LT(s.chunk_of(stage), s.chunks);
    }
  });
  EXPECT_EQ(make_schedule({"interleaved", 4, 2, 4}).stage(0, 1), 4);
  EXPECT_EQ(make_schedule({"zb-v", 4, 1, 4}).stage(0, 1), 7);
  EXPECT_EQ(make_schedule({"zb-v", 4, 1, 4}).rank_of(4), 3);
}

TEST(Schedule, EveryChunkComputesEveryMicroBatchOnceAndInAscendingOrder) {
  for_each_schedule([](const ScheduleSpec& spec, const Schedule& s) {
    EXPECT_EQ(s.chunks, spec.name == "zb-v" ? 2 : spec.virtual_stages);
    ASSERT_EQ(s.passes.size(), static_cast<std::size_t>(spec.ranks));
    for (const std::vector<Pass>& passes : s.passes) {
      // [chunk][kind]: how many passes of this kind there were.
      std::vector<std::array<int, 4>> done(static_cast<std::size_t>(s.chunks), std::array<int, 4>{});
      for (const Pass& pass : passes) {
        ASSERT_THAT(pass.chunk, testing::AllOf(testing::Ge(0), testing::Lt(s.chunks)));
        auto& [forward, backward, backward_input, backward_weight] = done[static_cast<std::size_t>(pass.chunk)];
        ASSERT_EQ(pass.micro_batch, done[static_cast<std::size_t>(pass.chunk)][static_cast<std::size_t>(pass.kind)]++);
        ASSERT_LE(backward, forward);
        ASSERT_LE(backward_input, forward);
        ASSERT_LE(backward_weight, backward_input);
      }
      const int whole = splits_backward(s) ? 0 : s.micro_batches, split = s.micro_batches - whole;
      for (const auto& counts : done) ASSERT_THAT(counts, testing::ElementsAre(s.micro_batches, whole, split, split));
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

TEST(Schedule, ActivationsInFlight) {
  for_each_schedule([](const ScheduleSpec&, const Schedule& s) {
    for (int rank = 0; rank < s.ranks; ++rank) {
      const int peak = peak_in_flight(s, rank), all = s.chunks * s.micro_batches, to_last = s.ranks - 1 - rank;
      if (s.name == "gpipe") {
        EXPECT_EQ(peak, all);
      } else if (s.name == "1f1b" || (s.name == "interleaved" && s.chunks == 1)) {
        EXPECT_EQ(peak, std::min(all, to_last + 1));
      } else if (s.name == "interleaved") {
        EXPECT_EQ(peak, std::min(all, (s.chunks - 1) * s.ranks + 2 * to_last + 1));
      } else {
        EXPECT_LE(peak,
                  s.chunks * s.ranks);  // what 1F1B holds on its first rank: `ranks` micro-batches of the rank's whole share
      }
    }
  });
}

// The papers' formulas, for passes of equal cost.
TEST(Schedule, BubbleFractions) {
  for_each_schedule([](const ScheduleSpec& spec, const Schedule& s) {
    const double p = s.ranks, m = s.micro_batches, v = s.chunks;
    const double bubble = simulate(s).bubble_fraction();
    if (s.name == "gpipe" || s.name == "1f1b") {
      EXPECT_NEAR(bubble, (p - 1) / (m + p - 1), 1e-12);
    } else if (s.name == "interleaved") {
      EXPECT_NEAR(bubble, (p - 1) / (v * m + p - 1), 1e-12);
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
      SCOPED_TRACE(to_string({"zb-v", ranks, 2, micro_batches}));
      for (const auto& passes : simulate(make_schedule({"zb-v", ranks, 2, micro_batches})).ranks) {
        EXPECT_EQ(passes.back().end - passes.front().begin, 6 * micro_batches);
      }
    }
  }
}

// For w <= f <= b, as in a transformer: attention has a dearer backward than forward, and no weights.
TEST(Schedule, EachScheduleIdlesLessThanTheOneItImprovesOn) {
  for (const PassCosts& costs : {PassCosts{1, 1, 1}, PassCosts{2, 2, 1}, PassCosts{4, 4, 3}, PassCosts{6, 8, 4}}) {
    for (int ranks = 2; ranks <= 8; ++ranks) {
      for (int micro_batches = 2 * ranks; micro_batches <= 32; micro_batches += ranks) {
        const auto of = [&](const char* name, int virtual_stages = 1) {
          return idle({name, ranks, virtual_stages, micro_batches}, costs);
        };
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(micro_batches) + " micro-batches");
        const double f = costs.forward, b = costs.backward_input, w = costs.backward_weight;
        EXPECT_NEAR(of("gpipe"), (ranks - 1) * (f + b + w), 1e-9);
        EXPECT_NEAR(of("1f1b"), (ranks - 1) * (f + b + w), 1e-9);
        EXPECT_NEAR(of("interleaved", 2), (ranks - 1) * (f + b + w) / 2, 1e-9);
        EXPECT_NEAR(of("zb-h1"), (ranks - 1) * (f + b - w), 1e-9);
        EXPECT_NEAR(of("zb-v"), (ranks - 1) * b / 2, 1e-9);
        EXPECT_LT(of("zb-h1"), of("1f1b"));
        EXPECT_LT(of("zb-v"), of("zb-h1"));
      }
    }
  }
}

TEST(Schedule, RefusalsNameTheKeyAndTheRemedy) {
  using testing::AllOf;
  using testing::HasSubstr;
  EXPECT_THAT(problem_of({"zero", 2, 1, 2}), AllOf(HasSubstr("parallel.schedule=zero"), HasSubstr("1f1b, interleaved, zb-h1")));
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
      if (micro_batches % ranks == 0) continue;
      const int enough = (micro_batches + ranks - 1) / ranks * ranks;
      EXPECT_THAT(problem_of({"interleaved", ranks, 2, micro_batches}),
                  AllOf(HasSubstr("parallel.schedule=interleaved"), HasSubstr("train.global_batch"),
                        HasSubstr(std::to_string(enough) + " micro-batches"), HasSubstr("1f1b")));
    }
  }
  for (const char* name : {"gpipe", "1f1b", "zb-h1"}) {
    EXPECT_THAT(problem_of({name, 4, 2, 8}), AllOf(HasSubstr("parallel.virtual_stages=2"), HasSubstr("interleaved")));
  }
  EXPECT_THAT(problem_of({"zb-v", 4, 3, 8}), AllOf(HasSubstr("parallel.virtual_stages=3"), HasSubstr("always has 2")));
  EXPECT_THAT(problem_of({"1f1b", 0, 0, 0}), AllOf(HasSubstr("parallel.pipeline=0"), HasSubstr("parallel.virtual_stages=0"),
                                                   HasSubstr("train.global_batch=0")));
}

constexpr PassKind F = PassKind::forward, B = PassKind::backward, I = PassKind::backward_input, W = PassKind::backward_weight;

Schedule by_hand(std::vector<std::vector<Pass>> passes, int chunks = 1, int micro_batches = 1) {
  return {"by hand", static_cast<int>(passes.size()), chunks, micro_batches, Placement::looped, std::move(passes)};
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
  const auto message = [](const Schedule& schedule) -> std::string {
    try {
      simulate(schedule);
    } catch (const InternalError& error) {
      return error.what();
    }
    return "";
  };
  using testing::HasSubstr;
  EXPECT_EQ(message(by_hand({{{F, 0, 0}, {B, 0, 0}}})), "");
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
  EXPECT_EQ(draw(make_schedule({"1f1b", 2, 1, 3})),
            "F0 F1 .. .. B0 -- F2 B1 -- .. B2 --\n"
            ".. F0 B0 -- F1 B1 -- F2 B2 -- .. ..\n");
  EXPECT_EQ(draw(make_schedule({"zb-v", 2, 2, 2})),
            "F0a F1a ... F0b B0b F1b B1b B0a W0b B1a W1b W0a W1a\n"
            "... F0a F0b F1a F1b B0b B0a B1b B1a W0b W0a W1b W1a\n");
  EXPECT_EQ(draw(by_hand({{{F, 0, 0}, {I, 0, 0}, {W, 0, 0}}}), {1, 2, 1}), "F0 B0 -- W0\n");
  EXPECT_THROW(draw(make_schedule({"1f1b", 2, 1, 3}), {0.5, 1, 1}), InternalError);
}

// One picture for each schedule, and one table for all, as docs/schedules.md shows them.
std::string generated(const std::string& what) {
  const auto spec = [](const std::string& name, int micro_batches) {
    return ScheduleSpec{name, 4, name == "interleaved" ? 2 : 1, micro_batches};
  };
  if (what != "table") return "```\n" + draw(make_schedule(spec(what, 8))) + "```\n";
  std::ostringstream table;
  table << "| schedule | bubble, m = 8 | bubble, m = 16 | in flight on ranks 0 to 3, m = 8 | m = 16 |\n"
           "| --- | --- | --- | --- | --- |\n";
  for (const std::string& name : schedule_names()) {
    table << "| `" << name << "` |";
    for (const int m : {8, 16}) {
      const double permille = std::round(1000 * simulate(make_schedule(spec(name, m))).bubble_fraction());
      table << ' ' << std::fixed << std::setprecision(1) << permille / 10 << std::defaultfloat << std::setprecision(3)
            << " % |";
    }
    for (const int m : {8, 16}) {
      const Schedule s = make_schedule(spec(name, m));
      for (int rank = 0; rank < s.ranks; ++rank) table << (rank == 0 ? " " : ", ") << 1.0 * peak_in_flight(s, rank) / s.chunks;
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
  for (const std::string& name : schedule_names()) {
    EXPECT_THAT(expected, testing::HasSubstr("<!-- simulated: " + name + " -->\n```\n")) << "no picture";
  }
  EXPECT_THAT(expected, testing::HasSubstr("<!-- simulated: table -->\n| schedule |"));
}

}  // namespace
}  // namespace plait::parallel
