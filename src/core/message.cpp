#include "core/message.h"

#include <cstdio>

namespace plait {

void message_to_stderr(const std::string& text) {
  const std::string line = "plait: " + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace plait
