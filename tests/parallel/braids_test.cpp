// The right passes are braided, and something else is computed behind each of their exchanges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "config/schedule_files.h"
#include "parallel/collectives.h"
#include "parallel/file_schedules.h"
#include "parallel/program/exchanges.h"
#include "parallel/program_sets.h"
#include "parallel/schedule/braids.h"
#include "parallel/schedule/schedule_timeline.h"
#include "parallel/schedule_kinds.h"

namespace plait::parallel {
namespace {

// "F0 B0|F1 B1", with the micro-batches of one rank's passes.
std::string turns_text(const Schedule& schedule, std::size_t rank = 0) {
  std::string text;
  const std::vector<Pass>& passes = schedule.passes[rank];
  for (const Turn& turn : turns(passes)) {
    for (std::size_t n = turn.first; n < turn.end(); ++n) {
      text += n > turn.first ? "|" : text.empty() ? "" : " ";
      text += std::string(1, "FBIW"[static_cast<int>(passes[n].kind)]) + std::to_string(passes[n].micro_batch);
    }
  }
  return text;
}

std::string turns_after(void (*change)(Schedule&), const ScheduleSpec& spec, std::size_t rank) {
  Schedule schedule = make_schedule(spec);
  change(schedule);
  return turns_text(schedule, rank);
}
std::string braided(const ScheduleSpec& spec, std::size_t rank = 0) { return turns_after(braid, spec, rank); }
std::string halved(const ScheduleSpec& spec, std::size_t rank = 0) { return turns_after(halve, spec, rank); }

TEST(Braids, OfOneRankPairEveryForwardThatNeedsNotWhatIsBesideIt) {
  using enum ScheduleKind;
  EXPECT_EQ(braided({one_f_one_b, 1, 1, 4}), "F0 B0|F1 B1|F2 B2|F3 B3");
  EXPECT_EQ(braided({one_f_one_b, 1, 1, 1}), "F0 B0");
  EXPECT_EQ(braided({gpipe, 1, 1, 3}), "F0|F1 F2|B0 B1 B2");
  EXPECT_EQ(braided({interleaved, 1, 2, 2}), "F0 F0 B0|F1 B0|F1 B1 B1") << "with two chunks";
}

TEST(Braids, OfSeveralRanksAreWhatTheFileSays) {
  EXPECT_EQ(braided({ScheduleKind::one_f_one_b, 2, 1, 3}), "F0 F1 B0 F2 B1 B2");
  const auto file = parsed_schedule("0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,(1B0;1F1)OVERLAP_F_B,1B1,1F2,1B2\n");
  EXPECT_EQ(braided(spec_of(file), 0), "F0 F1 F2|B0 B1 B2");
  EXPECT_EQ(braided(spec_of(file), 1), "F0 B0|F1 B1 F2 B2");
  EXPECT_EQ(schedule_csv(file->ranks), file->text);
  Schedule schedule = make_schedule(spec_of(file));
  unbraid(schedule);
  EXPECT_EQ(turns_text(schedule), "F0 F1 F2 B0 B1 B2");
}

// The order of the passes and their pairs; nothing is computed twice or waits in a circle.
TEST(Braids, OfPipelinesAreOfForwardsAndTheBackwardsBesideThem) {
  using enum ScheduleKind;
  EXPECT_EQ(braided({one_f_one_b, 2, 1, 3}), "F0 F1 B0 F2 B1 B2") << "would end no sooner";
  EXPECT_EQ(braided({one_f_one_b, 1, 1, 3}), "F0 B0|F1 B1|F2 B2");
  for (const auto& [kind, chunks] : {std::pair{zb_v, 2}, std::pair{interleaved, 2}, std::pair{interleaved, 4}}) {
    for (const int ranks : {2, 4, 8}) {
      const ScheduleSpec spec{kind, ranks, chunks, 4 * ranks};
      Schedule plain = make_schedule(spec), pairs = plain;
      braid(pairs);
      EXPECT_TRUE(simulate(pairs).complete) << to_string(kind);
      std::size_t braided = 0, forwards = 0;
      for (std::size_t r = 0; r < pairs.passes.size(); ++r) {
        for (const Turn& turn : turns(pairs.passes[r])) {
          const Pass &one = pairs.passes[r][turn.first], &two = pairs.passes[r][turn.end() - 1];
          forwards += one.kind == PassKind::forward, forwards += turn.count > 1 && two.kind == PassKind::forward;
          braided += turn.count - 1;
          if (turn.count > 1) {
            EXPECT_NE(one.kind == PassKind::forward, two.kind == PassKind::forward);
          }
        }
      }
      EXPECT_GT(braided, forwards / 4) << to_string(kind) << ", " << ranks << " ranks";
      unbraid(pairs);
      EXPECT_EQ(pairs.passes, plain.passes);
    }
  }
}

TEST(Braids, PairsOfWhichOneNeedsTheOtherAreTakenApart) {
  // One pass needs the other on the rank itself, or by way of rank 1, which computes the forward of micro-batch 1 before the
  // backward of 0.
  const auto file = parsed_schedule("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1F1,1B0,1B1\n");
  EXPECT_EQ(braided(spec_of(file)), "F0 F1 B0 B1");
  const auto same = parsed_schedule("(0F0;0B0)OVERLAP_F_B,(0F1;0B1)OVERLAP_F_B,0F2,0B2\n");
  EXPECT_EQ(braided(spec_of(same)), "F0 B0|F1 B1|F2 B2") << "then as if the file had not paired them";
}

TEST(Braids, OfHalvesPairForwardsAndInputParts) {
  using enum ScheduleKind;
  EXPECT_EQ(halved({one_f_one_b, 1, 1, 1}), "F0|F1 B0 B1");
  EXPECT_EQ(halved({one_f_one_b, 2, 1, 2}, 0), "F0|F1 F2|F3 B0 B1 B2 B3");
  EXPECT_EQ(halved({one_f_one_b, 2, 1, 2}, 1), "F0|F1 B0 B1 F2|F3 B2 B3");
  EXPECT_EQ(halved({zb_h1, 2, 1, 1}, 1), "F0|F1 I0|I1 W0 W1");
}

// Under any schedule, halves hold no more than whole micro-batches would, and the written list of passes is the same.
TEST(Braids, OfHalvesHoldWhatTheWholeWouldAndAreWrittenDownAsTheWhole) {
  for (const ScheduleKind kind : built_in_kinds()) {
    for (const int micro_batches : {4, 8}) {
      const Schedule whole = make_schedule({kind, 4, some_virtual_stages(kind), micro_batches});
      Schedule halves = whole;
      halve(halves);
      SCOPED_TRACE(whole.name);
      EXPECT_EQ(halves.micro_batches, 2 * micro_batches);
      EXPECT_TRUE(simulate(halves).complete);
      for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(peak_in_flight(halves, rank), 2 * peak_in_flight(whole, rank)) << rank;
      EXPECT_EQ(schedule_csv(stage_passes(halves)), schedule_csv(stage_passes(whole)));
    }
  }
}

// The number of compute instructions between the one whose sum an exchange takes and the first that uses the exchange's result.
int computed_behind(const Program& program, const std::vector<Bucket>& buckets, int exchange) {
  // All buffers that its collectives, and the norm between them, work on.
  std::vector<BufferUse> uses;
  for (const Exchange& e : exchanges_of(program)) {
    for (int n = e.first; e.first <= exchange && exchange <= e.last && n <= e.last; ++n) {
      for (const BufferUse& use : buffer_uses(program, program.at(n), buckets)) uses.push_back(use);
    }
  }
  const auto meets = [&](int n, bool writes) {
    for (const BufferUse& use : buffer_uses(program, program.at(n), buckets)) {
      for (const BufferUse& ours : uses) {
        const bool of_stream = ours.buffer.kind != BufferKind::weights && ours.buffer.kind != BufferKind::norm_gradients;
        if (of_stream && ours.buffer == use.buffer && ours.writes && use.writes == writes) return true;
      }
    }
    return false;
  };
  int made = exchange, used = exchange, between = 0;
  while (made >= 0 && (program.at(made).stream != 0 || !meets(made, true))) --made;
  const int count = static_cast<int>(program.instructions.size());
  while (used < count && (program.at(used).stream != 0 || !meets(used, false))) ++used;
  for (int n = made + 1; n < used; ++n) between += program.at(n).stream == 0 ? 1 : 0;
  return between;
}

// The exchanges behind which nothing is computed, by direction and micro-batch.
std::map<std::string, int> exposed_exchanges(const SetSpec& spec) {
  const ProgramSet set = make_set(spec);
  EXPECT_EQ(first_problem(set), "");
  std::map<std::string, int> exposed;
  for (const RankProgram& rank : set.programs) {
    for (int n = 0; n < static_cast<int>(rank.program.instructions.size()); ++n) {
      const Instruction& i = rank.program.at(n);
      if (!sums_rows(i)) continue;
      if (computed_behind(rank.program, rank.buckets, n) > 0) continue;
      ++exposed[(is_in_backward(i) ? "backward " : "forward ") + std::to_string(i.micro_batch)];
    }
  }
  return exposed;
}

TEST(Braids, BehindEveryExchangeStandsASegmentOfTheOtherPassOrAWeightPart) {
  for (const bool sequence_parallel : {true, false}) {
    SetSpec spec{.schedule = {ScheduleKind::one_f_one_b, 1, 1, 4}, .tensor = 2, .sequence_parallel = sequence_parallel};
    const auto exposed = exposed_exchanges(spec);
    // The first forward has no pass beside it, and the last exchange of a step has only its update to wait for.
    ASSERT_EQ(exposed.size(), 1U) << exposed.rbegin()->first;
    EXPECT_EQ(exposed.begin()->first, "forward 0");
  }
}

// Work beside exchanges in the middle of a pass, in quarters of blocks.
TEST(Braids, ExchangesKnowHowMuchIsComputedBesideThem) {
  const auto beside = [](bool braided, bool fp8, bool backward, int micro_batch) {
    const RankProgram rank =
        make_set({.schedule = {ScheduleKind::one_f_one_b, 1, 1, 3}, .tensor = 2, .braided = braided, .fp8 = fp8})
            .programs.front();
    const int middle = static_cast<int>(rank.program.segments.size()) / 2;
    for (const Instruction& i : rank.program.instructions) {
      if (sums_rows(i) && is_in_backward(i) == backward && i.micro_batch == micro_batch && i.segment == middle) return i.beside;
    }
    return -1;
  };
  constexpr bool forward = false, backward = true;
  for (const bool fp8 : {false, true}) {
    for (const int micro_batch : {0, 1, 2}) {
      EXPECT_EQ(beside(false, fp8, forward, micro_batch), 0);
      EXPECT_EQ(beside(false, fp8, backward, micro_batch), 2) << "a weight part";
    }
    EXPECT_EQ(beside(true, fp8, forward, 0), 0) << "by itself";
    EXPECT_EQ(beside(true, fp8, backward, 2), 2) << "by itself";
  }
  EXPECT_EQ(beside(true, false, forward, 1), 4) << "both parts of a backward";
  EXPECT_EQ(beside(true, false, backward, 1), 4) << "a weight part and a forward";
  EXPECT_EQ(beside(true, true, forward, 1), 3) << "parts, of which three are computed in that time";
  EXPECT_EQ(beside(true, true, backward, 1), 3);
}

// Among the cases: a backward with two parts and a weight part in each segment, beside a forward with two.
TEST(Braids, PartsOfPassesComeAtAnEvenPace) {
  EXPECT_TRUE(order_of_parts({}).empty());
  EXPECT_EQ(order_of_parts({{2, 1}}), (std::vector<BraidedPart>{{0, 0, 0}, {0, 0, 1}, {0, 1, 0}}));
  EXPECT_EQ(order_of_parts({{3, 3}, {2, 2}}),
            (std::vector<BraidedPart>{
                {0, 0, 0}, {1, 0, 0}, {0, 0, 1}, {1, 0, 1}, {0, 0, 2}, {0, 1, 0}, {1, 1, 0}, {0, 1, 1}, {1, 1, 1}, {0, 1, 2}}));
  EXPECT_EQ(order_of_parts({{1, 1}, {1, 1, 1}}),
            (std::vector<BraidedPart>{{1, 0, 0}, {0, 0, 0}, {1, 1, 0}, {0, 1, 0}, {1, 2, 0}}))
      << "one more segment: a head or an embedding moves neither against the other";
}

// The parts of a segment with FP8 operands wait for their scale. A part of the other pass stands between them, for any number
// of segments and micro-batches.
TEST(Braids, BehindEveryScaleStandsAPartOfTheOtherPass) {
  for (const int micro_batches : {2, 5}) {
    for (const int blocks : {1, 7, 40}) {
      const RankProgram rank =
          make_set({.schedule = {ScheduleKind::one_f_one_b, 1, 1, micro_batches}, .tensor = 2, .fp8 = true, .blocks = blocks})
              .programs.front();
      std::map<std::string, int> exposed;
      for (const Instruction& i : rank.program.instructions) {
        const bool forward = agrees_on(i, model::PassTensor::activation_scale);
        if ((forward || agrees_on(i, model::PassTensor::gradient_scale)) && i.beside == 0)
          ++exposed[(forward ? "forward " : "backward ") + std::to_string(i.micro_batch)];
      }
      const std::map<std::string, int> by_themselves{{"forward 0", 2 * blocks},
                                                     {"backward " + std::to_string(micro_batches - 1), 2 * blocks}};
      EXPECT_EQ(exposed, by_themselves) << micro_batches << " micro-batches of " << blocks << " blocks";
    }
  }
}

// It takes one more micro-batch's activations for that.
TEST(Braids, WithAForwardAheadTheFirstHasAPartnerToo) {
  const auto slots = [](const SetSpec& spec) { return make_set(spec).program(0).chunks[0].activation_slots; };
  for (const int micro_batches : {2, 3, 8}) {
    const SetSpec spec{.schedule = {ScheduleKind::one_f_one_b, 1, 1, micro_batches}, .tensor = 2};
    SetSpec ahead = spec;
    ahead.ahead = true;
    EXPECT_EQ(exposed_exchanges(spec).begin()->first, "forward 0");
    EXPECT_TRUE(exposed_exchanges(ahead).empty()) << ahead.name();
    EXPECT_EQ(slots(ahead), std::min(micro_batches, slots(spec) + 1)) << ahead.name();
  }
  // If all forwards come first, or there is only one, it changes nothing.
  for (const SetSpec& spec : {SetSpec{.schedule = {ScheduleKind::gpipe, 1, 1, 4}, .tensor = 2},
                              SetSpec{.schedule = {ScheduleKind::one_f_one_b, 1, 1, 1}, .tensor = 2}}) {
    SetSpec ahead = spec;
    ahead.ahead = true;
    EXPECT_EQ(make_set(ahead).program(0), make_set(spec).program(0)) << spec.name();
  }
}

TEST(Braids, OfPipelinesAreProvedAndHideExchanges) {
  for (const ScheduleKind kind : {ScheduleKind::zb_v, ScheduleKind::interleaved}) {
    for (const int ranks : {2, 4}) {
      SetSpec spec{.schedule = {kind, ranks, 2, 2 * ranks}, .tensor = 2, .braided = false};
      const auto exposed = [&] {
        int sum = 0;
        for (const auto& [exchange, count] : exposed_exchanges(spec)) sum += count;
        return sum;
      };
      const int alone = exposed();
      spec.braided = true;
      EXPECT_LT(exposed(), alone) << spec.name();
      for (const bool sequence_parallel : {true, false}) {
        for (const bool recompute : {false, true}) {
          spec.sequence_parallel = sequence_parallel, spec.recompute = recompute;
          EXPECT_EQ(first_problem(make_set(spec)), "") << spec.name();
        }
      }
    }
  }
}

// In a pipeline, a forward has no other pass to go with.
TEST(Braids, OfHalvesLeaveNoExchangeOfAPipelineByItself) {
  for (const ScheduleKind kind : built_in_kinds()) {
    for (const bool sequence_parallel : {true, false}) {
      SetSpec spec{.schedule = {kind, 2, some_virtual_stages(kind), 4},
                   .tensor = 2,
                   .sequence_parallel = sequence_parallel,
                   .halves = true};
      const auto exposed = exposed_exchanges(spec);
      EXPECT_EQ(exposed.size(), 0U) << spec.name() << ": " << exposed.begin()->first;
      spec.halves = spec.braided = false;
      const auto of_whole = exposed_exchanges(spec);
      for (int micro_batch = 0; micro_batch < 4; ++micro_batch)
        EXPECT_TRUE(of_whole.contains("forward " + std::to_string(micro_batch))) << spec.name();
    }
  }
  EXPECT_EQ(exposed_exchanges({.schedule = {ScheduleKind::one_f_one_b, 1, 1, 1}, .tensor = 2, .halves = true}).size(), 0U);
}

}  // namespace
}  // namespace plait::parallel
