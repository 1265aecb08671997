// Machines that a test writes as the files that the kernel would show: /sys, /proc and /dev below a temporary folder.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>

#include "core/temporary_directory.h"

namespace plait::topology::test {

class FakeSysfs {
 public:
  std::filesystem::path root() const { return directory_.path(); }

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root() / file).parent_path());
    std::ofstream(root() / file, std::ios::binary) << text;
  }

  void link(const std::string& from, const std::string& to) const {
    std::filesystem::create_directories((root() / from).parent_path());
    std::filesystem::create_symlink(root() / to, root() / from);
  }

  void numa_node(int number, const std::string& cpus, long kilobytes) const {
    const std::string folder = "sys/devices/system/node/node" + std::to_string(number);
    write(folder + "/cpulist", cpus + "\n");
    write(folder + "/meminfo",
          "Node " + std::to_string(number) + " MemTotal:       " + std::to_string(kilobytes) + " kB\nNode 0 MemFree: 1 kB\n");
  }

  // `path` from the host bridge on: "pci0000:00/0000:00:01.0/0000:01:00.0". The last one is the device that is made. GPUs are
  // idle, so their links run at Gen1 now, unless `speed_now` says otherwise.
  void pci(const std::string& path, const std::string& kind, int numa, const std::string& speed = "16.0 GT/s PCIe",
           int width = 16, int width_now = 16, const std::string& speed_now = "") const {
    const std::string folder = "sys/devices/" + path + "/";
    const std::string bus_id = path.substr(path.rfind('/') + 1);
    write(folder + "class", kind + "\n");
    write(folder + "vendor", kind.starts_with("0x03") ? "0x10de\n" : "0x8086\n");
    write(folder + "numa_node", std::to_string(numa) + "\n");
    write(folder + "max_link_speed", speed + "\n");
    write(folder + "max_link_width", std::to_string(width) + "\n");
    write(folder + "current_link_speed",
          (speed_now.empty() ? kind.starts_with("0x03") ? "2.5 GT/s PCIe" : speed : speed_now) + "\n");
    write(folder + "current_link_width", std::to_string(width_now) + "\n");
    link("sys/bus/pci/devices/" + bus_id, folder.substr(0, folder.size() - 1));
  }

  // The configuration space of a PCI device with this control register of Access Control Services, behind another capability.
  void access_control(const std::string& bus_id, char control) const {
    std::string config(4096, '\0');
    config.replace(0x100, 4, std::string("\x01\x00\x01\x20", 4));
    config.replace(0x200, 6, std::string("\x0d\x00\x01\x00\x00\x00", 6));
    config[0x206] = control;
    write("sys/bus/pci/devices/" + bus_id + "/config", config);
  }

  // As QEMU shows a GPU in a virtual machine: with capabilities for power and MSI, and where there is a clique the one that
  // x-nv-gpudirect-clique adds (QEMU hw/vfio/pci-quirks.c: signature "P2P", the clique in bits 3 to 6 of the byte behind it).
  void passed_through(const std::string& bus_id, int clique = -1) const {
    std::string config(256, '\0');
    config[0x06] = 0x10;  // there is a list
    config[0x34] = 0x60;
    config.replace(0x60, 2, std::string("\x01\x68", 2));
    config.replace(0x68, 2, std::string("\x05\x80", 2));
    config.replace(0x80, 8, std::string("\x09\x00\x08XYZ\x08\x00", 8));  // another one of this vendor's
    if (clique >= 0) {
      config[0x81] = static_cast<char>(0xd4);
      config.replace(0xd4, 8, std::string("\x09\x00\x08P2P\x00\x00", 8));
      config[0xda] = static_cast<char>(clique << 3);
    }
    write("sys/bus/pci/devices/" + bus_id + "/config", config);
  }

  void virtual_machine(const std::string& vendor, const std::string& product) const {
    write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n");
    write("sys/class/dmi/id/sys_vendor", vendor + "\n");
    write("sys/class/dmi/id/product_name", product + "\n");
  }

  void infiniband(const std::string& name, const std::string& bus_id, const std::string& rate,
                  const std::string& state = "4: ACTIVE") const {
    const std::string folder = "sys/class/infiniband/" + name;
    write(folder + "/ports/1/rate", rate + "\n");
    write(folder + "/ports/1/state", state + "\n");
    link(folder + "/device", "sys/bus/pci/devices/" + bus_id);
  }

  void network(const std::string& name, const std::string& device, const std::string& speed) const {
    const std::string folder = "sys/class/net/" + name;
    write(folder + "/speed", speed + "\n");
    if (!device.empty()) link(folder + "/device", device);
  }

 private:
  plait::test::TemporaryDirectory directory_;
};

// The four GPUs of fake_nvml.cpp on two sockets: the first two below one switch with a NIC, the others on root ports of their
// own of one host bridge.
inline void two_sockets(const FakeSysfs& machine) {
  machine.numa_node(0, "0-15,32-47", 263000000);
  machine.numa_node(1, "16-31,48-63", 264000000);
  const std::string port = "pci0000:00/0000:00:01.0", up = port + "/0000:10:00.0";
  machine.pci(port, "0x060400", 0);
  machine.pci(up, "0x060400", 0);
  for (const auto& [down, device, kind] :
       {std::tuple("0000:11:00.0", "0000:01:00.0", "0x030200"), std::tuple("0000:11:01.0", "0000:02:00.0", "0x030200"),
        std::tuple("0000:11:02.0", "0000:05:00.0", "0x020700")}) {
    machine.pci(up + "/" + down, "0x060400", 0);
    machine.pci(up + "/" + down + "/" + device, kind, 0);
  }
  machine.infiniband("mlx5_0", "0000:05:00.0", "200 Gb/sec (4X HDR)");
  machine.network("ib0", "sys/bus/pci/devices/0000:05:00.0", "200000");  // a port of the same NIC
  machine.network("lo", "", "0");
  const std::string other = "pci0000:80";
  machine.pci(other + "/0000:80:01.0", "0x060400", 1);
  machine.pci(other + "/0000:80:01.0/0000:03:00.0", "0x030200", 1);
  machine.pci(other + "/0000:80:02.0", "0x060400", 1, "8.0 GT/s PCIe");
  machine.pci(other + "/0000:80:02.0/0000:04:00.0", "0x030200", 1, "16.0 GT/s PCIe", 16, 8);
  machine.pci(other + "/0000:80:03.0", "0x020000", 1, "8.0 GT/s PCIe", 8, 8);
  machine.network("eth0", "sys/bus/pci/devices/0000:80:03.0", "25000");
}

}  // namespace plait::topology::test
