// How much slower work is beside other work, on devices whose clocks wander by more than that: every run beside other work is
// held against the two runs alone that enclose it.
#pragma once

#include <vector>

namespace plait::bench {

// A quantity of several rounds.
struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread spread(const std::vector<double>& values);

// Times of the same work: alone, beside, alone, beside, ..., alone.
struct PairedTimes {
  std::vector<double> alone;   // one more than beside
  std::vector<double> beside;  // number i between alone[i] and alone[i + 1]
};

// What run i would take alone: the mean of its two neighbours. A clock that drifts at a constant rate cancels out.
double time_alone(const PairedTimes& times, std::size_t i);

// The part of its rate alone that run i lost: 0.1 where the work goes at 90 %; below 0 where it went faster.
double slowdown(const PairedTimes& times, std::size_t i);

// How large a median slowdown of so many rounds the same procedure finds where nothing runs beside: every run alone but the
// first and the last is held against its two neighbours, and three quarters of them differ by less than some part. Where the
// times are normal that is about two standard errors of a median of five, and those of others go by the root of their number. 0
// for fewer than three runs.
double noise(const std::vector<double>& alone, int rounds);

}  // namespace plait::bench
