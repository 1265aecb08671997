#include "core/private_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace plait {

PrivateDirectory::PrivateDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "plait-XXXXXX").string();
  if (!::mkdtemp(name.data())) throw CommError("cannot create the temporary directory " + name + ": " + std::strerror(errno));
  path_ = name;
}

PrivateDirectory::~PrivateDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace plait
