#include "core/shared_library.h"

#include <dlfcn.h>

#include "core/error.h"

namespace plait {

SharedLibrary::SharedLibrary(std::string name, const std::vector<std::string>& files) : name_(std::move(name)) {
  std::string reason;
  for (const std::string& file : files) {
    library_ = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_) return;
    const char* why = ::dlerror();
    if (reason.empty()) reason = why ? why : file;
  }
  throw DeviceError(name_ + " cannot be opened: " + reason);
}

void* SharedLibrary::address(const char* function_name) const {
  void* const found = ::dlsym(library_, function_name);
  if (!found) throw DeviceError(name_ + " has no " + function_name);
  return found;
}

}  // namespace plait
