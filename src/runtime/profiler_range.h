// A named range on the issuing thread, for profilers (NVTX). Costs next to nothing while none is attached; nothing at all where
// plait is built without CUDA.
#pragma once

namespace plait::runtime {

class ProfilerRange {
 public:
  explicit ProfilerRange(const char* name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace plait::runtime
