// Which address comm.interface means.
#include "comm/tcp/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "core/error.h"
#include "core/error_of.h"

namespace plait::comm::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string refusal(const std::string& wanted) {
  return error_of<ConfigError>([&] { return local_address(wanted); });
}

TEST(LocalAddress, IsAnAddressANameAnInterfaceOrASubnet) {
  EXPECT_EQ(local_address("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(local_address("lo"), "127.0.0.1");
  EXPECT_EQ(local_address("127.0.0.0/8"), "127.0.0.1");
  EXPECT_EQ(local_address("127.0.0.1/32"), "127.0.0.1");
  EXPECT_EQ(local_address("127.64.0.0/8"), "127.0.0.1") << "bits beyond the subnet's do not count";
  EXPECT_TRUE(is_loopback(local_address("localhost")));
}

TEST(LocalAddress, IsNamedWithWhatThereIsWhenThereIsNone) {
  const auto names_all = AllOf(HasSubstr("comm.interface"), HasSubstr("there are"), HasSubstr("lo 127.0.0.1"));
  EXPECT_THAT(refusal("203.0.113.1"), AllOf(names_all, HasSubstr("203.0.113.1"), HasSubstr("no address of this host")));
  EXPECT_THAT(refusal("203.0.113.0/24"), AllOf(names_all, HasSubstr("in this subnet")));
  EXPECT_THAT(refusal("127.0.0.128/25"), AllOf(names_all, HasSubstr("in this subnet")));
  EXPECT_THAT(refusal("0.0.0.0"), AllOf(names_all, HasSubstr("every address")));
  EXPECT_THAT(refusal("no-such-interface0"), AllOf(names_all, HasSubstr("no network interface of this host")));
  for (const char* wrong : {"127.0.0.1/33", "127.0.0.1/", "127.0.0.1/x", "/8", "127.0/8/8"}) {
    EXPECT_THAT(refusal(wrong), names_all) << wrong;
  }
}

// The loopback interface of a new network namespace is down.
TEST(LocalAddress, OfAnInterfaceThatIsDownIsRefusedAsSuch) {
  bool alone = false;
  std::string said;
  std::thread([&] {
    alone = ::unshare(CLONE_NEWNET) == 0;
    if (alone) said = refusal("lo");
  }).join();
  if (!alone) GTEST_SKIP() << "no network namespace can be made here: that needs root";
  EXPECT_THAT(said, AllOf(HasSubstr("comm.interface=lo"), HasSubstr("but is down"), HasSubstr("bring it up")));
}

TEST(LocalAddress, LoopbackIsTold) {
  EXPECT_TRUE(is_loopback("127.0.0.1"));
  EXPECT_TRUE(is_loopback("127.8.0.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("10.0.0.1"));
  EXPECT_FALSE(is_loopback("fd00::1"));
}

TEST(Endpoint, IsWrittenWithBracketsWhereItNeedsThem) {
  EXPECT_EQ(at("node-1", 29500), "node-1:29500");
  EXPECT_EQ(at("fd00::1", 1), "[fd00::1]:1");
}

}  // namespace
}  // namespace plait::comm::test
