// Does one wrong thing, by name. tests/core/sanitizer_test.cpp runs it to prove that a sanitizer ends the program.
#include <cstdio>
#include <limits>
#include <string_view>

#include "core/device.h"

int main(int argc, char** argv) {
  const std::string_view fault = argc > 1 ? argv[1] : "none";
  plait::DeviceMemory memory(plait::Device{});
  plait::Buffer buffer = memory.allocate(256);
  volatile unsigned char* bytes = static_cast<unsigned char*>(buffer.data());
  volatile int number = std::numeric_limits<int>::max();
  if (fault == "past-the-end") bytes[buffer.bytes()] = 1;
  if (fault == "freed") {
    buffer = plait::Buffer();
    bytes[0] = 1;
  }
  if (fault == "leaked") *static_cast<volatile int*>(new int) = 1;
  if (fault == "overflow") number = number + 1;
  if (fault == "shifted") number = 1 << (number - std::numeric_limits<int>::max() + 40);
  std::printf("%d\n", number);
}
