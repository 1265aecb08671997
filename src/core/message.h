// What the program tells its user beside its results.
#pragma once

#include <string>

namespace plait {

// "plait: TEXT" on stderr, in one write: ranks that are processes often fail together.
void message_to_stderr(const std::string& text);

}  // namespace plait
