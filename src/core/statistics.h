// Statistics of repeated measurements, shared by benchmarks, reports and studies.
#pragma once

#include <vector>

namespace plait {

// The mean of the two middle values if their number is even. InternalError if there are none.
double median(std::vector<double> values);

// InternalError if there are none.
double mean(const std::vector<double>& values);

// The mean of the largest of `draws` values taken from `values` at random, each from all of them: the time of a group whose
// members wait for each other. InternalError without values.
double expected_largest(std::vector<double> values, int draws);

// A quantity measured in repeated rounds.
struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread spread(const std::vector<double>& values);

struct Interval {
  double low = 0, high = 0;
};

// A confidence interval for the median of the distribution that `values` are drawn from, for any distribution. Its ends are the
// k-th smallest and the k-th largest value, since the number of values below the median is binomial (David and Nagaraja, Order
// Statistics, section 7.1). With too few values (at 0.95: five or fewer) it spans all of them.
Interval median_interval(std::vector<double> values, double confidence = 0.95);

// Measures the slowdown of work by other, concurrent work, on devices whose clocks vary by more than that: every concurrent run
// is compared with the runs alone before and after it. Times of the same work: alone, beside, alone, beside, ..., alone.
struct PairedTimes {
  std::vector<double> alone;   // one more than `beside`
  std::vector<double> beside;  // number i was measured between alone[i] and alone[i + 1]
};

// The time that run i would take alone: the mean of its two neighbours. Steady clock drift cancels out.
double time_alone(const PairedTimes& times, std::size_t i);

// The fraction of its rate that run i lost: 0.1 if the work ran at 90 % of its rate alone; negative if it ran faster.
double slowdown(const PairedTimes& times, std::size_t i);

// The fraction by which run i took longer than alone: 0.1 for 10 % longer.
double lengthening(const PairedTimes& times, std::size_t i);

// The median slowdown over `rounds` rounds that this procedure would find by chance, without concurrent work. Every run alone
// except the first and the last is compared with its two neighbours; the result is the third quartile of the differences. For
// normally distributed times that is about two standard errors of a median of five; other numbers of rounds scale it by sqrt(5
// / rounds). 0 for fewer than three runs.
double noise(const std::vector<double>& alone, int rounds);

// 10^9 bytes per second.
inline double gb_per_s(double bytes, double microseconds) { return microseconds > 0 ? bytes / microseconds / 1e3 : 0; }

}  // namespace plait
