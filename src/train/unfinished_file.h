// A file under a temporary name: the destructor removes it, unless it was renamed.
#pragma once

#include <filesystem>
#include <system_error>
#include <utility>

namespace plait::train {

class UnfinishedFile {
 public:
  explicit UnfinishedFile(std::filesystem::path path) : path_(std::move(path)) {}
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;
  ~UnfinishedFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

 private:
  const std::filesystem::path path_;
};

}  // namespace plait::train
