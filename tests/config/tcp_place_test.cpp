#include "config/tcp_place.h"

#include <gtest/gtest.h>

namespace plait {
namespace {

TEST(TcpPlace, LeavesToTheLauncherWhatItDoesNotSay) {
  EXPECT_EQ(tcp_place("tcp"), (TcpPlace{"", 0}));
  EXPECT_EQ(tcp_place("tcp://:29511"), (TcpPlace{"", 29511}));
  EXPECT_EQ(tcp_place("tcp://node-1.cluster:1"), (TcpPlace{"node-1.cluster", 1}));
  EXPECT_EQ(tcp_place("tcp://[fd00::1]:65535"), (TcpPlace{"fd00::1", 65535}));
}

TEST(TcpPlace, IsNothingElse) {
  for (const char* text : {"", "/shared/meet", "tcp/", "tcp:", "tcp://", "tcp://node-1", "tcp://node-1:", "tcp://node-1:0",
                           "tcp://node-1:65536", "tcp://node-1:-1", "tcp://node-1:2 ", "tcp://a:b:3", "tcp://a/b:3", "TCP"}) {
    EXPECT_FALSE(tcp_place(text)) << text;
  }
}

}  // namespace
}  // namespace plait
