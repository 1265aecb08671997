// A consumer stream reads what a producer stream writes: with the wait that orders them, or without it ("drop").
// tests/core/stream_race_test.cpp runs it to prove that ThreadSanitizer sees a forgotten wait.
#include <cstdio>
#include <string_view>

#include "core/stream.h"

int main(int argc, char** argv) {
  const bool drop = argc > 1 && std::string_view(argv[1]) == "drop";
  const plait::Device device{plait::DeviceKind::host, 0};
  plait::Stream producer(device), consumer(device);
  plait::Event written(device);
  int value = 0, seen = 0;
  producer.ref().enqueue_host([&] { value = 1; });
  producer.ref().record(written);
  if (!drop) consumer.ref().wait(written);
  consumer.ref().enqueue_host([&] { seen = value; });
  consumer.ref().synchronize();
  producer.ref().synchronize();
  std::printf("%d\n", seen);
}
