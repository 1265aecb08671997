// A consumer stream reads what a producer stream writes: with the wait that orders them, or without it ("drop").
// tests/core/stream_race_test.cpp runs it to prove that ThreadSanitizer sees a forgotten wait.
//
// The producer's task starts at once and writes when the host has enqueued everything. Were it to start or end while the host
// still touches the two queues, their locks would order producer, host and consumer by luck.
#include <cstdio>
#include <future>
#include <string_view>

#include "core/stream.h"

int main(int argc, char** argv) {
  const bool drop = argc > 1 && std::string_view(argv[1]) == "drop";
  const plait::Device device{plait::DeviceKind::host, 0};
  plait::Stream producer(device), consumer(device);
  plait::Event written(device);
  std::promise<void> started, all_enqueued;
  alignas(64) int value = 0;  // ThreadSanitizer remembers four accesses per eight bytes: neighbours would push ours out
  alignas(64) int seen = 0;
  producer.ref().enqueue_host([&, go = all_enqueued.get_future().share()] {
    started.set_value();
    go.wait();
    value = 1;
  });
  producer.ref().record(written);
  if (!drop) consumer.ref().wait(written);
  consumer.ref().enqueue_host([&] { seen = value; });
  started.get_future().wait();
  all_enqueued.set_value();
  consumer.ref().synchronize();
  producer.ref().synchronize();
  std::printf("%d\n", seen);
}
