// Machines that are not here: those that are assumed when nothing says how the GPUs are connected, and clusters of identical
// hosts, for studying.
#pragma once

#include <string>
#include <string_view>

#include "core/device.h"
#include "topology/graph.h"

namespace plait::topology {

enum class NetworkShape {
  rail,  // the i-th NIC of every host on one switch, the rails joined by a spine that is never the bottleneck
  flat   // all NICs on one switch
};

// "rail" or "flat"; ConfigError for another name, with `option` as its place.
NetworkShape network_shape_from(std::string_view name, std::string_view option);

struct ReplicateRequest {
  int hosts = 1;
  NetworkShape network = NetworkShape::rail;
  double nic_gb_per_s = 0;  // of each NIC, one direction; 0: the host's figure (port_gb_per_s)
};

// The host `hosts` times over; one is the host itself. Nodes of host 0 keep their names, those of host 3 get the prefix
// "host3/"; measurements within the host hold in each. Switches are "rail0", "rail1", ... and "spine", or "network". Their
// figures are nominal: a NIC's edge has its ports' bandwidth, a rail's edge to the spine that of all its NICs together, each
// with the nominal latency of a network edge.
//
// Rails count NICs in the order of the graph; if some NICs are near GPUs (they share a PCIe switch or host bridge with one) and
// others are not, those near GPUs come first. The others (management, storage) are not put on the network. With `nic_gb_per_s`,
// a host without NICs gets one for each GPU, next to the GPU. PCIe edges of such a NIC and of the GPUs at the same switch (host
// bridge, NUMA node) that are nominal and narrower than its ports are widened to them: 12 GB/s, the figure for a file that says
// nothing, is not that of a machine with faster NICs. Imported and measured figures stay.
//
// Throws ConfigError for a graph of more than one host or without GPUs, for NICs that are missing or have no known speed, for
// fewer than one host, and for more nodes or edges than a graph may hold.
Graph replicate(const Graph& host, const ReplicateRequest& request);

struct AssumedTopology {
  Graph graph;
  std::string words;  // "8 GPUs on one NVSwitch (NV18 each), as in an HGX machine"
};

// GPUs: the device as it is sold in servers, up to eight on one host's NVSwitch (V100 and later data-centre GPUs), or on PCIe
// with two sockets (the others); beyond eight, as many such hosts as needed, on rails of the NICs that they are sold with
// (nominal.h). CPUs: `ranks` ranks that share one memory. `device`: a name as for nominal_profile().
AssumedTopology assume_topology(DeviceKind kind, const std::string& device, int ranks);

}  // namespace plait::topology
