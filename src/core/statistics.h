// Statistics of repeated measurements: for benches, reports and studies alike.
#pragma once

#include <vector>

namespace plait {

// The mean of the two in the middle where their number is even. InternalError for none.
double median(std::vector<double> values);

// A quantity of several rounds.
struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread spread(const std::vector<double>& values);

struct Interval {
  double low = 0, high = 0;
};

// Between which two of `values` the median of what they are drawn from lies, with a probability of at least `confidence`,
// whatever the distribution: the k-th smallest and the k-th largest, by the binomial distribution of how many fall below it
// (David and Nagaraja, Order Statistics, section 7.1). The least and the most where there are too few for that: at 0.95, five
// or fewer.
Interval median_interval(std::vector<double> values, double confidence = 0.95);

// How much slower work is beside other work, on devices whose clocks wander by more than that: every run beside other work is
// held against the two runs alone that enclose it. Times of the same work: alone, beside, alone, beside, ..., alone.
struct PairedTimes {
  std::vector<double> alone;   // one more than beside
  std::vector<double> beside;  // number i between alone[i] and alone[i + 1]
};

// What run i would take alone: the mean of its two neighbours. A clock that drifts at a constant rate cancels out.
double time_alone(const PairedTimes& times, std::size_t i);

// The part of its rate alone that run i lost: 0.1 where the work goes at 90 %; below 0 where it went faster.
double slowdown(const PairedTimes& times, std::size_t i);

// The part of its time alone that run i took longer: 0.1 where it takes 10 % longer.
double lengthening(const PairedTimes& times, std::size_t i);

// How large a median slowdown of so many rounds the same procedure finds where nothing runs beside: every run alone but the
// first and the last is held against its two neighbours, and three quarters of them differ by less than some part. Where the
// times are normal that is about two standard errors of a median of five, and those of others go by the root of their number. 0
// for fewer than three runs.
double noise(const std::vector<double>& alone, int rounds);

// 10^9 bytes per second.
inline double gb_per_s(double bytes, double microseconds) { return microseconds > 0 ? bytes / microseconds / 1e3 : 0; }

}  // namespace plait
