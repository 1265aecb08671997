// Machines for tests of the simulator: nothing but channels.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "topology/fabric.h"

namespace plait::plan {

// Hosts of `per_host` GPUs. Within a host each GPU sends into a switch and receives from it; each has a NIC of its own, all
// NICs of the same number are joined by a rail, and rails by a spine with one channel each way per rail.
struct Rails {
  int hosts = 1, per_host = 8;
  double switch_gb_per_s = 400, nic_gb_per_s = 50, spine_gb_per_s = 100;
  double latency_us = 1;

  int gpus() const { return hosts * per_host; }

  topology::Network network() const {
    topology::Network network;
    for (int gpu = 0; gpu < gpus(); ++gpu) {
      network.host_of.push_back(gpu / per_host);
      for (const double gb_per_s : {switch_gb_per_s, switch_gb_per_s, nic_gb_per_s, nic_gb_per_s})
        network.channels.push_back({gb_per_s});
    }
    for (int rail = 0; rail < per_host; ++rail)
      network.channels.insert(network.channels.end(), 2, topology::Channel{spine_gb_per_s});
    network.way = [rails = *this, way = std::make_shared<topology::Way>()](int from, int to) -> const topology::Way& {
      const int spine = 4 * rails.gpus(), from_rail = from % rails.per_host, to_rail = to % rails.per_host;
      *way = {};
      if (from / rails.per_host == to / rails.per_host) {
        way->channels = {4 * from, 4 * to + 1};
        way->gb_per_s = rails.switch_gb_per_s;
      } else if (from_rail == to_rail) {
        way->channels = {4 * from + 2, 4 * to + 3};
        way->gb_per_s = rails.nic_gb_per_s;
      } else {
        way->channels = {4 * from + 2, spine + 2 * from_rail, spine + 2 * to_rail + 1, 4 * to + 3};
        way->gb_per_s = std::min(rails.nic_gb_per_s, rails.spine_gb_per_s);
      }
      if (from / rails.per_host != to / rails.per_host) way->exit_channel = 4 * from + 2, way->entry_channel = 4 * to + 3;
      way->latency_us = rails.latency_us;
      return *way;
    };
    return network;
  }
};

// A network whose two halves are joined by one channel each way; within a half nothing is shared.
inline topology::Network two_halves(int gpus, double within_gb_per_s, double between_gb_per_s) {
  topology::Network network;
  network.channels = {{between_gb_per_s}, {between_gb_per_s}};
  for (int gpu = 0; gpu < gpus; ++gpu) network.host_of.push_back(2 * gpu / gpus);
  network.way = [=, way = std::make_shared<topology::Way>()](int from, int to) -> const topology::Way& {
    *way = {};
    const int a = 2 * from / gpus, b = 2 * to / gpus;
    if (a != b) way->channels = {a}, way->exit_channel = way->entry_channel = a;
    way->gb_per_s = a == b ? within_gb_per_s : between_gb_per_s;
    return *way;
  };
  return network;
}

inline std::vector<int> in_order(int ranks) {
  std::vector<int> gpus;
  for (int gpu = 0; gpu < ranks; ++gpu) gpus.push_back(gpu);
  return gpus;
}

}  // namespace plait::plan
