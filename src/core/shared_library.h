// A shared library that the program opens when it first needs it, because not every run does or not every machine has it. It
// stays open: such libraries have threads of their own.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

namespace plait {

class SharedLibrary {
 public:
  // Opens the first of `files` that can be: a path, or a name that the loader looks for in LD_LIBRARY_PATH, the program's own
  // folders and the system's. Throws DeviceError, which calls the library `name` and says why the first file was not opened.
  SharedLibrary(std::string name, const std::vector<std::string>& files);

  // Sets a pointer to the library's function of that name. Throws DeviceError if it has none.
  template <typename Function>
  void find(Function*& function, const char* function_name) const {
    static_assert(std::is_function_v<Function>);
    function = reinterpret_cast<Function*>(address(function_name));
  }

 private:
  void* address(const char* function_name) const;

  std::string name_;
  void* library_ = nullptr;
};

}  // namespace plait
