// A directory for temporary files that no other user can read. It is removed with the object; the remains of a killed process
// are removed when the next object is made in the same folder.
#pragma once

#include <filesystem>

#include "core/file_descriptor.h"

namespace plait {

class PrivateDirectory {
 public:
  PrivateDirectory();  // mode 0700, in the system's folder for temporary files; CommError if it cannot be made
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  ~PrivateDirectory();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor lock_;  // on the directory: says that its maker is alive
};

}  // namespace plait
