// Configurations of any content: read, or refused with a ConfigError. What is read is written and read back as the same text.
#include <cstdint>
#include <string>
#include <string_view>

#include "config/config.h"
#include "core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    // What follows a NUL is an override, as --set takes it.
    const std::size_t end = text.find('\0');
    std::vector<std::string> overrides;
    if (end != std::string::npos) overrides.push_back(text.substr(end + 1));
    const plait::Config config = plait::parse_config(text.substr(0, end), overrides, "fuzz");
    const std::string written = plait::to_yaml(config);
    std::string again;
    try {
      again = plait::to_yaml(plait::parse_config(written));
    } catch (const plait::ConfigError& error) {
      plait::require(false, std::string("what was written is refused: ") + error.what());
    }
    plait::require(again == written, "a configuration changed on its way through YAML");
  } catch (const plait::ConfigError& error) {
    plait::require(!std::string_view(error.what()).empty(), "a refusal without a word");
  }
  return 0;
}
