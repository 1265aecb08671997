// What `plait topo` says of machines in which something keeps GPUs from each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "environment_variable.h"
#include "fake_sysfs.h"
#include "test_paths.h"
#include "topology/describe.h"
#include "topology/discover.h"
#include "topology/sysfs.h"
#include "topology/topology_json.h"
#include "topology_files.h"

namespace plait::topology {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class TopologyFindings : public testing::Test {
 protected:
  Discovered discovered() {
    Discovered found = discover({.root = machine.root(), .nvml_library = test_paths::fake_nvml});
    const Imported again = import_topology(to_json_text(found.graph, found.machine), "written");
    EXPECT_EQ(again.machine, found.machine);
    return found;
  }
  // "IOMMU: on | what it costs"
  std::vector<std::string> findings() {
    std::vector<std::string> lines;
    for (const Finding& f : discovered().machine.findings) lines.push_back(f.about + ": " + f.value + " | " + f.effect);
    return lines;
  }
  // Four GPUs in a virtual machine, each at a root port of its own.
  void guest(const std::string& vendor, const std::string& product) {
    machine.numa_node(0, "0-15", 1000);
    machine.virtual_machine(vendor, product);
    for (int i = 1; i <= 4; ++i) {
      const std::string port = "pci0000:00/0000:00:0" + std::to_string(i) + ".0";
      machine.pci(port, "0x060400", -1);
      machine.pci(port + "/0000:0" + std::to_string(i) + ":00.0", "0x030200", -1);
    }
  }
  test::FakeSysfs machine;
};

TEST_F(TopologyFindings, RedirectionAtRootPortsIsToldApartFromThatAtSwitches) {
  test::two_sockets(machine);
  machine.access_control("0000:80:01.0", 0x0c);
  machine.access_control("0000:80:02.0", 0x03);  // validation and blocking of translations redirect nothing
  machine.access_control("0000:00:01.0", 0x08);
  machine.access_control("0000:11:00.0", 0);
  machine.access_control("0000:11:01.0", 0x11);
  EXPECT_THAT(findings(), Contains(AllOf(StartsWith("PCIe ACS at root ports: redirects at 0000:00:01.0, 0000:80:01.0 |"),
                                         HasSubstr("different root ports"), HasSubstr("BIOS"), HasSubstr("setpci"))));
  EXPECT_THAT(findings(), Contains("PCIe ACS: no redirection at 2 switch ports | "));
  machine.access_control("0000:00:01.0", 0);
  machine.access_control("0000:80:01.0", 0);
  machine.access_control("0000:11:01.0", 0x04);
  EXPECT_THAT(findings(), Contains("PCIe ACS at root ports: no redirection at 3 root ports | "));
  EXPECT_THAT(findings(), Contains(StartsWith("PCIe ACS: redirects at 0000:11:01.0 |")));
}

TEST_F(TopologyFindings, PortsThatOnlyRootCanReadAreNamed) {
  test::two_sockets(machine);
  machine.access_control("0000:80:01.0", 0);
  EXPECT_THAT(findings(),
              Contains("PCIe ACS at root ports: not readable at 2 of 3 root ports | run `plait topo` as root to see it"));
}

// A port that is not PCI Express, as of an old virtual machine, has 256 bytes and so no such capability.
TEST_F(TopologyFindings, PortsWithoutExtendedCapabilitiesRedirectNothing) {
  test::two_sockets(machine);
  for (const char* port : {"0000:00:01.0", "0000:80:01.0", "0000:80:02.0"})
    machine.write(std::string("sys/bus/pci/devices/") + port + "/config", std::string(256, '\xff'));
  EXPECT_THAT(findings(), Contains("PCIe ACS at root ports: no redirection at 3 root ports | "));
}

TEST_F(TopologyFindings, GpusInMigModeHaveNoPeers) {
  test::two_sockets(machine);
  EXPECT_THAT(findings(), Not(Contains(StartsWith("MIG"))));
  const plait::test::EnvironmentVariable mig("PLAIT_FAKE_NVML_MIG", "0000:03:00.0 0000:04:00.0");
  EXPECT_THAT(findings(),
              Contains(AllOf(StartsWith("MIG: on for gpu2, gpu3 |"), HasSubstr("no peer access"), HasSubstr("-mig 0"))));
  const Discovered found = discovered();
  for (const PeerStatus& peer : found.machine.peers) {
    const Node& to = found.graph.nodes[static_cast<std::size_t>(peer.to)];
    const Node& from = found.graph.nodes[static_cast<std::size_t>(peer.from)];
    if (from.index >= 2) continue;
    EXPECT_EQ(peer.why, to.index < 2 ? "" : to.name + " is in MIG mode");
  }
}

TEST_F(TopologyFindings, PassthroughWithoutACliqueHasNoApproval) {
  guest("QEMU", "Standard PC (Q35 + ICH9, 2009)");
  for (const char* gpu : {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"}) machine.passed_through(gpu);
  EXPECT_THAT(findings(), Contains(StartsWith("virtual machine: KVM/QEMU (QEMU Standard PC (Q35 + ICH9, 2009)) |")));
  EXPECT_THAT(findings(), Contains(AllOf(StartsWith("GPUDirect cliques: gpu0, gpu1, gpu2, gpu3 in none |"),
                                         HasSubstr("without approving"), HasSubstr("x-nv-gpudirect-clique=0"))));
}

TEST_F(TopologyFindings, PassthroughWithOneCliqueIsApproved) {
  guest("QEMU", "Standard PC (Q35 + ICH9, 2009)");
  for (const char* gpu : {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"}) machine.passed_through(gpu, 15);
  EXPECT_THAT(findings(), Contains("GPUDirect cliques: gpu0, gpu1, gpu2, gpu3 in clique 15 | "));
}

TEST_F(TopologyFindings, GpusOfDifferentCliquesAreNotApproved) {
  guest("VMware, Inc.", "VMware20,1");
  machine.passed_through("0000:01:00.0", 0);
  machine.passed_through("0000:02:00.0", 0);
  machine.passed_through("0000:03:00.0", 3);
  machine.passed_through("0000:04:00.0");
  EXPECT_THAT(findings(),
              Contains(AllOf(StartsWith("GPUDirect cliques: gpu0, gpu1 in clique 0; gpu2 in clique 3; gpu3 in none |"),
                             HasSubstr("GPUs of one clique"), HasSubstr("whoever runs the host"),
                             Not(HasSubstr("x-nv-gpudirect-clique")))));
}

TEST_F(TopologyFindings, CliquesThatOnlyRootCanReadAreNamed) {
  guest("QEMU", "Standard PC (i440FX + PIIX, 1996)");
  machine.write("sys/bus/pci/devices/0000:01:00.0/config", std::string(64, '\0'));
  EXPECT_THAT(findings(),
              Contains(AllOf(StartsWith("GPUDirect cliques: gpu0, gpu1, gpu2, gpu3 not readable |"), HasSubstr("root"))));
}

TEST_F(TopologyFindings, ListsOfCapabilitiesMayGoInCirclesOrNowhere) {
  guest("QEMU", "Standard PC");
  std::string config(256, '\0');
  config[0x06] = 0x10;
  config[0x34] = 0x60;
  config.replace(0x60, 2, std::string("\x09\x60", 2));
  machine.write("sys/bus/pci/devices/0000:01:00.0/config", config);
  config.replace(0x60, 3, std::string("\x09\xfc\x08", 3));
  config.replace(0xfc, 4, std::string("\x09\x60\x08P", 4));  // the signature would be behind the end
  machine.write("sys/bus/pci/devices/0000:02:00.0/config", config);
  machine.passed_through("0000:03:00.0", 2);
  config = std::string(256, '\0');  // the capability is there, but no list leads to it
  config.replace(0xc8, 8, std::string("\x09\x00\x08P2P\x00\x00", 8));
  machine.write("sys/bus/pci/devices/0000:04:00.0/config", config);
  EXPECT_THAT(findings(), Contains(StartsWith("GPUDirect cliques: gpu2 in clique 2; gpu0, gpu1, gpu3 in none |")));
}

TEST_F(TopologyFindings, OnBareMetalNothingIsSaidOfCliques) {
  test::two_sockets(machine);
  for (const char* gpu : {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"}) machine.passed_through(gpu);
  machine.write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme lahf_lm\n");
  EXPECT_THAT(findings(), Not(Contains(HasSubstr("clique"))));
  EXPECT_THAT(findings(), Not(Contains(StartsWith("virtual machine"))));
}

TEST_F(TopologyFindings, VirtualMachinesHaveTheNamesOfTheirHypervisors) {
  const auto name = [&](const std::string& vendor, const std::string& product) {
    machine.virtual_machine(vendor, product);
    const std::optional<Hypervisor> found = hypervisor_of(Sysfs(machine.root()));
    return found ? found->name : "none";
  };
  EXPECT_EQ(name("QEMU", "Standard PC (Q35 + ICH9, 2009)"), "KVM/QEMU");
  EXPECT_EQ(name("Red Hat", "KVM"), "KVM/QEMU");
  EXPECT_EQ(name("VMware, Inc.", "VMware Virtual Platform"), "VMware");
  EXPECT_EQ(name("Xen", "HVM domU"), "Xen");
  EXPECT_EQ(name("Amazon EC2", "p5.48xlarge"), "Amazon EC2 (Nitro)");
  EXPECT_EQ(name("Google", "Google Compute Engine"), "Google Compute Engine");
  EXPECT_EQ(name("Microsoft Corporation", "Virtual Machine"), "Hyper-V");
  EXPECT_EQ(name("Microsoft Corporation", "Surface"), "");
  EXPECT_EQ(name("", ""), "");
  machine.write("sys/hypervisor/type", "xen\n");
  EXPECT_EQ(name("", ""), "Xen");
  machine.write("sys/class/dmi/id/chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n");
  EXPECT_EQ(name("Microsoft Corporation", "Virtual Machine"), "Microsoft Azure (Hyper-V)");
  machine.write("sys/class/dmi/id/bios_version", "4.11.amazon\n");
  EXPECT_EQ(name("Xen", "HVM domU"), "Amazon EC2 (Xen)");
  // Without flags of x86 processors the name alone decides, and bare metal of a cloud has one too.
  const auto name_on_arm = [&](const std::string& vendor, const std::string& product) {
    machine.virtual_machine(vendor, product);
    machine.write("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\n");
    const std::optional<Hypervisor> found = hypervisor_of(Sysfs(machine.root()));
    return found ? found->name : "none";
  };
  EXPECT_EQ(name_on_arm("Amazon EC2", "g5g.16xlarge"), "Amazon EC2 (Nitro)");
  EXPECT_EQ(name_on_arm("Amazon EC2", "g5g.metal"), "none");
  EXPECT_EQ(name_on_arm("NVIDIA", "GH200"), "Xen") << "as the kernel says";
  std::filesystem::remove(machine.root() / "sys/hypervisor/type");
  EXPECT_EQ(name_on_arm("NVIDIA", "GH200"), "none");
}

TEST_F(TopologyFindings, AnIdleGpuLowersItsLinkAndABusyOneDoesNot) {
  test::two_sockets(machine);
  EXPECT_THAT(findings(), Contains(AllOf(StartsWith("PCIe generation: gpu0, gpu1, gpu2: 2.5 of 16 GT/s at the moment"),
                                         HasSubstr("idle"), testing::EndsWith(" | "))));
  EXPECT_THAT(findings(), Contains(StartsWith("PCIe of gpu3: x8 of x16 | ")));
  const plait::test::EnvironmentVariable busy("PLAIT_FAKE_NVML_BUSY", "0000:02:00.0 0000:04:00.0");
  EXPECT_THAT(findings(),
              Contains(AllOf(StartsWith("PCIe of gpu1: 2.5 of 16 GT/s | trained at a lower generation"), HasSubstr("slot"))));
  // The root port of gpu3 can do no more than Gen3.
  EXPECT_THAT(findings(), Contains(AllOf(StartsWith("PCIe of gpu3: x8 of x16, 2.5 of 8 GT/s | runs with fewer lanes"),
                                         HasSubstr("trained at a lower generation"))));
  EXPECT_THAT(findings(), Contains(StartsWith("PCIe generation: gpu0, gpu2: 2.5 of 16 GT/s")));
}

// Only GPUs lower their links while idle.
TEST_F(TopologyFindings, LinksOfSwitchesAndNicsThatTrainedDownAreFaults) {
  test::two_sockets(machine);
  EXPECT_THAT(findings(), Not(Contains(HasSubstr("trained at a lower generation"))));
  machine.write("sys/bus/pci/devices/0000:10:00.0/current_link_speed", "8.0 GT/s PCIe\n");
  machine.write("sys/bus/pci/devices/0000:05:00.0/current_link_speed", "5.0 GT/s PCIe\n");
  EXPECT_THAT(findings(), Contains(StartsWith("PCIe of switch 0000:10:00.0: 8 of 16 GT/s | trained at a lower generation")));
  EXPECT_THAT(findings(), Contains(StartsWith("PCIe of mlx5_0: 5 of 16 GT/s | trained at a lower generation")));
  machine.write("sys/bus/pci/devices/0000:10:00.0/current_link_speed", "Unknown\n");
  EXPECT_THAT(findings(), Not(Contains(HasSubstr("switch 0000:10:00.0"))));
}

TEST_F(TopologyFindings, NicsReachGpuMemoryByAModuleOrByDmaBuf) {
  test::two_sockets(machine);
  const std::string proprietary = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07\n";
  const std::string open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07\n";
  EXPECT_THAT(findings(),
              Contains(AllOf(StartsWith("GPUDirect RDMA: nvidia_peermem is not loaded; whether"), HasSubstr("modprobe"))));
  machine.write("proc/driver/nvidia/version", proprietary);
  machine.write("proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
  EXPECT_THAT(findings(), Contains(AllOf(HasSubstr("not the open ones |"), HasSubstr("modprobe"))));
  machine.write("proc/driver/nvidia/version", open);
  EXPECT_THAT(findings(),
              Contains(AllOf(StartsWith("GPUDirect RDMA: nvidia_peermem is not loaded, but the driver exports DMA-BUF"),
                             testing::EndsWith(" | "))));
  machine.write("proc/sys/kernel/osrelease", "5.4.0\n");
  EXPECT_THAT(findings(), Contains(AllOf(HasSubstr("the kernel is older than 5.12 |"), HasSubstr("modprobe"))));
  machine.write("sys/module/nvidia_peermem/refcnt", "0\n");
  EXPECT_THAT(findings(), Contains(AllOf(StartsWith("GPUDirect RDMA: nvidia_peermem is loaded"), testing::EndsWith(" | "))));
}

TEST_F(TopologyFindings, GpusHaveNamesMemoryAndMultiprocessors) {
  test::two_sockets(machine);
  const Discovered found = discovered();
  const std::string text = describe("here", found.graph, found.machine, {});
  // The last one does not tell its compute capability, on which the number of cores of a multiprocessor depends.
  EXPECT_THAT(text, HasSubstr("\nGPUs\n  GPU0 to GPU2  NVIDIA Fake, 80.0 GiB, 132 SMs\n  GPU3  NVIDIA Fake, 80.0 GiB\n"));
}

}  // namespace
}  // namespace plait::topology
