#include "plan/placement/symmetry.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "core/error.h"
#include "core/index.h"

namespace plait::plan {
namespace {

constexpr int most_steps = 2000;  // of the search for one permutation

}  // namespace

// A partial permutation, with the mapping of channels that it implies between the GPUs placed so far.
struct Symmetry::Mapping {
  std::vector<int> image;           // by GPU; -1: not placed yet
  std::vector<bool> taken;          // by GPU: is an image
  std::vector<int> channel;         // by channel; -1: not mapped yet
  std::vector<bool> channel_taken;  // by channel: is an image
  std::vector<int> placed;          // GPUs, in their order
  std::vector<int> mapped;          // channels, in their order, to take back
  int steps = 0;
};

Symmetry::Symmetry(topology::Fabric& fabric) : gpus_(fabric.gpus()) {
  require(gpus_ <= most_symmetric_gpus, "Symmetry: too many GPUs");
  pairs_.resize(at(gpus_ * gpus_));
  std::map<std::vector<double>, int> kinds;
  std::map<int, int> numbers;
  for (int from = 0; from < gpus_; ++from) {
    for (int to = 0; to < gpus_; ++to) {
      if (from == to) continue;
      Pair& pair = pairs_[at(from * gpus_ + to)];
      std::vector<double> kind;
      for (const topology::Way* way : {&fabric.way(from, to), &fabric.message_way(from, to)}) {
        kind.insert(kind.end(), {way->gb_per_s, way->latency_us, static_cast<double>(way->channels.size())});
        for (int channel : way->channels) {
          const auto [found, added] = numbers.insert({channel, static_cast<int>(numbers.size())});
          if (added) channel_gb_per_s_.push_back(fabric.channels()[at(channel)].gb_per_s);
          pair.channels.push_back(found->second);
        }
      }
      pair.kind = kinds.insert({kind, static_cast<int>(kinds.size())}).first->second;
    }
  }
  refine();
}

void Symmetry::refine() {
  colours_.assign(at(gpus_), 0);
  for (std::size_t different = 1;;) {
    using Signature = std::pair<int, std::vector<std::tuple<int, int, int>>>;
    std::vector<Signature> signatures;
    std::map<Signature, int> colour;
    for (int gpu = 0; gpu < gpus_; ++gpu) {
      Signature signature{colours_[at(gpu)], {}};
      for (int other = 0; other < gpus_; ++other) {
        if (other != gpu) signature.second.push_back({colours_[at(other)], pair(gpu, other).kind, pair(other, gpu).kind});
      }
      std::sort(signature.second.begin(), signature.second.end());
      colour.insert({signature, 0});
      signatures.push_back(std::move(signature));
    }
    int count = 0;
    for (auto& [signature, number] : colour) number = count++;
    for (int gpu = 0; gpu < gpus_; ++gpu) colours_[at(gpu)] = colour.at(signatures[at(gpu)]);
    if (colour.size() == different) return;
    different = colour.size();
  }
}

bool Symmetry::place(Mapping& mapping, int gpu, int image) const {
  if (mapping.taken[at(image)] || colours_[at(gpu)] != colours_[at(image)]) return false;
  const auto carry_over = [&](const Pair& from, const Pair& to) {
    if (from.kind != to.kind) return false;
    for (std::size_t i = 0; i < from.channels.size(); ++i) {
      const int one = from.channels[i], other = to.channels[i];
      if (mapping.channel[at(one)] == other) continue;
      if (mapping.channel[at(one)] >= 0 || mapping.channel_taken[at(other)]) return false;
      if (channel_gb_per_s_[at(one)] != channel_gb_per_s_[at(other)]) return false;
      mapping.channel[at(one)] = other;
      mapping.channel_taken[at(other)] = true;
      mapping.mapped.push_back(one);
    }
    return true;
  };
  for (int earlier : mapping.placed) {
    const int there = mapping.image[at(earlier)];
    if (!carry_over(pair(earlier, gpu), pair(there, image)) || !carry_over(pair(gpu, earlier), pair(image, there)))
      return false;
  }
  mapping.image[at(gpu)] = image;
  mapping.taken[at(image)] = true;
  mapping.placed.push_back(gpu);
  return true;
}

bool Symmetry::extend(Mapping& mapping, int next) const {
  while (next < gpus_ && mapping.image[at(next)] >= 0) ++next;
  if (next == gpus_) return true;
  const auto attempt = [&](int image) {
    const std::size_t before = mapping.mapped.size();
    const auto take_back_channels = [&] {
      while (mapping.mapped.size() > before) {
        const int channel = mapping.mapped.back();
        mapping.channel_taken[at(mapping.channel[at(channel)])] = false;
        mapping.channel[at(channel)] = -1;
        mapping.mapped.pop_back();
      }
    };
    if (place(mapping, next, image)) {
      if (extend(mapping, next + 1)) return true;
      mapping.placed.pop_back();
      mapping.taken[at(image)] = false;
      mapping.image[at(next)] = -1;
    }
    take_back_channels();
    return false;
  };
  // Usually few GPUs change places, so the identity is tried first.
  if (++mapping.steps > most_steps) return false;
  if (attempt(next)) return true;
  for (int image = 0; image < gpus_ && mapping.steps <= most_steps; ++image) {
    if (image != next && attempt(image)) return true;
  }
  return false;
}

std::optional<std::vector<int>> Symmetry::permutation(std::uint32_t fixed, int from, int to) const {
  Mapping mapping;
  mapping.image.assign(at(gpus_), -1);
  mapping.taken.assign(at(gpus_), false);
  mapping.channel.assign(channel_gb_per_s_.size(), -1);
  mapping.channel_taken.assign(channel_gb_per_s_.size(), false);
  for (int gpu = 0; gpu < gpus_; ++gpu) {
    if ((fixed >> gpu & 1U) && !place(mapping, gpu, gpu)) return std::nullopt;
  }
  if (!place(mapping, from, to)) return std::nullopt;
  if (!extend(mapping, 0)) return std::nullopt;
  return mapping.image;
}

const Symmetry::Alike& Symmetry::alike(std::uint32_t fixed) {
  const auto [found, added] = known_.try_emplace(fixed);
  Alike& alike = found->second;
  if (!added) return alike;
  std::iota(alike.begin(), alike.end(), std::int8_t{0});
  const auto free = [&](int gpu) { return !(fixed >> gpu & 1U); };
  for (int gpu = 0; gpu < gpus_; ++gpu) {
    if (!free(gpu)) continue;
    for (int earlier = 0; earlier < gpu && alike[at(gpu)] == gpu; ++earlier) {
      if (!free(earlier) || alike[at(earlier)] != earlier || colours_[at(earlier)] != colours_[at(gpu)]) continue;
      const auto found_permutation = permutation(fixed, gpu, earlier);
      if (!found_permutation) continue;
      // The permutation shows the same for all other GPUs that it moves.
      for (int one = 0; one < gpus_; ++one) {
        const std::int8_t a = alike[at(one)], b = alike[at((*found_permutation)[at(one)])];
        const std::int8_t low = std::min(a, b), high = std::max(a, b);
        if (low != high) std::replace(alike.begin(), alike.end(), high, low);
      }
    }
  }
  return alike;
}

}  // namespace plait::plan
