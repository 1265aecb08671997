#include "core/message.h"

#include <cstdio>

namespace plait {

void message_to_stderr(const std::string& text) {
  std::string line = "plait: " + text + "\n";
  for (char& c : line) {  // the text may quote a file of anyone's: nothing in it steers the terminal
    const bool controls = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (controls && c != '\n' && c != '\t') c = '?';
  }
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

}  // namespace plait
