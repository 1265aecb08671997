#include "core/cpu_binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "core/error.h"

namespace plait {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Sixteen processors: 0-7 at the first node, 8-15 at the second.
const std::string two_sockets = "package:2 [numa] core:4 pu:2";

TEST(CpuBinding, IsToTheProcessorsOfTheNode) {
  const CpuTopology machine(two_sockets);
  EXPECT_THAT(machine.numa_nodes(), ElementsAre(0, 1));
  EXPECT_EQ(binding_for(machine, 0, "0-15"), (CpuBinding{0, "0-7", "", true}));
  EXPECT_EQ(binding_for(machine, 1, "0-15"), (CpuBinding{1, "8-15", "", true}));
}

TEST(CpuBinding, LeavesWhatSomebodyOutsideHasBound) {
  const CpuTopology machine(two_sockets);
  for (const char* const allowed : {"0-3", "0-7", "0,2,4,6,8,10,12,14"}) {
    const CpuBinding binding = binding_for(machine, 1, allowed);
    EXPECT_FALSE(binding.possible());
    EXPECT_THAT(binding.obstacle, HasSubstr(std::string("bound from outside to processors ") + allowed + " of 0-15"));
    EXPECT_TRUE(binding.useful);
  }
}

TEST(CpuBinding, OfWhatIsBoundToTheNodeAlreadyChangesNothing) {
  const CpuTopology machine(two_sockets);
  EXPECT_EQ(binding_for(machine, 1, "8-15"), (CpuBinding{1, "8-15", "", true}));
}

TEST(CpuBinding, SaysWhyItCannotBe) {
  const CpuTopology machine(two_sockets);
  EXPECT_THAT(binding_for(machine, -1, "0-15").obstacle, HasSubstr("not known"));
  EXPECT_THAT(binding_for(machine, 7, "0-15").obstacle, HasSubstr("NUMA node 7"));
  EXPECT_EQ(bind_this_thread(machine, binding_for(machine, 7, "0-15")), binding_for(machine, 7, "0-15").obstacle);
}

TEST(CpuBinding, IsOfNoUseOnOneNode) {
  const CpuTopology machine("numa:1 core:4 pu:1");
  for (const int numa : {0, -1}) {
    const CpuBinding binding = binding_for(machine, numa, "0-3");
    EXPECT_FALSE(binding.possible());
    EXPECT_FALSE(binding.useful);
  }
  EXPECT_TRUE(binding_for(machine, 3, "0-3").useful);  // a GPU at a node that the cgroup hides
}

// As hwloc itself writes a machine of two nodes that is restricted to the processors of the first, which is what a cgroup does.
TEST(CpuBinding, ANodeWhoseProcessorsAreForbiddenIsNamed) {
  const CpuTopology machine(R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x3" complete_cpuset="0x3" allowed_cpuset="0x3" nodeset="0x3" complete_nodeset="0x3" allowed_nodeset="0x3" gp_index="1">
    <object type="Package" os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x1" complete_nodeset="0x1" gp_index="6">
      <object type="NUMANode" os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x1" complete_nodeset="0x1" gp_index="7"/>
      <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="2"/>
      <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x1" complete_nodeset="0x1" gp_index="4"/>
    </object>
    <object type="Package" os_index="1" cpuset="0x0" complete_cpuset="0x0" nodeset="0x2" complete_nodeset="0x2" gp_index="12">
      <object type="NUMANode" os_index="1" cpuset="0x0" complete_cpuset="0x0" nodeset="0x2" complete_nodeset="0x2" gp_index="13"/>
    </object>
  </object>
</topology>)");
  const CpuBinding binding = binding_for(machine, 1, "0-1");
  EXPECT_THAT(binding.obstacle, HasSubstr("no processor of NUMA node 1 may be used"));
  EXPECT_TRUE(binding.useful);
  EXPECT_FALSE(binding_for(machine, 0, "0-1").useful);
}

TEST(CpuBinding, AMachineThatCannotBeIsRefused) {
  EXPECT_THROW(CpuTopology("a machine"), ConfigError);
  EXPECT_THROW(CpuTopology("<topology"), ConfigError);
}

TEST(CpuBinding, HereAThreadRunsWhereItWasBound) {
  const CpuTopology machine;
  ASSERT_FALSE(machine.numa_nodes().empty());
  const CpuBinding binding = binding_for(machine, machine.numa_nodes().front());
  const std::string before = cpus_of_this_thread();
  ASSERT_NE(before, "");
  std::thread([&] {
    const std::string why = bind_this_thread(machine, binding);
    if (binding.possible() && why.empty()) {
      EXPECT_EQ(cpus_of_this_thread(), binding.cpus);
    } else {
      EXPECT_NE(why, "");
      EXPECT_EQ(cpus_of_this_thread(), before);
    }
  }).join();
  EXPECT_EQ(cpus_of_this_thread(), before);
}

}  // namespace
}  // namespace plait
